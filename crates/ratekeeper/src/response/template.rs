//! The header fields of a typical 429, ready to be filled in.

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Fields;
use crate::headers::legacy::{LIMIT, REMAINING, RESET};
use crate::headers::wait;

/// The fields of a 429. Copying them and filling in the figures is faster than inserting each one.
pub(super) struct Template {
    fields: HeaderMap,
    /// Whether the map starts with the fields to be filled in, in the order of [`BLANKS`].
    in_order: bool,
}

const BLANKS: [HeaderName; 4] = [RETRY_AFTER, LIMIT, REMAINING, RESET];
/// Reserves room for the one field that a server adds to nearly every response.
const SPARE: HeaderName = CONTENT_LENGTH;

impl Template {
    pub(super) fn new(content_type: &'static str) -> Self {
        let mut fields = HeaderMap::with_capacity(8);
        for name in BLANKS {
            fields.insert(&name, HeaderValue::from_static(""));
        }
        fields.insert(&CONTENT_TYPE, HeaderValue::from_static(content_type));
        fields.insert(&CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert(&SPARE, HeaderValue::from_static(""));
        // A map guarantees no order, but has one, and a copy has the same.
        let in_order = fields.keys().zip(&BLANKS).all(|(name, blank)| name == blank);
        Self { fields, in_order }
    }

    /// Makes these the fields of a response, if they are those of a typical 429.
    #[inline]
    pub(super) fn fill(&self, fields: &Fields, headers: &mut HeaderMap) -> bool {
        let (Some(retry_after), Some(trio), true) = (fields.retry_after, &fields.trio, self.in_order) else {
            return false;
        };
        *headers = self.fields.clone();
        let mut places = headers.values_mut();
        let mut fill = |value| {
            if let Some(place) = places.next() {
                *place = value;
            }
        };
        fill(wait(retry_after));
        fill(trio.limit());
        fill(trio.remaining());
        fill(trio.reset());
        // A copy has room for exactly what it holds. Removing the spare field makes room for one more.
        headers.remove(SPARE);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratekeeper_core::{Outcome, Retry, Timestamp};

    use super::*;
    use crate::headers::Trio;

    #[test]
    fn a_map_keeps_the_order_in_which_it_was_filled() {
        // Otherwise everything still works, but denials take longer.
        assert!(Template::new("text/plain").in_order);
    }

    #[test]
    fn each_figure_is_in_its_place_and_the_spare_one_is_gone() {
        let (reset, wait) = (Duration::from_secs(3), Duration::from_secs(4));
        let outcome = Outcome::denied(1, 2, reset, wait, Retry::After(wait));
        let trio = Trio { at: Timestamp::UNIX_EPOCH, outcome };
        let fields = Fields { retry_after: Some(4), trio: Some(trio) };
        let mut headers = HeaderMap::new();
        assert!(Template::new("text/plain").fill(&fields, &mut headers));
        let mut expected = HeaderMap::new();
        expected.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        fields.write(&mut expected);
        assert_eq!(headers, expected);
        assert_eq!(headers.len(), 6);
    }
}
