//! Names of fields that an upstream may take for others.

use http::HeaderMap;
use http::header::TRAILER;

use super::hop_by_hop::tokens;

/// Takes off fields with `_` in their names, and does not announce trailers of such names.
///
/// To an upstream that makes variables of fields, as CGI and WSGI do, `_` and `-` are the same. What a rule counts by, or what
/// the gateway writes, could be said there by a name that is neither counted nor taken off.
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

/// Trailers go on only if they are announced, and some upstreams put them with the fields.
pub(super) fn remove_trailers(headers: &mut HeaderMap, is_unwanted: impl Fn(&str) -> bool) {
    let is_unwanted = |name: &[u8]| is_unwanted(&String::from_utf8_lossy(name).to_ascii_lowercase());
    if tokens(headers, &TRAILER).any(is_unwanted) {
        headers.remove(TRAILER);
    }
}
