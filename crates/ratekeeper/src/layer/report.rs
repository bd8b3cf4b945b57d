//! What a response reports of the decision: header fields, and the decision itself in the extensions.

use std::sync::Arc;

use http::{Extensions, Response, StatusCode};
use ratekeeper_core::{Decision, Timestamp};

use super::headers::legacy::{self, REMAINING};
use super::headers::{HeaderFields, Lines};
use crate::limiter::ShadowReport;
use crate::limiter::settle::Account;
use crate::request::ResponseHead;

/// What the response to a forwarded request reports.
pub(super) struct Report {
    /// Without outcomes if nothing was decided.
    decision: Decision,
    legacy: bool,
    exposed: bool,
    /// Boxed, because few requests have more, and the future that contains this is moved for every request.
    more: Option<Box<More>>,
}

struct More {
    /// The IETF fields.
    lines: Lines,
    /// Settled when there is a response.
    account: Option<Arc<Account>>,
    /// The outcomes of rules in shadow, if they are shown.
    shadows: Option<(HeaderFields, Arc<ShadowReport>)>,
}

impl Report {
    pub(super) const NOTHING: Self =
        Self { decision: Decision::new(Timestamp::UNIX_EPOCH), legacy: false, exposed: false, more: None };

    #[inline]
    pub(super) const fn new(decision: Decision, fields: HeaderFields, exposed: bool) -> Self {
        Self { decision, legacy: fields.legacy, exposed, more: None }
    }

    /// Reports more than the three fields and the decision.
    #[cold]
    pub(super) fn with(
        self,
        fields: HeaderFields,
        lines: Lines,
        account: Option<Arc<Account>>,
        shadows: Option<Arc<ShadowReport>>,
    ) -> Self {
        let shadows = shadows.map(|shadows| (fields, shadows));
        Self { more: Some(Box::new(More { lines, account, shadows })), ..self }
    }

    /// Writes it to a response, respecting what an inner layer or the handler has reported.
    pub(super) fn write<B>(&mut self, response: &mut Response<B>) {
        let more = self.more.take();
        if let Some(account) = more.as_ref().and_then(|more| more.account.as_ref()) {
            account.answered(&ResponseHead::from(&*response));
        }
        // An inner layer has denied. Its decision is then the reason for the response.
        let denied_within = response.extensions().get().is_some_and(|inner: &Decision| !inner.is_admitted());
        if let Some(more) = &more {
            // At once for all fields, so that the map grows once.
            let _ = response.headers_mut().try_reserve(more.lines.fields() + 3);
        }
        let shadows = more.as_ref().and_then(|more| more.shadows.as_ref());
        if let Some((fields, shadows)) = shadows {
            write_shadows(&self.decision, *fields, shadows, denied_within, response);
        } else if self.legacy && !denied_within {
            write_legacy(&self.decision, response);
        }
        if let Some(more) = more {
            more.lines.write(response.headers_mut());
        }
        if self.exposed && !denied_within && self.decision.outcomes().len() > 0 {
            let decision = std::mem::replace(&mut self.decision, Decision::new(Timestamp::UNIX_EPOCH));
            expose(response.extensions_mut(), decision);
        }
    }
}

/// Writes the fields of a decision as if the shown rules in shadow had been asked, too. IETF fields are
/// written only for those.
#[cold]
fn write_shadows<B>(
    decision: &Decision,
    fields: HeaderFields,
    shadows: &ShadowReport,
    denied_within: bool,
    response: &mut Response<B>,
) {
    let mut all = decision.clone();
    shadows.for_each(|rules, planned, shadow| {
        let policy = rules.rule(planned.rule).policy(&planned.quota);
        fields.lines(shadow, || std::iter::once(policy)).write(response.headers_mut());
        for (rule, outcome) in shadow.outcomes() {
            all.push_at(rule, *outcome, shadow.at());
        }
    });
    if fields.legacy && !denied_within {
        write_legacy(&all, response);
    }
}

/// Writes the three fields, unless the request was denied inside without an exposed decision: the figures of
/// a rule that admitted it would be taken for the reason.
fn write_legacy<B>(decision: &Decision, response: &mut Response<B>) {
    let reports_itself = is_429(response) && response.headers().contains_key(REMAINING);
    if !reports_itself && response.extensions().get::<Denied>().is_none() {
        legacy::write(decision, response.headers_mut());
    }
}

fn is_429<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::TOO_MANY_REQUESTS
}

/// Marks, in the extensions, a response by which a layer denies, if nothing else shows that.
#[derive(Clone, Copy, Debug)]
struct Denied;

/// Lets outer layers know that the response is a denial.
pub(super) fn mark_denial<B>(
    response: &mut Response<B>,
    decision: Decision,
    fields: HeaderFields,
    exposed: bool,
) {
    if exposed {
        expose(response.extensions_mut(), decision);
    } else if !(fields.legacy && is_429(response)) {
        response.extensions_mut().insert(Denied);
    }
}

/// Puts a decision into the extensions of a request or a response, replacing an existing one.
pub(super) fn expose(extensions: &mut Extensions, decision: Decision) {
    extensions.insert(decision);
}
