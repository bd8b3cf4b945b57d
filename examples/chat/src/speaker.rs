//! A speaker, and whether they may speak.

use std::hash::{BuildHasher, RandomState};

use ratekeeper::{ChargeBuilder, Decision, Limiter, LimiterError};

/// A user on one connection.
pub(crate) struct Speaker {
    limiter: Limiter,
    /// Random: unique among the connections to all processes, which may count in one Redis.
    connection: u64,
    user: String,
}

impl Speaker {
    pub(crate) fn new(limiter: Limiter, user: String) -> Self {
        Self { limiter, connection: RandomState::new().hash_one(()), user }
    }

    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    /// Charges a message to the connection and to the user: to both, or to neither if either of them has no
    /// budget left.
    pub(crate) async fn charge(&self) -> Result<Decision, LimiterError> {
        self.message().await
    }

    /// Peeks at what is left, without charging anything.
    pub(crate) async fn peek(&self) -> Result<Decision, LimiterError> {
        self.message().peek().await
    }

    fn message(&self) -> ChargeBuilder {
        self.limiter.charge("per-connection", self.connection).and("per-user", self.user.as_str())
    }
}
