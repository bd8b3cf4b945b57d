//! The hosts at which a rule matches.

use ratekeeper::{ConfigError, Quota, Rule};

use super::matching::each;
use crate::read::{At, OneOrMany};
use crate::scope::Scope;

/// The hosts, if all of them are valid.
pub(super) fn hosts(list: &At<OneOrMany<String>>, scope: &Scope<'_>) -> Option<Vec<String>> {
    each(list, scope, host)
}

fn host(host: &At<&str>, scope: &Scope<'_>) -> Option<String> {
    let text = host.value;
    match check(text) {
        Ok(()) => return Some(text.to_owned()),
        Err(ConfigError::Host { reason, .. }) => {
            let message = format!("the host `{text}` cannot be used: {reason}");
            scope.problem_with(host.span.clone(), message, meant(text));
        }
        Err(other) => scope.problem(host.span.clone(), other.to_string()),
    }
    None
}

/// Checked on a fresh rule, since the one being built may have other faults.
fn check(host: &str) -> Result<(), ConfigError> {
    Rule::new("host", Quota::per_second(1)).on_host(host).check()
}

/// The host without the other parts of a URL, if that is one.
fn meant(text: &str) -> Option<String> {
    let host = text.split_once("://").map_or(text, |(_, rest)| rest);
    let host = host.split(['/', '?', '#']).next().unwrap_or(host);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let without_port = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let in_brackets = format!("[{host}]");
    let star = host.strip_prefix("*.").or_else(|| host.strip_prefix(['*', '.'])).unwrap_or(host);
    let below = format!("*.{star}");
    let tried = [host, &in_brackets, without_port, &below];
    let found = tried.into_iter().find(|tried| *tried != text && check(tried).is_ok());
    found.map(|host| format!("did you mean `{host}`?"))
}
