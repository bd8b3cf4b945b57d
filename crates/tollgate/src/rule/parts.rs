//! What a rule says of the requests that it matches, read.

use std::sync::Arc;

use http::Method;

use super::Rule;
use super::host::HostPattern;
use super::index::Target;
use super::pattern::Pattern;
use crate::error::ConfigError;

impl Rule {
    /// The hosts at which the rule matches; none stands for all.
    pub(super) fn host_patterns(&self) -> Result<Vec<HostPattern>, ConfigError> {
        let parse = |host: &String| {
            HostPattern::parse(host).map_err(|problem| ConfigError::Host {
                rule: self.name.clone(),
                host: host.clone(),
                reason: problem.to_string(),
            })
        };
        self.hosts.iter().map(parse).collect()
    }

    /// The methods and paths at which the rule matches; none stands for all.
    pub(super) fn path_patterns(&self) -> Result<Vec<Target>, ConfigError> {
        let parse = |path: &String| match Pattern::parse(path) {
            Ok(pattern) => Ok(Arc::new(pattern)),
            Err(problem) => Err(ConfigError::Path {
                rule: self.name.clone(),
                path: path.clone(),
                reason: problem.to_string(),
            }),
        };
        let target = |(method, path): &(Option<Method>, Option<String>)| {
            Ok((method.clone(), path.as_ref().map(parse).transpose()?))
        };
        self.targets.iter().map(target).collect()
    }

    /// What a rule that is charged by hand says of requests all the same.
    pub(super) fn in_vain(&self) -> Option<String> {
        let target = |(method, path): &(Option<Method>, Option<String>)| match (method, path) {
            (_, Some(path)) => format!("the path `{path}`"),
            (Some(method), None) => format!("the method `{method}`"),
            (None, None) => "what it matches".to_owned(),
        };
        let host = || self.hosts.first().map(|host| format!("the host `{host}`"));
        let predicate = || (!self.predicates.is_empty()).then(|| "the predicate".to_owned());
        let found = self.targets.first().map(target).or_else(host).or_else(predicate);
        found.filter(|_| self.by_hand)
    }
}
