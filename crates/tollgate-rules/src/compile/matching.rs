//! Which requests a rule matches.

use http::Method;
use tollgate::{ConfigError, Quota, Rule};

use crate::model::{MatchSpec, MatchTable};
use crate::read::{At, OneOrMany};
use crate::scope::Scope;
use crate::suggest::{did_you_mean, nearest};

/// A method and a path, each of which may be any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    method: Option<Method>,
    path: Option<String>,
}

/// The methods of HTTP and of WebDAV. There can be others.
const METHODS: [&str; 17] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "COPY",
    "LOCK",
    "MKCOL",
    "MOVE",
    "PROPFIND",
    "PROPPATCH",
    "UNLOCK",
    "QUERY",
];

/// Every path, in two patterns: what follows a slash, and nothing. The name is one that no key asks for.
const EVERY_PATH: [&str; 2] = ["/", "/{*every path}"];

impl Target {
    /// The rule, which matches this as well.
    pub(super) fn add_to(self, rule: Rule) -> Rule {
        match (self.method, self.path) {
            (Some(method), Some(path)) => rule.on(method, path),
            (None, Some(path)) => rule.on_path(path),
            (Some(method), None) => EVERY_PATH.iter().fold(rule, |rule, path| rule.on(method.clone(), *path)),
            (None, None) => EVERY_PATH.iter().fold(rule, |rule, path| rule.on_path(*path)),
        }
    }
}

/// What a rule matches.
pub(super) fn targets(matches: &At<OneOrMany<MatchSpec>>, scope: &Scope<'_>) -> Option<Vec<Target>> {
    let list = matches.value.as_slice();
    if list.is_empty() {
        never(matches, "an empty list", scope);
    }
    let mut all = Vec::new();
    let mut wrong = false;
    for spec in list {
        let targets = match &spec.value {
            MatchSpec::Text(text) => from_text(&spec.with(text.trim()), scope).map(|target| vec![target]),
            MatchSpec::Table(table) => from_table(&spec.with(table), scope),
        };
        match targets {
            Some(targets) => all.extend(targets),
            None => wrong = true,
        }
    }
    (!wrong).then_some(all)
}

fn from_text(text: &At<&str>, scope: &Scope<'_>) -> Option<Target> {
    let (method, path) = match text.value.split_once(char::is_whitespace) {
        // A path can have a space in it.
        _ if text.value.starts_with('/') => (None, Some(text.value)),
        Some((method, path)) => (Some(method), Some(path.trim_start())),
        None if is_method(text.value) => (Some(text.value), None),
        None => (None, Some(text.value)),
    };
    let method = method.map(|name| self::method(&text.with(name), scope));
    let path = path.map(|path| self::path(&text.with(path), scope));
    Some(Target { method: transposed(method)?, path: transposed(path)? })
}

fn from_table(table: &At<&MatchTable>, scope: &Scope<'_>) -> Option<Vec<Target>> {
    let MatchTable { method, path } = table.value;
    if method.is_unsaid() && path.is_unsaid() {
        let help = "without `match` a rule matches every request".to_owned();
        scope.problem_with(table.span.clone(), "neither `method` nor `path` is said", help);
        return None;
    }
    if method.is_unread() || path.is_unread() {
        return None;
    }
    let methods = method.get().map(|list| each(list, &scope.field("method"), self::method));
    let paths = path.get().map(|list| each(list, &scope.field("path"), self::path));
    let (methods, paths) = (anything_unless(methods)?, anything_unless(paths)?);
    let on = |method: &Option<Method>| {
        let method = method.clone();
        paths.iter().map(move |path| Target { method: method.clone(), path: path.clone() })
    };
    Some(methods.iter().flat_map(on).collect())
}

/// `None` within stands for anything; without, for something that is wrong.
fn anything_unless<T>(list: Option<Option<Vec<T>>>) -> Option<Vec<Option<T>>> {
    match list {
        Some(list) => Some(list?.into_iter().map(Some).collect()),
        None => Some(vec![None]),
    }
}

fn transposed<T>(part: Option<Option<T>>) -> Option<Option<T>> {
    match part {
        Some(part) => part.map(Some),
        None => Some(None),
    }
}

fn each<T>(
    list: &At<OneOrMany<String>>,
    scope: &Scope<'_>,
    read: impl Fn(&At<&str>, &Scope<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let texts = list.value.as_slice();
    if texts.is_empty() {
        never(list, "an empty list", scope);
        return None;
    }
    let read: Vec<T> = texts.iter().filter_map(|text| read(&text.with(&text.value), scope)).collect();
    (read.len() == texts.len()).then_some(read)
}

fn never<T>(place: &At<T>, what: &str, scope: &Scope<'_>) {
    scope.problem(place.span.clone(), format!("{what} matches nothing, so the rule would never match"));
}

fn method(name: &At<&str>, scope: &Scope<'_>) -> Option<Method> {
    let text = name.value;
    let near = did_you_mean(text, METHODS);
    let message = match Method::from_bytes(text.as_bytes()) {
        Err(_) => format!("`{text}` is no method"),
        // Methods are compared by their letters, so it would never match.
        Ok(_) if text.bytes().any(|byte| byte.is_ascii_lowercase()) => {
            format!("`{text}` is no method: methods are written in capitals")
        }
        Ok(_) if !METHODS.contains(&text) && slipped(text) => format!("`{text}` is no method"),
        Ok(method) => return Some(method),
    };
    scope.problem_with(name.span.clone(), message, near);
    None
}

/// Whether it is meant to be a method, and not a path whose slash was forgotten.
fn is_method(text: &str) -> bool {
    let has_capitals = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    has_capitals || nearest(text, METHODS).is_some()
}

/// Whether it is one of the methods but for one slip. Any other may be the application's own.
fn slipped(text: &str) -> bool {
    METHODS.iter().any(|method| strsim::damerau_levenshtein(text, method) == 1)
}

fn path(path: &At<&str>, scope: &Scope<'_>) -> Option<String> {
    let text = path.value;
    if let Some(at) = text.find(['?', '#']) {
        let message = format!("the path `{text}` would never match: a path ends before `{}`", &text[at..=at]);
        scope.problem_with(path.span.clone(), message, format!("did you mean `{}`?", &text[..at]));
        return None;
    }
    // The rule that is being made may have other faults, so one that has none is asked.
    match Rule::new("path", Quota::per_second(1)).on_path(text).check() {
        Ok(()) => return Some(text.to_owned()),
        Err(ConfigError::Path { reason, .. }) => {
            scope.problem_with(
                path.span.clone(),
                format!("the path `{text}` cannot be used: {reason}"),
                axum(text),
            );
        }
        Err(other) => scope.problem(path.span.clone(), other.to_string()),
    }
    None
}

/// The path with parameters as axum writes them, if they were written as other frameworks do.
fn axum(path: &str) -> Option<String> {
    let segment = |text: &str| match (text.strip_prefix(':'), text.strip_prefix('*')) {
        (Some(name), _) if !name.is_empty() => format!("{{{name}}}"),
        (_, Some("" | "*")) => "{*rest}".to_owned(),
        (_, Some(name)) => format!("{{*{name}}}"),
        _ => text.to_owned(),
    };
    let meant = path.split('/').map(segment).collect::<Vec<_>>().join("/");
    let meant = if meant.starts_with('/') { meant } else { format!("/{meant}") };
    let works = meant != path && Rule::new("path", Quota::per_second(1)).on_path(&*meant).check().is_ok();
    works.then(|| format!("did you mean `{meant}`?"))
}
