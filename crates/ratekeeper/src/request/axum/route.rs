//! The values of a route's parameters.

use std::borrow::Cow;

use crate::request::pattern::decode;

/// The value of the parameter of this name in a path that the route has matched.
///
/// The router has accepted the route, so it need not be one that a rule could have: a segment may begin with
/// `:`, and there may be text before a parameter. If two parameters have the same name, it is not clear which
/// of them counts, so neither does.
pub(super) fn param<'a>(route: &str, path: &'a str, name: &str) -> Option<Cow<'a, [u8]>> {
    let (mut rest, mut found) = (path.strip_prefix('/')?, None);
    for segment in route.strip_prefix('/')?.split('/') {
        let (text, after) = rest.split_once('/').unwrap_or((rest, ""));
        if let Some((before, param)) = parameter(segment) {
            let (param, value) = match param.strip_prefix('*') {
                Some(param) => (param, rest),
                None => (&*param, text),
            };
            if param == name && found.replace(value.strip_prefix(&*before)?).is_some() {
                return None;
            }
        }
        rest = after;
    }
    found.map(decode)
}

/// The text before the parameter of a segment, and the parameter's name. `None` if the segment has no
/// parameter. Doubled braces are text.
fn parameter(segment: &str) -> Option<(String, String)> {
    let (mut before, mut name) = (String::new(), None::<String>);
    let mut chars = segment.chars().peekable();
    while let Some(c) = chars.next() {
        let is_text = !matches!(c, '{' | '}') || chars.next_if_eq(&c).is_some();
        match &mut name {
            None if is_text => before.push(c),
            None => name = Some(String::new()),
            Some(_) if c == '}' && !is_text => break,
            Some(name) => name.push(c),
        }
    }
    Some((before, name?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(route: &str, path: &str, name: &str) -> Option<String> {
        param(route, path, name).map(|value| String::from_utf8(value.into_owned()).unwrap())
    }

    #[test]
    fn a_parameter_is_found_in_whatever_a_router_takes() {
        for (route, path) in [
            ("/users/{id}", "/users/7"),
            ("/users/{id}/x", "/users/7/x"),
            ("/{a}/{id}", "/1/7"),
            ("/{id}", "/%37"),
            ("/{*id}", "/7"),
            ("/v1/:batch/{id}", "/v1/:batch/7"),
            ("/*/{id}", "/*/7"),
            ("/user_{id}", "/user_7"),
            ("/user_{id}/about", "/user_7/about"),
            ("/src{*id}", "/src7"),
            ("/{{a}}/{id}", "/{a}/7"),
            ("/{{{id}", "/{7"),
            ("/%61/{id}", "/%61/7"),
        ] {
            assert_eq!(value(route, path, "id").as_deref(), Some("7"), "{route}");
            assert_eq!(value(route, path, "other"), None, "{route}");
        }
        assert_eq!(value("/a/{*rest}", "/a/b/c%2Fd", "rest").as_deref(), Some("b/c/d"));
        assert_eq!(value("/x_{*rest}", "/x_b/c", "rest").as_deref(), Some("b/c"));
        assert_eq!(value("/{x}/{y}", "//b", "x").as_deref(), Some(""));
    }

    #[test]
    fn what_is_there_twice_or_does_not_fit_is_no_parameter() {
        assert_eq!(value("/{id}/{id}", "/7/8", "id"), None);
        assert_eq!(value("/{{id}}", "/{id}", "id"), None);
        assert_eq!(value("/user_{id}", "/other", "id"), None);
        assert_eq!(value("/{id}", "*", "id"), None);
    }
}
