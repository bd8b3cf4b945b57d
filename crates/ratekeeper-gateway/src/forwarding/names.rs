//! Field names that an upstream may take for others.

use http::HeaderMap;
use http::header::TRAILER;

use super::hop_by_hop::tokens;

/// Removes fields with `_` in their names, and the announcement of trailers with such names.
///
/// To an upstream that turns fields into variables, as CGI and WSGI do, `_` and `-` are the same. Without
/// this, a field that a rule counts by, or that the gateway writes, could be set under a name that is neither
/// counted nor removed.
pub(super) fn strip_disguised(headers: &mut HeaderMap) {
    remove(headers, |name| name.contains('_'));
    remove_trailers(headers, |name| name.contains('_'));
}

pub(super) fn remove(headers: &mut HeaderMap, is_unwanted: impl Fn(&str) -> bool) {
    let names: Vec<_> = headers.keys().filter(|name| is_unwanted(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Trailers are forwarded only if they are announced, and some upstreams merge them with the fields.
pub(super) fn remove_trailers(headers: &mut HeaderMap, is_unwanted: impl Fn(&str) -> bool) {
    let is_unwanted = |name: &[u8]| is_unwanted(&String::from_utf8_lossy(name).to_ascii_lowercase());
    if tokens(headers, &TRAILER).any(is_unwanted) {
        headers.remove(TRAILER);
    }
}
