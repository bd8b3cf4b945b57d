//! Paths with parameters, in axum's pattern language: `/users/{id}`, `/files/{*rest}`.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::percent_decode;

/// A path with parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: Box<str>,
    segments: Vec<Segment>,
}

/// Displays the pattern as it was written.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// This text, percent-decoded.
    Fixed(Vec<u8>),
    /// Any one segment.
    Param(String),
    /// The rest of the path, which must not be empty.
    Rest(String),
}

/// What is wrong with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternProblem {
    NoSlash,
    Braces,
    RestNotLast,
    Duplicate,
    Sigil,
    Query,
    Space,
}

impl fmt::Display for PatternProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSlash => "a path begins with `/`",
            Self::Braces => {
                "a parameter is a whole segment, such as `{id}` or `{*rest}`, with a name; \
                 braces that are meant literally are doubled"
            }
            Self::RestNotLast => "`{*rest}` takes all that follows, so it comes last",
            Self::Duplicate => "two parameters have the same name",
            Self::Sigil => {
                "a parameter is written `{id}` or `{*rest}`, and no longer `:id` or `*rest`; a segment that \
                 begins with `:` or `*` is written with `%3A` or `%2A`"
            }
            Self::Query => {
                "a path ends before `?` and `#`; one that has them is written with `%3F` or `%23`, and the query is \
                 for `Rule::when` to look at"
            }
            Self::Space => {
                "a path neither begins nor ends with white space; one that does is written with `%20` or the like"
            }
        })
    }
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Self, PatternProblem> {
        if text.trim() != text {
            return Err(PatternProblem::Space);
        }
        let path = text.strip_prefix('/').ok_or(PatternProblem::NoSlash)?;
        // Such a path would never match, so nobody would be limited.
        if path.contains(['?', '#']) {
            return Err(PatternProblem::Query);
        }
        let mut segments: Vec<Segment> = Vec::new();
        for segment in path.split('/') {
            if matches!(segments.last(), Some(Segment::Rest(_))) {
                return Err(PatternProblem::RestNotLast);
            }
            let segment = Segment::parse(segment)?;
            if segment.name().is_some() && segments.iter().any(|other| other.name() == segment.name()) {
                return Err(PatternProblem::Duplicate);
            }
            segments.push(segment);
        }
        Ok(Self { text: text.into(), segments })
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The names of its parameters.
    pub(crate) fn params(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(Segment::name)
    }

    /// Whether it takes the rest of a path, however long.
    pub(crate) fn has_rest(&self) -> bool {
        matches!(self.segments.last(), Some(Segment::Rest(_)))
    }

    /// Whether it has any parameters.
    pub(crate) fn has_params(&self) -> bool {
        self.params().next().is_some()
    }

    /// Whether a path matches.
    pub(crate) fn matches(&self, path: &str) -> bool {
        self.walk(path, |_, _| {}).is_some()
    }

    /// The value of the parameter of this name, if the path matches.
    pub(crate) fn param<'a>(&self, path: &'a str, name: &str) -> Option<Cow<'a, [u8]>> {
        let mut value = None;
        self.walk(path, |segment, text| {
            if segment.name() == Some(name) {
                value = Some(text);
            }
        })?;
        value.map(decode)
    }

    /// Calls `f` with each segment and its part of the path. `None` if the path does not match.
    fn walk<'a>(&self, path: &'a str, mut f: impl FnMut(&Segment, &'a str)) -> Option<()> {
        let mut rest = Some(path.strip_prefix('/')?);
        for segment in &self.segments {
            let all = rest?;
            let (text, after) = match all.split_once('/') {
                Some((text, after)) => (text, Some(after)),
                None => (all, None),
            };
            let (text, after, fits) = match segment {
                Segment::Fixed(fixed) => (text, after, *decode(text) == **fixed),
                // A parameter at the end must not be empty. Any other may be, as for axum's router.
                Segment::Param(_) => (text, after, !text.is_empty() || after.is_some()),
                Segment::Rest(_) => (all, None, !all.is_empty()),
            };
            if !fits {
                return None;
            }
            f(segment, text);
            rest = after;
        }
        rest.is_none().then_some(())
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Self, PatternProblem> {
        if let Some(name) = text.strip_prefix('{').filter(|rest| !rest.starts_with('{')) {
            let name = name.strip_suffix('}').ok_or(PatternProblem::Braces)?;
            let (name, make): (_, fn(String) -> Self) = match name.strip_prefix('*') {
                Some(name) => (name, Self::Rest),
                None => (name, Self::Param),
            };
            if name.is_empty() || name.contains(['{', '}', '*']) {
                return Err(PatternProblem::Braces);
            }
            return Ok(make(name.to_owned()));
        }
        // Taken literally, it would match nothing that was intended, so nobody would be limited.
        if text.starts_with([':', '*']) {
            return Err(PatternProblem::Sigil);
        }
        let literal = text.replace("{{", "\0").replace("}}", "\u{1}");
        if literal.contains(['{', '}']) {
            return Err(PatternProblem::Braces);
        }
        let literal = literal.replace('\0', "{").replace('\u{1}', "}");
        Ok(Self::Fixed(decode(&literal).into_owned()))
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Fixed(_) => None,
            Self::Param(name) | Self::Rest(name) => Some(name),
        }
    }
}

