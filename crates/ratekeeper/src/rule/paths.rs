//! Which rules match a method and a path: a tree of segments, so that rules for other paths cost nothing.

use std::sync::Arc;

use http::Method;

use super::index::Matches;
use super::map::Map;
use super::methods::ByMethod;
use crate::request::pattern::{Pattern, Segment, decode};

/// Rules, by method and path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    /// The rules that match every path.
    everywhere: ByMethod<Entry>,
    root: Node,
}

#[derive(Clone, Debug, Default)]
struct Node {
    fixed: Map<Box<[u8]>, Node>,
    param: Option<Box<Node>>,
    /// The rules whose pattern ends here.
    here: ByMethod<Entry>,
    /// The rules whose pattern takes the rest of the path from here.
    rest: ByMethod<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    rule: usize,
    pattern: Option<Arc<Pattern>>,
}

impl Paths {
    /// Adds a method and a path at which a rule matches. `None` means any.
    pub(crate) fn add(&mut self, rule: usize, method: Option<&Method>, pattern: Option<&Arc<Pattern>>) {
        let entry = Entry { rule, pattern: pattern.cloned() };
        let segments = pattern.map_or(&[][..], |pattern| pattern.segments());
        if segments.is_empty() {
            return self.everywhere.add(method, entry);
        }
        let mut node = &mut self.root;
        for segment in segments {
            node = match segment {
                Segment::Fixed(text) => node.fixed.entry(text.as_slice().into()).or_default(),
                Segment::Param(_) => node.param.get_or_insert_default(),
                Segment::Rest(_) => return node.rest.add(method, entry),
            };
        }
        node.here.add(method, entry);
    }

    /// Finds the rules that match, in no particular order, some of them more than once.
    pub(crate) fn collect<'a>(&'a self, method: &Method, path: &str, found: &mut Matches<'a>) {
        self.everywhere.collect(method, found);
        if let Some(path) = path.strip_prefix('/') {
            self.root.collect(method, path, found);
        }
    }
}

impl Node {
    fn collect<'a>(&'a self, method: &Method, rest: &str, found: &mut Matches<'a>) {
        if !rest.is_empty() {
            self.rest.collect(method, found);
        }
        let (segment, after) = match rest.split_once('/') {
            Some((segment, after)) => (segment, Some(after)),
            None => (rest, None),
        };
        let fixed = if self.fixed.is_empty() { None } else { self.fixed.get(decode(segment).as_ref()) };
        // A parameter at the end must not be empty. Any other may be, as for axum's router.
        let param = self.param.as_deref().filter(|_| !segment.is_empty() || after.is_some());
        for node in fixed.into_iter().chain(param) {
            match after {
                Some(after) => node.collect(method, after, found),
                None => node.here.collect(method, found),
            }
        }
    }
}

impl ByMethod<Entry> {
    fn collect<'a>(&'a self, method: &Method, found: &mut Matches<'a>) {
        self.each(method, |entry| found.push((entry.rule, entry.pattern.as_deref())));
    }
}
