//! What a response reports of the decision: header fields, and the decision itself in the extensions.

use std::sync::Arc;

use http::{Extensions, Response, StatusCode};
use ratekeeper_core::{Decision, RuleName};

use crate::headers::legacy::REMAINING;
use crate::headers::{HeaderFields, Lines, Trio};
use crate::limiter::ShadowReport;
use crate::response_head::ResponseHead;
use crate::settle::Settling;

/// What the response to a forwarded request will report.
///
/// The report of one rule is stored inline, because most requests have just that. Everything else is boxed,
/// because the future that contains this is moved for every request.
pub(crate) enum Told {
    Nothing,
    One(One),
    More(Box<More>),
}

impl Told {
    pub(crate) fn more(more: More) -> Self {
        Self::More(Box::new(more))
    }
}

/// The report of one rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct One {
    pub(crate) rule: RuleName,
    pub(crate) trio: Trio,
    pub(crate) shown: Shown,
}

/// Any other report.
pub(crate) struct More {
    pub(crate) decision: Decision,
    pub(crate) shown: Shown,
    pub(crate) lines: Lines,
    /// Settled when there is a response.
    pub(crate) settling: Option<Arc<dyn Settling>>,
    /// The outcomes of rules in shadow, if they are to be shown.
    pub(crate) shadows: Option<(HeaderFields, Arc<ShadowReport>)>,
}

/// How a decision is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// In the three `X-RateLimit` fields.
    pub(crate) legacy: bool,
    /// In the extensions.
    pub(crate) exposed: bool,
}

impl One {
    /// Writes it to a response.
    #[inline(always)]
    pub(crate) fn write<B>(&self, response: &mut Response<B>) {
        // Usually nothing inside has reported anything.
        if response.extensions().is_empty() && !is_429(response) {
            if self.shown.legacy {
                self.trio.write(response.headers_mut());
            }
            if self.shown.exposed {
                self.expose(response.extensions_mut());
            }
        } else {
            self.write_beside(response);
        }
    }

    /// Writes it, respecting what an inner layer or the handler may have reported.
    #[inline(never)]
    fn write_beside<B>(&self, response: &mut Response<B>) {
        let denied_within = denied_within(response);
        if self.shown.legacy && !denied_within {
            write_trio(&self.trio, response);
        }
        if self.shown.exposed && !denied_within {
            self.expose(response.extensions_mut());
        }
    }

    #[inline(always)]
    fn expose(&self, extensions: &mut Extensions) {
        expose(extensions, || Decision::one(self.trio.at, self.rule, self.trio.outcome));
    }
}

impl More {
    /// Writes it to a response.
    #[inline(never)]
    pub(crate) fn write<B>(self, response: &mut Response<B>) {
        if let Some(settling) = &self.settling {
            settling.answered(&ResponseHead::from(&*response));
        }
        let denied_within = denied_within(response);
        if let Some((fields, report)) = &self.shadows {
            tell_shadows(&self.decision, *fields, report, denied_within, response);
        } else if let (true, Some(trio)) = (self.shown.legacy && !denied_within, Trio::of(&self.decision)) {
            write_trio(&trio, response);
        }
        self.lines.write(response.headers_mut());
        if self.shown.exposed && !denied_within {
            expose(response.extensions_mut(), || self.decision);
        }
    }
}

/// Writes the fields of a decision as if the shown rules in shadow had been asked, too. IETF fields are
/// written only for those.
#[cold]
fn tell_shadows<B>(
    decision: &Decision,
    fields: HeaderFields,
    report: &ShadowReport,
    denied_within: bool,
    response: &mut Response<B>,
) {
    let mut all = decision.clone();
    report.said(|rules, planned, shadow| {
        let policy = rules.rule(planned.rule).policy(&planned.quota);
        fields.lines(shadow, std::iter::once(policy)).write(response.headers_mut());
        for (rule, outcome) in shadow.outcomes() {
            all.push_at(rule, *outcome, shadow.at());
        }
    });
    if let (true, Some(trio)) = (fields.legacy && !denied_within, Trio::of(&all)) {
        write_trio(&trio, response);
    }
}

/// Writes the three fields, unless the request was denied inside without an exposed decision: the figures of
/// a rule that admitted it would be taken for the reason.
#[inline(always)]
fn write_trio<B>(trio: &Trio, response: &mut Response<B>) {
    let tells_itself = is_429(response) && response.headers().contains_key(REMAINING);
    if !tells_itself && response.extensions().get::<Denied>().is_none() {
        trio.write(response.headers_mut());
    }
}

#[inline(always)]
fn is_429<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::TOO_MANY_REQUESTS
}

/// Marks, in the extensions, a response by which a layer denies, if nothing else shows that.
#[derive(Clone, Copy, Debug)]
struct Denied;

/// Lets outer layers know that the response is a denial.
#[inline]
pub(crate) fn tell_denial<B>(response: &mut Response<B>, decision: Decision, shown: Shown) {
    if shown.exposed {
        expose(response.extensions_mut(), || decision);
    } else if !(shown.legacy && is_429(response)) {
        response.extensions_mut().insert(Denied);
    }
}

/// Whether an inner layer has denied. Its decision is then the reason for the response.
#[inline]
fn denied_within<B>(response: &Response<B>) -> bool {
    response.extensions().get().is_some_and(|inner: &Decision| !inner.is_admitted())
}

/// Puts a decision into the extensions of a request or a response, replacing an existing one.
///
/// `insert` is avoided, because it moves the decision and looks for a previous one to return.
#[inline(always)]
pub(crate) fn expose(extensions: &mut Extensions, decision: impl FnOnce() -> Decision) {
    match extensions.get_mut() {
        Some(place) => *place = decision(),
        None => _ = extensions.get_or_insert_with(decision),
    }
}
