//! The header fields of a typical denial, ready to be filled in.

use std::sync::LazyLock;

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use ratekeeper_core::{Outcome, Timestamp};

use crate::layer::headers::legacy::{LIMIT, REMAINING, RESET};
use crate::layer::headers::number;

/// The fields to be filled in, in the order of the map.
const BLANKS: [HeaderName; 5] = [RETRY_AFTER, LIMIT, REMAINING, RESET, CONTENT_TYPE];
/// Reserves room for the one field that a server adds to nearly every response.
const SPARE: HeaderName = CONTENT_LENGTH;

/// The fields of a denial, if a map has the order in which it was filled. None is guaranteed, but there is
/// one, and a copy has the same.
static FIELDS: LazyLock<Option<HeaderMap>> = LazyLock::new(|| {
    let mut fields = HeaderMap::with_capacity(8);
    for name in BLANKS {
        fields.insert(name, HeaderValue::from_static(""));
    }
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(SPARE, HeaderValue::from_static(""));
    let in_order = fields.keys().zip(&BLANKS).all(|(name, blank)| name == blank);
    in_order.then_some(fields)
});

/// Makes these the fields of a response that has nothing but a content type, as most denials have. Copying a
/// map and filling in the figures takes half as long as inserting each field. Returns whether it did.
pub(super) fn fill(headers: &mut HeaderMap, retry_after: u64, outcome: &Outcome, at: Timestamp) -> bool {
    let (1, Some(fields)) = (headers.len(), &*FIELDS) else { return false };
    let Some((name, content_type)) = headers.iter_mut().next() else { return false };
    if *name != CONTENT_TYPE {
        return false;
    }
    let content_type = std::mem::replace(content_type, HeaderValue::from_static(""));
    let figures = [retry_after, outcome.limit().into(), outcome.remaining().into()];
    let reset = outcome.reset_at(at).as_secs_ceil();
    let values = figures.into_iter().chain([reset]).map(number).chain([content_type]);
    *headers = fields.clone();
    headers.values_mut().zip(values).for_each(|(place, value)| *place = value);
    // A copy has room for exactly what it holds. Removing the spare field makes room for one more.
    headers.remove(SPARE);
    true
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratekeeper_core::{Decision, Retry, RuleName};

    use super::*;
    use crate::layer::rejection::{RejectionReason, write_fields};

    fn denied() -> Decision {
        let (reset, wait) = (Duration::from_secs(3), Duration::from_secs(4));
        let outcome = Outcome::denied(1, 2, reset, wait, Retry::After(wait));
        Decision::one(Timestamp::UNIX_EPOCH, RuleName::new("rule").unwrap(), outcome)
    }

    /// The fields that are added to these.
    fn added(mut headers: HeaderMap) -> HeaderMap {
        let decision = denied();
        write_fields(&RejectionReason::Limited(&decision), Some(&decision), &mut headers);
        headers
    }

    #[test]
    fn the_template_has_the_same_fields_as_any_other_response() {
        assert!(FIELDS.is_some(), "otherwise everything still works, but denials take longer");
        let mut plain = HeaderMap::new();
        plain.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let mut other = plain.clone();
        other.insert("x-other", HeaderValue::from_static("1"));
        let mut one_by_one = added(other);
        one_by_one.remove("x-other");
        let filled = added(plain);
        assert_eq!(filled, one_by_one);
        assert_eq!(
            (filled.len(), &filled[RETRY_AFTER], &filled[LIMIT]),
            (6, &"4".parse().unwrap(), &"1".parse().unwrap())
        );
        assert_eq!((&filled[REMAINING], &filled[RESET]), (&"2".parse().unwrap(), &"3".parse().unwrap()));
    }
}
