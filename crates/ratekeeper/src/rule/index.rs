//! Which rules match a request by its host, method and path.

use std::sync::Arc;

use http::Method;
use smallvec::SmallVec;

use super::hosts::ByHost;
use super::paths::Paths;
use crate::request::host::{self, HostPattern};
use crate::request::pattern::Pattern;
use crate::request::{Match, RequestHead};

/// The rules that match a request, in order. A rule that matches by several patterns with parameters is
/// listed for each.
pub(crate) type Matches<'a> = SmallVec<[Match<'a>; 4]>;

/// An index of all rules. Rules for other hosts, methods and paths cost nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// The rules that match every request.
    everywhere: Vec<usize>,
    /// The rules that name no host.
    any_host: Paths,
    has_paths: bool,
    hosts: ByHost<Paths>,
}

/// A method and a path at which a rule matches. `None` means any.
pub(crate) type Target = (Option<Method>, Option<Arc<Pattern>>);

impl Index {
    /// An index of one rule.
    pub(super) fn of(hosts: &[HostPattern], targets: &[Target]) -> Self {
        let mut index = Self::default();
        index.add(0, hosts, targets);
        index
    }

    /// Adds a rule that matches at one of these hosts, or at any host if there are none, and there at one of
    /// these methods and paths, or at any if there are none.
    pub(crate) fn add(&mut self, rule: usize, hosts: &[HostPattern], targets: &[Target]) {
        if hosts.is_empty() && targets.is_empty() {
            return self.everywhere.push(rule);
        }
        if hosts.is_empty() {
            self.has_paths = true;
            add_targets(&mut self.any_host, rule, targets);
        }
        for host in hosts {
            add_targets(self.hosts.entry(host), rule, targets);
        }
    }

    /// The rules, if all of them match every request.
    #[inline]
    pub(crate) fn everywhere(&self) -> Option<&[usize]> {
        (!self.has_paths && self.hosts.is_empty()).then_some(&*self.everywhere)
    }

    /// The rules that match.
    pub(crate) fn matches(&self, head: &RequestHead<'_>) -> Matches<'_> {
        let mut found = Matches::new();
        for rule in &self.everywhere {
            found.push((*rule, None));
        }
        let host = if self.hosts.is_empty() { None } else { head.host().and_then(host::normal) };
        for path in head.paths() {
            if self.has_paths {
                self.any_host.collect(head.method(), path, &mut found);
            }
            if let Some(host) = &host {
                self.hosts.each(host, |paths| paths.collect(head.method(), path, &mut found));
            }
        }
        if found.len() > 1 {
            found.sort_by_key(|(rule, _)| *rule);
            found.dedup_by(is_covered);
        }
        found
    }
}

/// Whether the later of two matches adds nothing, so that it is removed. If the earlier one adds nothing, the
/// later one takes its place.
fn is_covered<'a>(later: &mut Match<'a>, earlier: &mut Match<'a>) -> bool {
    let has_params = |(_, pattern): &Match<'a>| pattern.is_some_and(Pattern::has_params);
    if later.0 != earlier.0 {
        return false;
    }
    if !has_params(later) || later.1 == earlier.1 {
        return true;
    }
    if has_params(earlier) {
        return false;
    }
    *earlier = *later;
    true
}