/// A part of a path, percent-decoded: different spellings of one path are the same path.
pub(crate) fn decode(text: &(impl AsRef<[u8]> + ?Sized)) -> Cow<'_, [u8]> {
    let bytes = text.as_ref();
    // Most have nothing to decode, which is quick to check.
    match bytes.contains(&b'%') {
        true => percent_decode(bytes).into(),
        false => Cow::Borrowed(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(pattern: &str, path: &str, name: &str) -> Option<String> {
        let pattern = Pattern::parse(pattern).unwrap();
        pattern.param(path, name).map(|value| String::from_utf8(value.into_owned()).unwrap())
    }

    #[test]
    fn parameters_are_found_by_name_and_percent_decoded() {
        assert_eq!(param("/users/{id}", "/users/7", "id").as_deref(), Some("7"));
        assert_eq!(param("/users/{id}", "/users/%61b", "id").as_deref(), Some("ab"));
        assert_eq!(param("/{a}/x/{b}", "/1/x/2", "b").as_deref(), Some("2"));
        assert_eq!(param("/files/{*path}", "/files/a/b%2Fc", "path").as_deref(), Some("a/b/c"));
        assert_eq!(param("/users/{id}", "/users/7", "name"), None);
    }

    #[test]
    fn a_path_that_does_not_match_has_no_parameters() {
        for (pattern, path) in [
            ("/users/{id}", "/users"),
            ("/users/{id}", "/users/"),
            ("/users/{id}", "/users/7/"),
            ("/users/{id}", "/posts/7"),
            ("/users/{id}", "users/7"),
            ("/users/{*id}", "/users/"),
            ("/{id}/x", "/7"),
        ] {
            assert_eq!(param(pattern, path, "id"), None, "{pattern} {path}");
            assert!(!Pattern::parse(pattern).unwrap().matches(path), "{pattern} {path}");
        }
        assert_eq!(param("/{id}/x", "//x", "id").as_deref(), Some(""));
    }

    #[test]
    fn a_bad_pattern_is_refused() {
        for (text, problem) in [
            ("users", PatternProblem::NoSlash),
            ("", PatternProblem::NoSlash),
            ("/{", PatternProblem::Braces),
            ("/{}", PatternProblem::Braces),
            ("/{*}", PatternProblem::Braces),
            ("/a{id}", PatternProblem::Braces),
            ("/{id}b", PatternProblem::Braces),
            ("/{*rest}/x", PatternProblem::RestNotLast),
            ("/{a}/{a}", PatternProblem::Duplicate),
            ("/users/:id", PatternProblem::Sigil),
            ("/files/*", PatternProblem::Sigil),
            ("/search?q=1", PatternProblem::Query),
            ("/page#top", PatternProblem::Query),
            ("/login ", PatternProblem::Space),
            ("/login\t", PatternProblem::Space),
            (" /login", PatternProblem::Space),
            ("/ ", PatternProblem::Space),
        ] {
            assert_eq!(Pattern::parse(text), Err(problem), "{text}");
        }
        let doubled = Pattern::parse("/{{id}}").unwrap();
        assert_eq!(doubled.segments(), [Segment::Fixed(b"{id}".to_vec())]);
        let literal = Pattern::parse("/%3Aid").unwrap();
        assert_eq!(literal.segments(), [Segment::Fixed(b":id".to_vec())]);
        let literal = Pattern::parse("/log in/x%20").unwrap();
        assert_eq!(literal.segments(), [b"log in", &b"x "[..]].map(|text| Segment::Fixed(text.to_vec())));
        let literal = Pattern::parse("/a%3Fb").unwrap();
        assert_eq!(literal.segments(), [Segment::Fixed(b"a?b".to_vec())]);
    }
}
