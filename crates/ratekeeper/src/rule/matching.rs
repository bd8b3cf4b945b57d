//! Which requests a rule matches.

use std::sync::Arc;

use http::Method;

use super::Rule;
use super::index::Target;
use crate::error::ConfigError;
use crate::key::KeySource;
use crate::request::RequestHead;
use crate::request::host::HostPattern;
use crate::request::pattern::Pattern;

/// The requests that a rule matches, apart from its predicates.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    /// Empty means all.
    pub(super) hosts: Vec<HostPattern>,
    /// Empty means all.
    pub(super) targets: Vec<Target>,
    pub(super) exceptions: Vec<Pattern>,
    pub(super) manual: bool,
}

impl Requests {
    /// A path parameter that the key takes but no path has, and those that the paths have. It may be one of the
    /// application's route if any path matches, or one of any length.
    pub(super) fn unknown_param(&self, key: &KeySource) -> Option<(String, Vec<String>)> {
        let patterns: Vec<&Pattern> = self.targets.iter().filter_map(|(_, path)| path.as_deref()).collect();
        let is_open =
            patterns.len() < self.targets.len() || patterns.iter().any(|pattern| pattern.has_rest());
        if is_open || patterns.is_empty() {
            return None;
        }
        let mut known: Vec<&str> = patterns.iter().flat_map(|pattern| pattern.params()).collect();
        known.sort_unstable();
        known.dedup();
        let unknown = key.path_params().into_iter().find(|name| !known.contains(name))?;
        Some((unknown.to_owned(), known.into_iter().map(str::to_owned).collect()))
    }

    /// The exception that a request is, if it is one.
    #[inline]
    pub(super) fn exception(&self, head: &RequestHead<'_>) -> Option<&Pattern> {
        if self.exceptions.is_empty() {
            return None;
        }
        self.exceptions.iter().find(|pattern| head.paths().any(|path| pattern.matches(path)))
    }
}

impl Rule {
    /// Matches requests with this method and path. If called several times, any of them.
    ///
    /// Paths are written as in axum: `/users/{id}`, `/files/{*rest}`. `GET` also matches `HEAD`, because the
    /// same handler serves it.
    ///
    /// Within a nested axum router (with the `axum` feature) a path matches either the full path or the path
    /// that the router with the layer sees: in a router nested at `/auth`, a rule for `/signin` matches
    /// `/auth/signin`.
    ///
    /// # One resource under several paths
    ///
    /// The segments of a path are matched percent-decoded, but otherwise as the client wrote them.
    /// `/files/a`, `/files//a`, `/files/./a` and `/files/a/` are four paths, as they are for axum's router. A
    /// service that folds them, as `ServeDir` does, or a layer that strips slashes, sees one resource, but a
    /// rule for `/files/a` matches only one of the four. A client that writes another one is not limited by
    /// it.
    ///
    /// The same goes for a service that decodes a path before it routes: here a `%2F` is part of a segment,
    /// and `/files%2Fa` is a different path from `/files/a`.
    ///
    /// For such services, limit everything that the service serves, with a key that does not contain the
    /// path. Or have a layer outside this one answer or rewrite every path that is not written in the plain
    /// form. What is served under `/files` is three paths: `/files`, `/files/` and `/files/{*rest}`, because
    /// `{*rest}` never matches an empty rest.
    pub fn on(mut self, method: Method, path: impl Into<String>) -> Self {
        self.targets.push((Some(method), Some(path.into())));
        self
    }

    /// Matches requests with this path, whatever their method. If called several times, any of them.
    ///
    /// A server may treat several paths as one that a rule treats as several: see [`on`](Self::on).
    pub fn on_path(mut self, path: impl Into<String>) -> Self {
        self.targets.push((None, Some(path.into())));
        self
    }

    /// Matches requests with this method, whatever their path.
    ///
    /// If called several times, any of them, and any of the paths that are added beside it. `GET` also
    /// matches `HEAD`.
    pub fn on_method(mut self, method: Method) -> Self {
        self.targets.push((Some(method), None));
        self
    }

