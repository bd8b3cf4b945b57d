//! Waiting until there is enough budget.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use ratekeeper_core::{Algorithm, Charge, Decision, MemoryStore, Outcome, Quota, Retry, Store, StoreError};
use smallvec::SmallVec;
use tokio::time::{Instant, timeout, timeout_at};

use super::refusal::Reason;
use super::room::{Ahead, Line, NoRoom, Ticket, Wanted};
use crate::limiter::{Fallback, Limiter, Plan, Planned};

/// How long those ahead who can go are given to do so, when somebody behind them has run out of time.
const MOMENT: Duration = Duration::from_millis(20);

/// How long a request is willing to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// As long as each rule allows.
    OfRules,
    /// This long, whatever the rules allow. `None` means as long as it takes.
    Own(Option<Duration>),
}

/// The result of waiting.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The store's final answer, or what was decided in this process instead.
    Answered { answer: Result<Decision, StoreError>, is_local: bool },
    /// There is no room to wait, or no longer. Contains the store's denial, if it was asked.
    NoRoom(Option<Decision>),
}

/// How far a request has moved up.
enum Moved {
    /// Nobody is ahead.
    ToTheHead,
    /// Those ahead could go, but do not.
    Past,
    /// The time is over. This is the store's answer.
    Nowhere(Result<Decision, StoreError>),
}

/// A request that waits. Resolves with the plan that is to be followed then.
pub(crate) type Turning = Pin<Box<dyn Future<Output = (Plan, Turn)> + Send>>;

impl Patience {
    /// How long to wait for a charge of a plan. `None` means as long as it takes.
    fn with(self, plan: &Plan, planned: &Planned) -> Option<Duration> {
        match self {
            Self::OfRules => Some(plan.rules().rule(planned.rule).hold(&planned.quota)),
            Self::Own(patience) => patience,
        }
    }
}

impl Plan {
    /// The line of a charge.
    fn line(&self, planned: &Planned) -> Line {
        (self.rules().rule(planned.rule).name, planned.key)
    }

    /// The lines of a plan: one for each charge that is waited for.
    fn lines(&self, patience: Patience) -> impl Iterator<Item = (Line, &Planned)> {
        let waited_for = move |planned: &&Planned| patience.with(self, planned) != Some(Duration::ZERO);
        self.entries().iter().filter(waited_for).map(|planned| (self.line(planned), planned))
    }

    /// The outcome of each charge. A decision made in this process has no outcome for some.
    pub(crate) fn outcomes<'a>(
        &'a self,
        decision: &'a Decision,
    ) -> impl Iterator<Item = (&'a Planned, &'a Outcome)> {
        let mut outcomes = decision.outcomes().peekable();
        self.entries().iter().filter_map(move |planned| {
            let name = self.rules().rule(planned.rule).name;
            outcomes.next_if(|(rule, _)| *rule == name).map(|(_, outcome)| (planned, outcome))
        })
    }
}

impl Limiter {
    /// Whether there is already a line for what is planned.
    pub(crate) fn has_line(&self, plan: &Plan, patience: Patience) -> bool {
        self.room().has_line(plan.lines(patience).map(|(line, _)| line))
    }

    /// Whether a plan that was just denied is worth waiting for.
    pub(crate) fn is_worth_waiting(&self, plan: &Plan, patience: Patience, denied: &Decision) -> bool {
        self.can_wait(plan, patience, denied, Duration::ZERO)
    }

    /// Whether a request that has `waited` this long continues to wait.
    fn can_wait(&self, plan: &Plan, patience: Patience, denied: &Decision, waited: Duration) -> bool {
        plan.outcomes(denied).all(|(planned, outcome)| match outcome.retry() {
            None => true,
            Some(Retry::Never) => false,
            Some(Retry::After(wait)) => match patience.with(plan, planned) {
                None => true,
                Some(own) => {
                    // Whoever gets in line where there was just no room is held back for the whole queue.
                    let then = match patience {
                        Patience::Own(_) => behind_the_others(plan, planned),
                        Patience::OfRules => Duration::ZERO,
                    };
                    !own.is_zero() && waited.saturating_add(wait).saturating_add(then) <= own
                }
            },
        })
    }

