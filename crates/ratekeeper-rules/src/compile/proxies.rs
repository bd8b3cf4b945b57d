//! Trusted proxies.

use http::HeaderName;
use ratekeeper::ConfigError;
use ratekeeper::key::TrustedProxies;

use crate::model::{ClientIpTable, File, ProxiesTable};
use crate::read::{At, Field, OneOrMany};
use crate::scope::Scope;

/// The proxies that a file trusts.
pub(super) enum FileProxies {
    /// The file has no such table.
    Unsaid,
    /// The table is invalid, which has been reported.
    Wrong,
    Trusted(TrustedProxies),
}

impl FileProxies {
    pub(super) fn new(file: &File, scope: &Scope<'_>) -> Self {
        let table = match &file.trusted_proxies {
            Field::Said(table) => table,
            Field::Unsaid => return Self::Unsaid,
            Field::Unread => return Self::Wrong,
        };
        let proxies = trusted(&table.with(Proxies::from(&table.value)), &scope.field("trusted-proxies"));
        proxies.map_or(Self::Wrong, Self::Trusted)
    }
}

/// The settings of proxies, in their own table or in a key.
pub(super) struct Proxies<'a> {
    pub(super) networks: &'a Field<OneOrMany<String>>,
    pub(super) hops: &'a Field<u32>,
    pub(super) field: &'a Field<String>,
}

impl<'a> From<&'a ProxiesTable> for Proxies<'a> {
    fn from(table: &'a ProxiesTable) -> Self {
        Self { networks: &table.networks, hops: &table.hops, field: &table.field }
    }
}

impl<'a> From<&'a ClientIpTable> for Proxies<'a> {
    fn from(table: &'a ClientIpTable) -> Self {
        Self { networks: &table.networks, hops: &table.hops, field: &table.field }
    }
}

impl Proxies<'_> {
    pub(super) fn is_unsaid(&self) -> bool {
        self.networks.is_unsaid() && self.hops.is_unsaid() && self.field.is_unsaid()
    }
}

/// The proxies, if their settings are valid.
pub(super) fn trusted(proxies: &At<Proxies<'_>>, scope: &Scope<'_>) -> Option<TrustedProxies> {
    let Proxies { networks, hops, field } = proxies.value;
    let by_network = networks.get().map(|networks| by_network(networks, &scope.field("networks")));
    let by_hops = hops.get().map(|hops| by_hops(hops, &scope.field("hops")));
    let field = field.get().map(|field| header_name(field, &scope.field("field")));
    if networks.is_unsaid() && hops.is_unsaid() {
        let help = "say which by `networks = [\"10.0.0.0/8\"]`, or how many by `hops = 1`".to_owned();
        scope.problem_with(proxies.span.clone(), "no proxy is trusted", help);
    }
    if let (Some(_), Some(hops)) = (networks.get(), hops.get()) {
        let message = "proxies are trusted by their `networks` or by the count of `hops`, not by both";
        scope.field("hops").problem(hops.span.clone(), message);
        return None;
    }
    let trusted = by_network.or(by_hops)??;
    Some(match field {
        None => trusted,
        Some(name) => in_field(trusted, name?),
    })
}

/// The proxies, naming the client in this field.
fn in_field(trusted: TrustedProxies, name: HeaderName) -> TrustedProxies {
    match name {
        http::header::FORWARDED => trusted.in_forwarded(),
        name if name == "x-forwarded-for" => trusted,
        name => trusted.in_field_named(name),
    }
}

fn by_network(networks: &At<OneOrMany<String>>, scope: &Scope<'_>) -> Option<TrustedProxies> {
    let list = networks.value.as_slice();
    if list.is_empty() {
        let help = "to count by the peer's address, use the key `peer-ip`".to_owned();
        scope.problem_with(networks.span.clone(), "no proxy is trusted", help);
        return None;
    }
    // One by one, so that all invalid ones are found.
    let wrong = list.iter().filter(|network| match TrustedProxies::networks([&network.value]) {
        Ok(_) => false,
        Err(error) => {
            let reason = match error {
                ConfigError::Network { reason, .. } => reason,
                other => other.to_string(),
            };
            scope.problem(network.span.clone(), format!("`{}` cannot be trusted: {reason}", network.value));
            true
        }
    });
    if wrong.count() > 0 {
        return None;
    }
    TrustedProxies::networks(list.iter().map(|network| &network.value)).ok()
}

fn by_hops(hops: &At<u32>, scope: &Scope<'_>) -> Option<TrustedProxies> {
    if hops.value == 0 {
        let help = "to count by the peer's address, use the key `peer-ip`".to_owned();
        scope.problem_with(hops.span.clone(), "no proxy is trusted", help);
        return None;
    }
    Some(TrustedProxies::hops(usize::try_from(hops.value).unwrap_or(usize::MAX)))
}

/// The name of a header field.
pub(super) fn header_name(name: &At<String>, scope: &Scope<'_>) -> Option<HeaderName> {
    let read = HeaderName::from_bytes(name.value.as_bytes()).ok();
    if read.is_none() {
        let message = format!("`{}` cannot be the name of a header field", name.value);
        let help = "a name is made of letters, digits and `-`".to_owned();
        scope.problem_with(name.span.clone(), message, help);
    }
    read
}