fn add_targets(paths: &mut Paths, rule: usize, targets: &[Target]) {
    if targets.is_empty() {
        paths.add(rule, None, None);
    }
    for (method, pattern) in targets {
        paths.add(rule, method.as_ref(), pattern.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn pattern(path: &str) -> Option<Arc<Pattern>> {
        Some(Arc::new(Pattern::parse(path).unwrap()))
    }

    fn index(rules: &[(Option<Method>, &str)]) -> Index {
        let mut index = Index::default();
        for (rule, (method, path)) in rules.iter().enumerate() {
            index.add(rule, &[], &[(method.clone(), pattern(path))]);
        }
        index
    }

    fn matching(index: &Index, method: &Method, uri: &str) -> Vec<usize> {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        let matches = index.matches(&RequestHead::from(&request));
        matches.chunk_by(|a, b| a.0 == b.0).map(|patterns| patterns[0].0).collect()
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
        assert_eq!(matching(&index, &Method::OPTIONS, "*"), [0; 0]);
    }

    #[test]
    fn a_rule_with_two_paths_that_match_is_found_once() {
        let mut index = Index::default();
        index.add(0, &[], &[(None, pattern("/a/{x}")), (None, pattern("/{x}/b"))]);
        assert_eq!(matching(&index, &Method::GET, "/a/b"), [0]);
    }

    #[test]
    fn of_the_patterns_by_which_a_rule_matches_all_are_kept_that_tell_something() {
        let mut index = Index::default();
        let hosts = ["a.example.com", "*.example.com"].map(|host| HostPattern::parse(host).unwrap());
        let targets = [
            (Some(Method::POST), None),
            (None, pattern("/a/b")),
            (None, pattern("/a/{x}")),
            (Some(Method::POST), pattern("/a/{x}")),
            (None, pattern("/{y}/b")),
        ];
        index.add(0, &hosts, &targets);
        index.add(1, &[], &[]);
        let patterns = |method: &Method, path: &str| -> Vec<(usize, String)> {
            let uri = format!("http://a.example.com{path}");
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            let matches = index.matches(&RequestHead::from(&request));
            let shown = |(rule, pattern): &Match<'_>| (*rule, pattern.map(ToString::to_string));
            matches.iter().map(shown).map(|(rule, text)| (rule, text.unwrap_or_default())).collect()
        };
        let of = |texts: &[&str]| -> Vec<(usize, String)> {
            texts.iter().map(|text| (0, text.to_string())).chain([(1, String::new())]).collect()
        };
        assert_eq!(patterns(&Method::POST, "/"), of(&[""]));
        assert_eq!(patterns(&Method::GET, "/a/c"), of(&["/a/{x}"]));
        assert_eq!(patterns(&Method::POST, "/a/c"), of(&["/a/{x}"]));
        let mut both = patterns(&Method::GET, "/a/b");
        both.sort();
        both.dedup();
        assert_eq!(both[..2], of(&["/a/{x}", "/{y}/b"])[..2]);
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

    #[test]
    fn a_method_without_a_path_matches_whatever_is_asked_for() {
        let mut index = Index::default();
        index.add(0, &[], &[(Some(Method::OPTIONS), None)]);
        index.add(1, &[], &[(None, pattern("/x")), (Some(Method::GET), None)]);
        for (method, uri, rules) in [
            (Method::OPTIONS, "*", &[0][..]),
            (Method::OPTIONS, "/x", &[0, 1]),
            (Method::GET, "/", &[1]),
            (Method::HEAD, "/x", &[1]),
            (Method::POST, "/", &[]),
        ] {
            assert_eq!(matching(&index, &method, uri), rules, "{method} {uri}");
        }
    }

    #[test]
    fn host_and_path_are_matched_together() {
        let hosts = |texts: &[&str]| -> Vec<HostPattern> {
            texts.iter().map(|text| HostPattern::parse(text).unwrap()).collect()
        };
        let mut index = Index::default();
        index.add(0, &hosts(&["a.example.com"]), &[]);
        index.add(1, &hosts(&["a.example.com", "*.example.com"]), &[(None, pattern("/x"))]);
        index.add(2, &[], &[]);
        index.add(3, &[], &[(None, pattern("/x"))]);
        assert_eq!(index.everywhere(), None);
        assert_eq!(matching(&index, &Method::GET, "http://A.example.com:80/x"), [0, 1, 2, 3]);
        assert_eq!(matching(&index, &Method::GET, "http://a.example.com/y"), [0, 2]);
        assert_eq!(matching(&index, &Method::GET, "http://b.example.com/x"), [1, 2, 3]);
        assert_eq!(matching(&index, &Method::GET, "http://example.com/x"), [2, 3]);
        assert_eq!(matching(&index, &Method::GET, "/x"), [2, 3]);
    }
}