    /// Waits until what is planned is admitted, or until it is clear that this would take too long. `denied`
    /// is the store's denial, if it was just asked. If it was not, because there is a line, this one goes to
    /// the line's end.
    ///
    /// The call itself joins the line, so the order in which futures are first polled does not matter.
    /// Dropping the future leaves the line.
    pub(crate) fn take_turn(self, plan: Plan, patience: Patience, denied: Option<Decision>) -> Turning {
        let started = Instant::now();
        let ticket = self.room().enter();
        let is_too_long = denied.is_none() && self.is_too_long(&plan, patience);
        if let (Ok(ticket), false) = (&ticket, is_too_long) {
            match &denied {
                Some(denied) => self.stand(ticket, &plan, denied, started),
                None => self.join(ticket, &plan, patience),
            }
        }
        Box::pin(async move {
            let turn = match ticket {
                Ok(ticket) if is_too_long => self.give_up(ticket, &plan, patience, started).await,
                Ok(ticket) if denied.is_some() => self.turn(ticket, &plan, patience, started, denied).await,
                Ok(ticket) => match self.denied_regardless(&plan, patience).await {
                    Some(denied) => Turn::Answered { answer: Ok(denied), is_local: false },
                    None => self.turn(ticket, &plan, patience, started, None).await,
                },
                Err(NoRoom) => Turn::NoRoom(denied),
            };
            (plan, turn)
        })
    }

    /// Joins the end of the lines in which others wait.
    fn join(&self, ticket: &Ticket, plan: &Plan, patience: Patience) {
        ticket.join(plan.lines(patience).map(|(line, planned)| (line, planned.cost)));
    }

    /// Joins the line of the rule that denies for the longest, and no other: a request that waits there must
    /// not keep others waiting that want something else. Records for those behind when it can go.
    fn stand(&self, ticket: &Ticket, plan: &Plan, denied: &Decision, asked: Instant) {
        let longest = denied.retry();
        let is_longest = |outcome: &Outcome| longest.is_some() && outcome.retry() == longest;
        let waited_for = plan.outcomes(denied).filter(|(_, outcome)| is_longest(outcome));
        let mut lines: SmallVec<[(Line, u32); 1]> = SmallVec::new();
        for (planned, _) in waited_for {
            let line = plan.line(planned);
            // A key that is charged twice stands in its line once.
            match lines.iter_mut().find(|(other, _)| *other == line) {
                Some((_, cost)) => *cost = cost.saturating_add(planned.cost),
                None => lines.push((line, planned.cost)),
            }
        }
        ticket.stand_in(&lines);
        if let Some(ready_at) = ready_at(denied, asked) {
            lines.iter().for_each(|(line, _)| ticket.expect(line, ready_at));
        }
    }

    /// The immediate denial of a request that is in line for one rule, but that another rule denies or whose
    /// cost never fits: it must not take the place of those who can go.
    async fn denied_regardless(&self, plan: &Plan, patience: Patience) -> Option<Decision> {
        let can_go = |planned: &Planned| planned.cost <= plan.rules().charge_of(planned).quota.max();
        if matches!(plan.entries(), [only] if can_go(only)) {
            return None;
        }
        let wanted = wanted(plan);
        let refused = self.room().refused(&wanted, Reason::Regardless);
        // The request that got that denial may have been less patient.
        if let Some(denied) = refused.filter(|denied| !self.is_worth_waiting(plan, patience, denied)) {
            return Some(denied);
        }
        let asked = self.room().asking(&wanted);
        // If the store fails, the request asks it again at the head of the line.
        let decision = self.store().peek(&plan.charges()).await.ok()?;
        if decision.is_admitted() || self.is_worth_waiting(plan, patience, &decision) {
            return None;
        }
        self.room().refuse(wanted, Reason::Regardless, &decision, asked);
        Some(decision)
    }

