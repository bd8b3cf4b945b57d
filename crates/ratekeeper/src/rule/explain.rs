//! Why a rule counts a request, or does not. For people, and slower than deciding.

use std::fmt;

use http::Method;
use ratekeeper_core::{Key, Quota, RuleName};

use super::index::{Index, Target};
use super::{Compiled, MissingKey, Role, RuleSet, TierChoice, TierFuture, TierLookup};
use crate::key::Extracted;
use crate::request::RequestHead;

/// Whether and why a rule counts a request. See [`RuleSet::explain`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The rule.
    pub rule: RuleName,
    /// Whether it counts the request, and why or why not.
    pub why: Why,
}

/// Whether a rule counts a request, and why or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It counts the request.
    Counts(Box<Counted>),
    /// It matches, but the caller's tier has no limit, so nothing is counted.
    Unlimited {
        /// The tier.
        tier: Option<String>,
    },
    /// It matches, but the request does not have its key. This is what the rule does with such requests.
    NoKey(MissingKey),
    /// It does not match. These are all the mismatches.
    Unmatched(Vec<Mismatch>),
}

/// What a rule counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counted {
    /// Who is counted. A secret key is shown as a digest.
    pub key: Key,
    /// Whether the request does not have the key, and is counted together with all such requests.
    pub is_shared: bool,
    /// The tier whose quota it is. `None` for the rule's own quota, and for one made for this caller.
    pub tier: Option<String>,
    /// The quota.
    pub quota: Quota,
    /// What the request costs.
    pub cost: u32,
    /// Whether the rule is enforced; if not, it only [counts](crate::Mode).
    pub is_enforced: bool,
    /// The quota that runs [in shadow](crate::Rule::candidate) beside it.
    pub candidate: Option<Quota>,
}

/// Why a request does not match a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// The rule [is charged manually](crate::Rule::manual).
    Manual,
    /// The host.
    Host {
        /// The request's host, if it has one.
        found: Option<String>,
        /// What the rule matches.
        wanted: Vec<String>,
    },
    /// The path.
    Path {
        /// What the request has.
        found: String,
        /// What the rule matches.
        wanted: Vec<String>,
    },
    /// The method, at this path.
    Method {
        /// What the request has.
        found: Method,
        /// What the rule matches.
        wanted: Vec<Method>,
    },
    /// The path is an [exception](crate::Rule::except).
    Except {
        /// What the request has.
        found: String,
        /// The exception.
        exception: String,
    },
    /// A [predicate](crate::Rule::when) is not satisfied.
    Predicate,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manual => f.write_str("it is charged by hand and matches no request"),
            Self::Host { found: Some(found), wanted } => {
                write!(f, "the host `{found}` is not {}", Any(wanted))
            }
            Self::Host { found: None, wanted } => {
                write!(f, "no host is named, which would have to be {}", Any(wanted))
            }
            Self::Path { found, wanted } => write!(f, "the path `{found}` is not {}", Any(wanted)),
            Self::Method { found, wanted } => write!(f, "the method `{found}` is not {}", Any(wanted)),
            Self::Except { found, exception } if found == exception => {
                write!(f, "the path `{found}` is an exception")
            }
            Self::Except { found, exception } => {
                write!(f, "the path `{found}` is an exception, by `{exception}`")
            }
            Self::Predicate => f.write_str("a predicate is not true of it"),
        }
    }
}

/// Displays "one of these" for people.
struct Any<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Any<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// How many are listed at most.
        const LISTED: usize = 5;
        for (i, one) in self.0.iter().take(LISTED).enumerate() {
            write!(f, "{}`{one}`", if i > 0 { " or " } else { "" })?;
        }
        match self.0.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, " or {more} more"),
        }
    }
}

/// What a matching rule takes from a request.
struct Asked {
    cost: u32,
    key: Extracted,
    tier: AskedTier,
}

enum AskedTier {
    Now(TierChoice),
    Later(TierFuture),
}

