//! Which rules match a path: a tree of segments, so that rules for other paths cost nothing.

use std::collections::HashMap;

use http::Method;
use smallvec::SmallVec;

use super::pattern::{Pattern, Segment, decode};

/// The rules that match a request, by number, with the pattern by which they do.
pub(crate) type Matches<'a> = SmallVec<[(usize, Option<&'a Pattern>); 4]>;

/// All rules, by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// The rules that match every path.
    anywhere: Vec<usize>,
    root: Node,
    has_paths: bool,
}

#[derive(Clone, Debug, Default)]
struct Node {
    fixed: HashMap<Box<[u8]>, Node>,
    param: Option<Box<Node>>,
    /// The rules whose pattern ends here.
    here: Vec<Entry>,
    /// The rules whose pattern takes all the rest from here.
    rest: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    rule: usize,
    method: Option<Method>,
    pattern: Pattern,
}

impl Index {
    /// Adds a rule that matches everywhere.
    pub(crate) fn add_anywhere(&mut self, rule: usize) {
        self.anywhere.push(rule);
    }

    /// Adds a path at which a rule matches.
    pub(crate) fn add(&mut self, rule: usize, method: Option<Method>, pattern: &Pattern) {
        self.has_paths = true;
        let entry = Entry { rule, method, pattern: pattern.clone() };
        let mut node = &mut self.root;
        for segment in pattern.segments() {
            node = match segment {
                Segment::Fixed(text) => node.fixed.entry(text.as_slice().into()).or_default(),
                Segment::Param(_) => node.param.get_or_insert_default(),
                Segment::Rest(_) => return node.rest.push(entry),
            };
        }
        node.here.push(entry);
    }

    /// The rules, if all of them match every path.
    #[inline]
    pub(crate) fn everywhere(&self) -> Option<&[usize]> {
        (!self.has_paths).then_some(&*self.anywhere)
    }

    /// The rules that match, in their order, each once.
    pub(crate) fn matches(&self, method: &Method, path: &str) -> Matches<'_> {
        let mut found = Matches::new();
        for rule in &self.anywhere {
            found.push((*rule, None));
        }
        if let Some(path) = path.strip_prefix('/') {
            self.root.collect(method, path, &mut found);
        }
        if found.len() > 1 {
            found.sort_by_key(|(rule, _)| *rule);
            found.dedup_by_key(|(rule, _)| *rule);
        }
        found
    }
}

impl Node {
    fn collect<'a>(&'a self, method: &Method, rest: &str, found: &mut Matches<'a>) {
        if !rest.is_empty() {
            found.extend(self.rest.iter().filter_map(|entry| entry.matching(method)));
        }
        let (segment, after) = match rest.split_once('/') {
            Some((segment, after)) => (segment, Some(after)),
            None => (rest, None),
        };
        let fixed = if self.fixed.is_empty() { None } else { self.fixed.get(decode(segment).as_ref()) };
        // A parameter stands for something.
        let param = self.param.as_deref().filter(|_| !segment.is_empty());
        for node in fixed.into_iter().chain(param) {
            match after {
                Some(after) => node.collect(method, after, found),
                None => found.extend(node.here.iter().filter_map(|entry| entry.matching(method))),
            }
        }
    }
}

impl Entry {
    fn matching(&self, method: &Method) -> Option<(usize, Option<&Pattern>)> {
        let matches = self.method.as_ref().is_none_or(|wanted| {
            // Whoever serves GET serves HEAD by the same handler.
            wanted == method || wanted == Method::GET && method == Method::HEAD
        });
        matches.then_some((self.rule, Some(&self.pattern)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(rules: &[(Option<Method>, &str)]) -> Index {
        let mut index = Index::default();
        for (rule, (method, path)) in rules.iter().enumerate() {
            index.add(rule, method.clone(), &Pattern::parse(path).unwrap());
        }
        index
    }

    fn matching(index: &Index, method: &Method, path: &str) -> Vec<usize> {
        index.matches(method, path).iter().map(|(rule, _)| *rule).collect()
    }

    #[test]
    fn all_patterns_that_match_are_found_not_only_the_most_specific() {
        let index = index(&[
            (None, "/{*all}"),
            (None, "/users/{id}"),
            (None, "/users/me"),
            (None, "/{a}/me"),
            (None, "/users"),
            (None, "/"),
        ]);
        assert_eq!(matching(&index, &Method::GET, "/users/me"), [0, 1, 2, 3]);
        assert_eq!(matching(&index, &Method::GET, "/users/7"), [0, 1]);
        assert_eq!(matching(&index, &Method::GET, "/users"), [0, 4]);
        assert_eq!(matching(&index, &Method::GET, "/users/"), [0]);
        assert_eq!(matching(&index, &Method::GET, "/"), [5]);
        assert_eq!(matching(&index, &Method::GET, "*"), [0; 0]);
    }

    #[test]
    fn a_rule_with_two_paths_that_match_is_found_once() {
        let mut index = index(&[(None, "/a/{x}")]);
        index.add(0, None, &Pattern::parse("/{x}/b").unwrap());
        assert_eq!(matching(&index, &Method::GET, "/a/b"), [0]);
    }

    #[test]
    fn head_is_matched_where_get_is() {
        let index = index(&[(Some(Method::GET), "/x"), (Some(Method::POST), "/x")]);
        assert_eq!(matching(&index, &Method::GET, "/x"), [0]);
        assert_eq!(matching(&index, &Method::HEAD, "/x"), [0]);
        assert_eq!(matching(&index, &Method::POST, "/x"), [1]);
        assert_eq!(matching(&index, &Method::PUT, "/x"), [0; 0]);
    }

    #[test]
    fn a_path_is_matched_however_it_is_spelled() {
        let index = index(&[(None, "/log in"), (None, "/log%20in/x"), (None, "/x%FF")]);
        assert_eq!(matching(&index, &Method::GET, "/%78%ff"), [2]);
        assert_eq!(matching(&index, &Method::GET, "/log%20in"), [0]);
        assert_eq!(matching(&index, &Method::GET, "/%6Cog%20in"), [0]);
        assert_eq!(matching(&index, &Method::GET, "/log%20in/x"), [1]);
    }
}