    /// For a request that found too many ahead.
    async fn give_up(&self, ticket: Ticket, plan: &Plan, patience: Patience, started: Instant) -> Turn {
        let wanted = wanted(plan);
        if let Some(denied) = self.room().refused(&wanted, Reason::TooLong) {
            return Turn::Answered { answer: Ok(denied), is_local: false };
        }
        let asked = self.room().asking(&wanted);
        match self.peek_behind(plan, patience, None).await {
            // There is enough for all of them after all.
            Ok(decision) if decision.is_admitted() => {
                self.join(&ticket, plan, patience);
                self.turn(ticket, plan, patience, started, None).await
            }
            answer => {
                if let Ok(denied) = &answer {
                    self.room().refuse(wanted, Reason::TooLong, denied, asked);
                }
                let (answer, is_local) = self.or_here(answer, plan, patience);
                Turn::Answered { answer, is_local }
            }
        }
    }

    /// For a request that has joined its lines.
    async fn turn(
        &self,
        ticket: Ticket,
        plan: &Plan,
        patience: Patience,
        started: Instant,
        mut denied: Option<Decision>,
    ) -> Turn {
        let mut ready_at = denied.as_ref().and_then(|denied| ready_at(denied, started));
        loop {
            let moved = match self.move_up(&ticket, plan, patience, started).await {
                Ok(moved) => moved,
                Err(NoRoom) => return Turn::NoRoom(denied),
            };
            if let (Moved::ToTheHead, Some(ready_at)) = (&moved, ready_at) {
                if let Some(Err(NoRoom)) = until(ready_at, ticket.called()).await {
                    return Turn::NoRoom(denied);
                }
                // An earlier request may have joined from another line meanwhile.
                if !ticket.is_first() {
                    continue;
                }
            }
            ticket.answer_call();
            let asked = Instant::now();
            let (answer, is_local) = match moved {
                Moved::ToTheHead | Moved::Past => match self.held_too_long(plan, patience, started).await {
                    Ok(None) => self.ask(plan, patience).await,
                    Ok(Some(denied)) => return Turn::Answered { answer: Ok(denied), is_local: false },
                    Err(error) => self.or_here(Err(error), plan, patience),
                },
                Moved::Nowhere(answer) => self.or_here(answer, plan, patience),
            };
            match answer {
                Ok(decision)
                    if !decision.is_admitted()
                        && self.can_wait(plan, patience, &decision, started.elapsed()) =>
                {
                    self.stand(&ticket, plan, &decision, asked);
                    ready_at = self::ready_at(&decision, asked);
                    denied = Some(decision);
                }
                answer => return Turn::Answered { answer, is_local },
            }
        }
    }

    /// Waits until nobody is ahead, for no longer than the request is willing to wait.
    async fn move_up(
        &self,
        ticket: &Ticket,
        plan: &Plan,
        patience: Patience,
        started: Instant,
    ) -> Result<Moved, NoRoom> {
        let lines = plan.lines(patience).filter(|(line, _)| ticket.is_in(line));
        let shortest = lines.filter_map(|(_, planned)| patience.with(plan, planned)).min();
        let Some(shortest) = shortest else { return ticket.turn().await.map(|()| Moved::ToTheHead) };
        if let Ok(turn) = timeout_at(after(started, shortest), ticket.turn()).await {
            return turn.map(|()| Moved::ToTheHead);
        }
        match self.peek_behind(plan, patience, Some(ticket)).await {
            // There is enough for all who are ahead as well: it takes only moments, unless one of them is not
            // polled.
            Ok(decision) if decision.is_admitted() => match timeout(MOMENT, ticket.turn()).await {
                Ok(turn) => turn.map(|()| Moved::ToTheHead),
                Err(_) => Ok(Moved::Past),
            },
            answer => Ok(Moved::Nowhere(answer)),
        }
    }

    /// Asks the store. Also returns whether the decision was made in this process instead.
    pub(crate) async fn ask(&self, plan: &Plan, patience: Patience) -> (Result<Decision, StoreError>, bool) {
        self.or_here(self.decide(plan).await, plan, patience)
    }

