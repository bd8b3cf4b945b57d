//! Lookup by host: a map for exact hosts, and a tree of labels for everything below a host.

use super::map::Map;
use crate::request::host::HostPattern;

/// Values for single hosts, or for all hosts below one.
#[derive(Clone, Debug)]
pub(super) struct ByHost<T> {
    exact: Map<Box<str>, T>,
    below: Labels<T>,
}

/// The hosts that end in the same labels. The tree is walked from the last label, and only as deep as there
/// are rules: a caller who names a host with a hundred labels causes no more lookups than that.
#[derive(Clone, Debug)]
struct Labels<T> {
    more: Map<Box<str>, Labels<T>>,
    /// The value for all hosts below this.
    below: Option<Box<T>>,
}

impl<T> Default for ByHost<T> {
    fn default() -> Self {
        Self { exact: Map::default(), below: Labels::default() }
    }
}

impl<T> Default for Labels<T> {
    fn default() -> Self {
        Self { more: Map::default(), below: None }
    }
}

impl<T: Default> ByHost<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.below.more.is_empty()
    }

    /// The value for these hosts, to be added to.
    pub(super) fn entry(&mut self, hosts: &HostPattern) -> &mut T {
        match hosts {
            HostPattern::Exact(host) => self.exact.entry(host.clone()).or_default(),
            HostPattern::Below(host) => {
                let labels = host
                    .rsplit('.')
                    .fold(&mut self.below, |labels, label| labels.more.entry(label.into()).or_default());
                labels.below.get_or_insert_default()
            }
        }
    }

    /// Calls `f` with every value for this host, given in its [normal](super::host::normal) spelling.
    pub(super) fn each<'a>(&'a self, host: &str, mut f: impl FnMut(&'a T)) {
        if !self.exact.is_empty() {
            self.exact.get(host).into_iter().for_each(&mut f);
        }
        let (mut labels, mut rest) = (&self.below, host);
        while !labels.more.is_empty() {
            // A host is below this label only if something precedes the label.
            let Some((before, label)) = rest.rsplit_once('.') else { return };
            let Some(more) = labels.more.get(label) else { return };
            if !before.is_empty() {
                more.below.as_deref().into_iter().for_each(&mut f);
            }
            (labels, rest) = (more, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(patterns: &[&str]) -> ByHost<Vec<usize>> {
        let mut hosts = ByHost::<Vec<usize>>::default();
        for (number, pattern) in patterns.iter().enumerate() {
            hosts.entry(&HostPattern::parse(pattern).unwrap()).push(number);
        }
        hosts
    }

    fn of(hosts: &ByHost<Vec<usize>>, host: &str) -> Vec<usize> {
        let mut found = Vec::new();
        hosts.each(host, |numbers| found.extend(numbers));
        found
    }

    #[test]
    fn all_patterns_that_match_are_found() {
        let patterns =
            ["example.com", "*.example.com", "a.example.com", "*.com", "*.a.example.com", "example.com."];
        let hosts = hosts(&patterns);
        assert_eq!(of(&hosts, "example.com"), [0, 5, 3]);
        assert_eq!(of(&hosts, "a.example.com"), [2, 3, 1]);
        assert_eq!(of(&hosts, "b.a.example.com"), [3, 1, 4]);
        assert_eq!(of(&hosts, "c.b.a.example.com"), [3, 1, 4]);
        assert_eq!(of(&hosts, "com"), [0; 0]);
        assert_eq!(of(&hosts, "aexample.com"), [3]);
        assert_eq!(of(&hosts, ".example.com"), [3]);
        assert_eq!(of(&hosts, ""), [0; 0]);
    }
}
