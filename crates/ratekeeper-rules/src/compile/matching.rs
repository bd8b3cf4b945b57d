//! Which requests a rule matches.

use http::Method;
use ratekeeper::{ConfigError, Quota, Rule};

use crate::model::{MatchSpec, MatchTable};
use crate::read::{At, OneOrMany};
use crate::scope::Scope;
use crate::suggest::{did_you_mean, nearest};

/// What requests are matched by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A method, whatever the path.
    Method(Method),
    /// A path, and optionally a method.
    Path(Option<Method>, String),
}

/// The methods of HTTP and of WebDAV. Others are possible.
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

impl Target {
    /// The rule, matching this as well.
    pub(super) fn add_to(self, rule: Rule) -> Rule {
        match self {
            Self::Method(method) => rule.on_method(method),
            Self::Path(Some(method), path) => rule.on(method, path),
            Self::Path(None, path) => rule.on_path(path),
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
            MatchSpec::Text(text) => {
                from_text(&spec.with(text.trim_matches(' ')), scope).map(|target| vec![target])
            }
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
    let method = |name| self::method(&text.with(name), scope);
    let path = |path| self::path(&text.with(path), scope);
    match text.value.split_once(' ') {
        // A path can have a space in it.
        _ if text.value.starts_with('/') => Some(Target::Path(None, path(text.value)?)),
        Some((name, rest)) => {
            // Both are checked, even if one of them is wrong.
            let (method, path) = (method(name), path(rest.trim_start_matches(' ')));
            Some(Target::Path(Some(method?), path?))
        }
        None if is_method(text.value) => method(text.value).map(Target::Method),
        None => Some(Target::Path(None, path(text.value)?)),
    }
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
    match (methods, paths) {
        (None, None) => None,
        (Some(methods), None) => Some(methods?.into_iter().map(Target::Method).collect()),
        (None, Some(paths)) => Some(paths?.into_iter().map(|path| Target::Path(None, path)).collect()),
        (Some(methods), Some(paths)) => {
            let (methods, paths) = (methods?, paths?);
            let on = |method: Method| {
                paths.iter().map(move |path| Target::Path(Some(method.clone()), path.clone()))
            };
            Some(methods.into_iter().flat_map(on).collect())
        }
    }
}

/// Each of these texts, parsed, if all of them are valid.
pub(super) fn each<T>(
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

/// The paths that a rule does not match.
pub(super) fn exceptions(paths: &At<OneOrMany<String>>, scope: &Scope<'_>) -> Option<Vec<String>> {
    if paths.value.as_slice().is_empty() {
        let help = "without `except` a rule has no exceptions".to_owned();
        scope.problem_with(paths.span.clone(), "an empty list names no path", help);
        return None;
    }
    each(paths, scope, |path, scope| match path.value.split_once(char::is_whitespace) {
        Some((method, rest)) if is_method(method) && !rest.trim_start().is_empty() => {
            let help = format!("write `{}`, which is whatever the method", rest.trim_start());
            scope.problem_with(path.span.clone(), "an exception is a path, without a method", help);
            None
        }
        _ => self::path(path, scope),
    })
}

fn never<T>(place: &At<T>, what: &str, scope: &Scope<'_>) {
    scope.problem(place.span.clone(), format!("{what} matches nothing, so the rule would never match"));
}

fn method(name: &At<&str>, scope: &Scope<'_>) -> Option<Method> {
    let text = name.value;
    let near = did_you_mean(text, METHODS);
    let message = match Method::from_bytes(text.as_bytes()) {
        Err(_) => format!("`{text}` is no method"),
        // Methods are compared case-sensitively, so it would never match.
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

/// Whether it is one typo away from a known method. Any other may be a custom one.
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
    // Checked on a fresh rule, since the one being built may have other faults.
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

/// The path with parameters in axum's syntax, if they were written in that of other frameworks.
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
