//! The header fields of a 429 as it mostly is, ready to be filled in.

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Fields;
use crate::headers::legacy::{LIMIT, REMAINING, RESET};
use crate::headers::{limit, number, time, wait};

/// The fields of a 429. Copying them and filling in the figures is quicker than finding a place for each.
pub(super) struct Template {
    fields: HeaderMap,
    /// What each value is, in the order in which the map has them.
    values: Vec<Value>,
}

#[derive(Clone, Copy)]
enum Value {
    Constant,
    RetryAfter,
    Limit,
    Remaining,
    Reset,
}

/// A field that is in the way of none of these, for which the server has to make room in any case.
const SPARE: HeaderName = CONTENT_LENGTH;

impl Template {
    pub(super) fn new(content_type: &'static str) -> Self {
        let blank = HeaderValue::from_static("");
        let mut fields = HeaderMap::with_capacity(8);
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for name in [RETRY_AFTER, LIMIT, REMAINING, RESET, SPARE] {
            fields.insert(name, blank.clone());
        }
        let values = fields.keys().map(|name| match name {
            name if name == RETRY_AFTER => Value::RetryAfter,
            name if name == LIMIT => Value::Limit,
            name if name == REMAINING => Value::Remaining,
            name if name == RESET => Value::Reset,
            _ => Value::Constant,
        });
        let values = values.collect();
        Self { fields, values }
    }

    /// The fields of a 429, if these are those that it mostly has.
    pub(super) fn fill(&self, fields: &Fields) -> Option<HeaderMap> {
        let (retry_after, trio) = (fields.retry_after?, fields.trio.as_ref()?);
        let mut filled = self.fields.clone();
        for (value, place) in self.values.iter().zip(filled.values_mut()) {
            match value {
                Value::Constant => {}
                Value::RetryAfter => *place = wait(retry_after),
                Value::Limit => *place = limit(trio.limit),
                Value::Remaining => *place = number(trio.remaining.into()),
                Value::Reset => *place = time(trio.reset),
            }
        }
        // A copy has room for what it holds and no more. This makes room for one.
        filled.remove(SPARE);
        Some(filled)
    }
}
