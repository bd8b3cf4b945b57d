//! Accounts and their passwords.

use std::time::Duration;

use serde::Deserialize;
use subtle::ConstantTimeEq;

/// How long checking a password takes. A good password hash takes about as long.
const HASHING: Duration = Duration::from_millis(50);

/// The name of an account, in one normalized spelling.
///
/// Both the limit and the password lookup use it. If they used different spellings, `ALICE` and `alice `
/// would be five more guesses each.
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub(crate) struct Name(String);

impl From<String> for Name {
    fn from(name: String) -> Self {
        Self(name.trim().to_lowercase())
    }
}

impl Name {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether this is the account's password. It takes as long for an account that does not exist, so that
/// nobody learns who has one.
///
/// This is a toy: it stands for a table of hashes made to be slow, such as Argon2's, and for verifying one of
/// them. The comparison does not reveal how much of a guess was right. It does reveal the password's length,
/// which is the same for all hashes.
pub(crate) async fn is_password(name: &Name, guess: &str) -> bool {
    let password = match name.as_str() {
        "alice" => Some("correct-horse"),
        "bob" => Some("battery-staple"),
        _ => None,
    };
    tokio::time::sleep(HASHING).await;
    let is_equal: bool = password.unwrap_or("nobody").as_bytes().ct_eq(guess.as_bytes()).into();
    password.is_some() & is_equal
}