    /// Decides in this process if the store fails and the patience is the caller's own: then nothing else
    /// falls back.
    pub(crate) fn or_here(
        &self,
        answer: Result<Decision, StoreError>,
        plan: &Plan,
        patience: Patience,
    ) -> (Result<Decision, StoreError>, bool) {
        match (answer, patience) {
            (Err(error), Patience::Own(_)) => match self.fall_back(plan, MemoryStore::decide) {
                Fallback::Local(decision) => (Ok(decision), true),
                Fallback::Allow | Fallback::Deny(_) => (Err(error), false),
            },
            (answer, _) => (answer, false),
        }
    }

    /// What the store would answer after all who are ahead had been served.
    async fn peek_behind(
        &self,
        plan: &Plan,
        patience: Patience,
        ticket: Option<&Ticket>,
    ) -> Result<Decision, StoreError> {
        let charges = plan.entries().iter().map(|planned| {
            let charge = plan.rules().charge_of(planned);
            if patience.with(plan, planned) == Some(Duration::ZERO) {
                return charge;
            }
            let ahead = self.room().ahead(&plan.line(planned), ticket);
            // Capped, because more than the quota can ever hold would never fit.
            let all = ahead.cost.saturating_add(planned.cost.into()).min(charge.quota.max().into());
            charge.cost(planned.cost.max(all as u32))
        });
        let charges: SmallVec<[Charge<'_>; 4]> = charges.collect();
        self.store().peek(&charges).await
    }

    /// Whether so many wait already that it would take too long.
    fn is_too_long(&self, plan: &Plan, patience: Patience) -> bool {
        plan.lines(patience).any(|(line, planned)| {
            let (quota, ahead) = (plan.rules().charge_of(planned).quota, self.room().ahead(&line, None));
            // If nobody waits, there may be enough.
            let is_too_long = |patience| ahead.cost > 0 && at_least(quota, ahead, planned.cost) > patience;
            patience.with(plan, planned).is_some_and(is_too_long)
        })
    }
}

/// How long a leaky bucket holds a charge back that just fits.
fn behind_the_others(plan: &Plan, planned: &Planned) -> Duration {
    let quota = plan.rules().charge_of(planned).quota;
    if quota.algorithm() != Algorithm::LeakyBucket {
        return Duration::ZERO;
    }
    pace(quota, quota.max().saturating_sub(planned.cost).into())
}

/// How long a bucket takes for this many units.
fn pace(quota: &Quota, count: u64) -> Duration {
    let (units, micros) = quota.rate();
    let micros = u128::from(count) * u128::from(micros) / u128::from(units.max(1));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// What a plan wants of all lines.
fn wanted(plan: &Plan) -> Wanted {
    let want = |planned| (plan.line(planned), planned.cost, *plan.rules().charge_of(planned).quota);
    plan.entries().iter().map(want).collect()
}

/// When a denied charge could be admitted.
fn ready_at(denied: &Decision, asked: Instant) -> Option<Instant> {
    denied.retry()?.after().map(|wait| after(asked, wait))
}

/// The moment after this wait. A few years later, if the sum cannot be represented.
fn after(moment: Instant, wait: Duration) -> Instant {
    moment.checked_add(wait).unwrap_or_else(|| moment + Duration::from_secs(1 << 28))
}

/// Waits until then, or until `other` completes.
async fn until<F: Future>(then: Instant, other: F) -> Option<F::Output> {
    timeout_at(then, pin!(other)).await.ok()
}

/// The least time that it takes to serve those ahead and this one.
fn at_least(quota: &Quota, ahead: Ahead, cost: u32) -> Duration {
    let head =
        ahead.ready_at.map_or(Duration::ZERO, |ready_at| ready_at.saturating_duration_since(Instant::now()));
    let behind_head = ahead.cost.saturating_sub(ahead.head_cost.into()).saturating_add(cost.into());
    let rest = match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => pace(quota, behind_head),
        // Everything that a period holds can go at once.
        _ => {
            let periods =
                ahead.cost.saturating_add(cost.into()).saturating_sub(1) / u64::from(quota.max().max(1));
            quota.period().saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX))
        }
    };
    head.saturating_add(rest)
}