    /// Matches only requests to this host. If called several times, to any of them.
    ///
    /// Methods and paths have to match as well.
    ///
    /// `api.example.com` is that host alone. `*.example.com` is all hosts below `example.com`, at any depth,
    /// but not `example.com` itself. An IPv6 address is written in brackets. Upper case, the port of a
    /// request and a trailing dot make no difference.
    ///
    /// The host is what the request [claims](RequestHead::host), so a caller who can reach the server under
    /// any name chooses which of these rules apply. Add a rule without a host as well, unless something in
    /// front of the server lets only known hosts through.
    ///
    /// ```
    /// use ratekeeper::{Limiter, Quota, Rule};
    ///
    /// # fn main() -> Result<(), ratekeeper::ConfigError> {
    /// let limiter = Limiter::builder()
    ///     .rule(Rule::new("all", Quota::per_second(100)))
    ///     .rule(Rule::new("api", Quota::per_second(10)).on_host("api.example.com").on_path("/v1/{*rest}"))
    ///     .rule(Rule::new("shops", Quota::per_second(20)).on_host("*.shops.example.com"))
    ///     .build()?;
    /// # let _ = limiter;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    /// Does not match requests with this path, whatever their method. If called several times, with any of
    /// them.
    ///
    /// Paths are written, and matched, as those that a rule is [`on`](Self::on).
    ///
    /// ```
    /// use ratekeeper::{Quota, Rule};
    ///
    /// // Everything but the probes of the load balancer.
    /// let rule = Rule::new("all", Quota::per_second(100)).except("/health").except("/health/{*probe}");
    /// # let _ = rule;
    /// ```
    pub fn except(mut self, path: impl Into<String>) -> Self {
        self.exceptions.push(path.into());
        self
    }

    /// Matches no request: the rule is only charged through [`Limiter::charge`](crate::Limiter::charge).
    ///
    /// An example is the messages of a socket whose opening is counted by other rules of the limiter.
    ///
    /// ```
    /// use ratekeeper::{Limiter, Quota, Rule};
    ///
    /// # fn main() -> Result<(), ratekeeper::ConfigError> {
    /// let limiter = Limiter::builder()
    ///     .rule(Rule::new("connections", Quota::per_minute(10)).on_path("/socket"))
    ///     .rule(Rule::new("messages", Quota::per_second(5)).manual())
    ///     .build()?;
    /// # let _ = limiter;
    /// # Ok(())
    /// # }
    /// ```
    pub fn manual(self) -> Self {
        Self { manual: true, ..self }
    }

    /// Matches only requests that satisfy this predicate. If called several times, all of them.
    pub fn when(mut self, predicate: impl Fn(&RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.predicates.push(Arc::new(predicate));
        self
    }

    /// The requests that the rule matches.
    pub(super) fn requests(&self) -> Result<Requests, ConfigError> {
        let requests = Requests {
            hosts: self.host_patterns()?,
            targets: self.targets()?,
            exceptions: self.exceptions.iter().map(|path| self.pattern(path)).collect::<Result<_, _>>()?,
            manual: self.manual,
        };
        match self.in_vain() {
            Some(in_vain) if self.manual => Err(ConfigError::Manual { rule: self.name.clone(), in_vain }),
            _ => Ok(requests),
        }
    }

    fn host_patterns(&self) -> Result<Vec<HostPattern>, ConfigError> {
        let parse = |host: &String| {
            HostPattern::parse(host).map_err(|problem| ConfigError::Host {
                rule: self.name.clone(),
                host: host.clone(),
                reason: problem.to_string(),
            })
        };
        self.hosts.iter().map(parse).collect()
    }

    fn pattern(&self, path: &str) -> Result<Pattern, ConfigError> {
        Pattern::parse(path).map_err(|problem| ConfigError::Path {
            rule: self.name.clone(),
            path: path.to_owned(),
            reason: problem.to_string(),
        })
    }

    fn targets(&self) -> Result<Vec<Target>, ConfigError> {
        let parse = |path: &String| self.pattern(path).map(Arc::new);
        let target = |(method, path): &(Option<Method>, Option<String>)| {
            Ok((method.clone(), path.as_ref().map(parse).transpose()?))
        };
        self.targets.iter().map(target).collect()
    }

    /// What the rule says about requests, which has no effect if it is charged manually.
    fn in_vain(&self) -> Option<String> {
        let target = |(method, path): &(Option<Method>, Option<String>)| match (method, path) {
            (_, Some(path)) => format!("the path `{path}`"),
            (Some(method), None) => format!("the method `{method}`"),
            (None, None) => "what it matches".to_owned(),
        };
        let host = || self.hosts.first().map(|host| format!("the host `{host}`"));
        let exception = || self.exceptions.first().map(|path| format!("the exception `{path}`"));
        let predicate = || (!self.predicates.is_empty()).then(|| "the predicate".to_owned());
        self.targets.first().map(target).or_else(host).or_else(exception).or_else(predicate)
    }
}
