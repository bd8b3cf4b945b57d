//! Who has an account, and what kind of one.

use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;

/// The caller. The rules count by its number, so that the key that proves it is stored nowhere, and a new key
/// is not a new budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub(crate) id: u64,
}

/// Puts the account into the request's extensions, if the key belongs to one.
///
/// It refuses nobody, as that would be before anything is counted. Handlers that need an account check it
/// themselves.
pub(crate) async fn authenticate(mut request: Request, next: Next) -> Response {
    let value = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(account) = value.and_then(|value| value.strip_prefix("Bearer ")).and_then(account) {
        request.extensions_mut().insert(account);
    }
    next.run(request).await
}

/// The account with this key. Stands for a table of hashed keys.
fn account(key: &str) -> Option<Account> {
    match key {
        "alice-key" => Some(Account { id: 1 }),
        "bob-key" => Some(Account { id: 2 }),
        _ => None,
    }
}

/// The tier of an account, if it is not the regular one. Stands for a database query.
pub(crate) async fn tier(account: Account) -> Option<&'static str> {
    tokio::task::yield_now().await;
    (account.id == 2).then_some("premium")
}