impl RuleSet {
    /// Explains for each rule, in order, whether it counts a request. Nothing is charged.
    ///
    /// ```
    /// use http::Request;
    /// use ratekeeper::{explain::Mismatch, Quota, RequestHead, Rule, RuleSet, explain::Why, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = RuleSet::new([
    ///     Rule::new("all", Quota::per_second(10)).key(key::header("x-api-key").secret()),
    ///     Rule::new("login", Quota::per_minute(5)).on_path("/login"),
    /// ])?;
    /// let request = Request::get("/").header("x-api-key", "hunter2").body(())?;
    /// let explained = rules.explain(&RequestHead::from(&request)).await;
    ///
    /// let Why::Counts(counted) = &explained[0].why else { panic!() };
    /// assert_eq!(counted.key.to_string(), "secret:f52fbd32b2b3b86ff88ef6c490628285");
    /// let Why::Unmatched(why) = &explained[1].why else { panic!() };
    /// assert_eq!(why[0].to_string(), "the path `/` is not `/login`");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Keys, tiers, costs and predicates are evaluated as for a decision, including their lookups. Requests
    /// do not go through this code, but it is made of the same parts.
    pub async fn explain(&self, head: &RequestHead<'_>) -> Vec<Explanation> {
        let matches = self.rules().matches(head);
        // Everything that looks at the head comes first, as it does when a request is decided.
        let asked: Vec<_> = self
            .rules()
            .iter()
            .enumerate()
            .map(|(number, rule)| {
                let found = &matches[matches.partition_point(|(other, _)| *other < number)..];
                match &found[..found.partition_point(|(other, _)| *other == number)] {
                    [] => Err(mismatches(rule, head)),
                    matched => rule.ask(&head.with_matched(matched)).ok_or_else(|| vec![unmet(rule, head)]),
                }
            })
            .collect();
        let mut explanations = Vec::with_capacity(asked.len());
        for (rule, asked) in self.rules().iter().zip(asked) {
            let why = match asked {
                Err(mismatches) => Why::Unmatched(mismatches),
                Ok(asked) => rule.explain(asked).await,
            };
            explanations.push(Explanation { rule: rule.name, why });
        }
        explanations
    }
}

impl Compiled {
    /// `None` if a predicate is not satisfied.
    fn ask(&self, head: &RequestHead<'_>) -> Option<Asked> {
        let tier = || match &self.tier_lookup {
            None => AskedTier::Now(TierChoice::Default),
            Some(TierLookup::Now(lookup)) => AskedTier::Now(lookup(head)),
            Some(TierLookup::Later(lookup)) => AskedTier::Later(lookup(head)),
        };
        self.applies(head).then(|| Asked {
            cost: self.cost(|| *head),
            key: self.key.extract(head.extensions(), || *head),
            tier: tier(),
        })
    }

    async fn explain(&self, asked: Asked) -> Why {
        let Asked { cost, key, tier } = asked;
        let key = key.wait().await;
        let choice = match tier {
            AskedTier::Now(choice) => choice,
            AskedTier::Later(lookup) => lookup.await,
        };
        let tier = match &choice {
            TierChoice::Named(name) if self.has_tier(name) => Some(name.to_string()),
            _ => None,
        };
        // Callers without a limit need no key.
        let Some(choice) = self.tier(choice) else { return Why::Unlimited { tier } };
        let (key, is_shared) = match (key, self.missing_key) {
            (Some(key), _) => (key, false),
            (None, MissingKey::Shared) => (Key::GLOBAL, true),
            // In shadow, the rule neither denies nor counts such a request.
            (None, MissingKey::Deny) if self.role(&Key::GLOBAL) != Role::Enforced => {
                return Why::NoKey(MissingKey::Skip);
            }
            (None, missing) => return Why::NoKey(missing),
        };
        let is_enforced = self.role(&key) == Role::Enforced;
        let candidate = self.has_candidate(&choice).then(|| *self.candidate(&choice).1);
        Why::Counts(Box::new(Counted {
            key,
            is_shared,
            tier,
            quota: *self.quota(&choice),
            cost,
            is_enforced,
            candidate,
        }))
    }
}

/// Why a rule does not apply whose host, method and path match.
fn unmet(rule: &Compiled, head: &RequestHead<'_>) -> Mismatch {
    rule.requests.exception(head).map_or(Mismatch::Predicate, |exception| Mismatch::Except {
        found: head.path().to_owned(),
        exception: exception.to_string(),
    })
}

/// All mismatches. Each part is checked against an index that contains nothing else.
fn mismatches(rule: &Compiled, head: &RequestHead<'_>) -> Vec<Mismatch> {
    let requests = &rule.requests;
    if requests.manual {
        return vec![Mismatch::Manual];
    }
    let mut found = Vec::new();
    let fits = |index: Index| !index.matches(head).is_empty();
    if !fits(Index::of(&requests.hosts, &[])) {
        let wanted = requests.hosts.iter().map(ToString::to_string).collect();
        found.push(Mismatch::Host { found: head.host().map(str::to_owned), wanted });
    }
    let paths: Vec<Target> = requests.targets.iter().map(|(_, path)| (None, path.clone())).collect();
    if !fits(Index::of(&[], &paths)) {
        let mut wanted: Vec<String> =
            paths.iter().flat_map(|(_, path)| path).map(ToString::to_string).collect();
        wanted.dedup();
        found.push(Mismatch::Path { found: head.path().to_owned(), wanted });
    } else if !fits(Index::of(&[], &requests.targets)) {
        // The methods of the paths that do match.
        let at_path = |(_, path): &&Target| fits(Index::of(&[], &[(None, path.clone())]));
        let methods = requests.targets.iter().filter(at_path).filter_map(|(method, _)| method.clone());
        found.push(Mismatch::Method { found: head.method().clone(), wanted: methods.collect() });
    }
    found
}
