//! The key of a rule: who is counted.

use std::sync::Arc;

use ratekeeper::Rule;
use ratekeeper::key::{self, KeyExtractor, PeerIp, TrustedProxies};

use super::Context;
use super::proxies::{FileProxies, Proxies, header_name, trusted};
use crate::model::{ClientIpTable, KeyPart, KeyWord};
use crate::read::{At, Field, OneOrMany};
use crate::scope::Scope;
use crate::suggest::{did_you_mean, list};
use crate::tree::Span;

/// A key that is ready.
pub(super) enum BuiltKey {
    /// The default key, which rules evaluate directly, without dynamic dispatch.
    Peer(PeerIp),
    Other(Arc<dyn KeyExtractor>),
}

impl BuiltKey {
    fn other(key: impl KeyExtractor) -> Self {
        Self::Other(Arc::new(key))
    }

    /// The rule, counting by this key.
    pub(super) fn add_to(self, rule: Rule) -> Rule {
        match self {
            Self::Peer(key) => rule.key(key),
            Self::Other(key) => rule.key(key),
        }
    }

    fn into_shared(self) -> Arc<dyn KeyExtractor> {
        match self {
            Self::Peer(key) => Arc::new(key),
            Self::Other(key) => key,
        }
    }

    /// This one, or the other for requests that do not have it.
    fn or(self, other: Self) -> Self {
        Self::other(self.into_shared().or(other.into_shared()))
    }

    /// All of them, in this order: the same key as that of a tuple.
    fn all(mut parts: Vec<Self>) -> Option<Self> {
        match parts.len() {
            0 | 1 => parts.pop(),
            _ => Some(Self::other(parts.into_iter().map(Self::into_shared).collect::<Vec<_>>())),
        }
    }
}

/// The key of a rule.
pub(super) fn key(
    parts: &At<OneOrMany<KeyPart>>,
    context: &Context<'_>,
    scope: &Scope<'_>,
) -> Option<BuiltKey> {
    let list = parts.value.as_slice();
    if list.is_empty() {
        let help = "to have one budget for all, use the key `global`".to_owned();
        scope.problem_with(parts.span.clone(), "an empty list is no key", help);
    }
    BuiltKey::all(self::parts(list, context, scope)?)
}

/// All of these keys, if all of them are valid.
fn parts(list: &[At<KeyPart>], context: &Context<'_>, scope: &Scope<'_>) -> Option<Vec<BuiltKey>> {
    let part = |part: &At<KeyPart>| self::part(&part.value, &part.span, context, scope);
    let built: Vec<_> = list.iter().filter_map(part).collect();
    (built.len() == list.len()).then_some(built)
}

fn part(part: &KeyPart, span: &Span, context: &Context<'_>, scope: &Scope<'_>) -> Option<BuiltKey> {
    Some(match part {
        KeyPart::Word(word) => return self::word(*word, span, context, scope),
        KeyPart::Required(table) => {
            let (inner, scope) = (table.required.get()?, scope.field("required"));
            let built = self::part(&inner.value, &inner.span, context, &scope)?;
            BuiltKey::other(key::required(built.into_shared()))
        }
        KeyPart::FirstOf(table) => {
            let (list, scope) = (table.first_of.get()?, scope.field("first-of"));
            if list.value.len() < 2 {
                let message = "the first of several keys needs at least two";
                scope.problem(list.span.clone(), message);
                return None;
            }
            let built = self::parts(&list.value, context, &scope)?;
            return built.into_iter().reduce(BuiltKey::or);
        }
        KeyPart::Header(table) => {
            let header = key::Header::from(header_name(table.header.get()?, &scope.field("header"))?);
            if is_true(&table.secret) { BuiltKey::other(header.secret()) } else { BuiltKey::other(header) }
        }
        KeyPart::Cookie(table) => {
            let cookie = key::cookie(cookie_name(table.cookie.get()?, &scope.field("cookie"))?);
            if is_true(&table.secret) { BuiltKey::other(cookie.secret()) } else { BuiltKey::other(cookie) }
        }
        KeyPart::PathParam(table) => {
            let name = table.path_param.get()?;
            if name.value.is_empty() || name.value.contains(['{', '}', '*', '/']) {
                let message = format!("`{}` cannot be the name of a parameter", name.value);
                let help = "of `/users/{id}` the parameter is `id`".to_owned();
                scope.field("path-param").problem_with(name.span.clone(), message, help);
                return None;
            }
            BuiltKey::other(key::path_param(name.value.clone()))
        }
        KeyPart::Constant(table) => BuiltKey::other(key::constant(table.constant.value()?.as_str())),
        KeyPart::Registered(table) => {
            let name = table.registered.get()?;
            let Some(key) = context.registry.find_key(&name.value) else {
                let scope = scope.field("registered");
                unregistered("key", name, &context.registry.key_names(), &scope);
                return None;
            };
            BuiltKey::Other(key)
        }
        KeyPart::PeerIp(table) => {
            let bits = &table.peer_ip.value()?.ipv6_prefix;
            let bits = ipv6_prefix(bits, &scope.field("peer-ip"))?;
            BuiltKey::Peer(bits.map_or(key::peer_ip(), |bits| key::peer_ip().ipv6_prefix(bits)))
        }
        KeyPart::ClientIp(table) => {
            let (table, scope) = (table.client_ip.get()?, scope.field("client-ip"));
            let bits = ipv6_prefix(&table.value.ipv6_prefix, &scope);
            let client = key::client_ip(client_proxies(table, context, &scope)?);
            BuiltKey::other(match bits? {
                Some(bits) => client.ipv6_prefix(bits),
                None => client,
            })
        }
    })
}

fn word(word: KeyWord, span: &Span, context: &Context<'_>, scope: &Scope<'_>) -> Option<BuiltKey> {
    Some(match word {
        KeyWord::PeerIp => BuiltKey::Peer(key::peer_ip()),
        KeyWord::ClientIp => BuiltKey::other(key::client_ip(file_proxies(span, context, scope)?)),
        KeyWord::Bearer => BuiltKey::other(key::bearer()),
        KeyWord::Path => BuiltKey::other(key::path()),
        KeyWord::Route => BuiltKey::other(key::route()),
        KeyWord::Method => BuiltKey::other(key::method()),
        KeyWord::GrpcService => BuiltKey::other(key::grpc_service()),
        KeyWord::GrpcMethod => BuiltKey::other(key::grpc_method()),
        KeyWord::Global => BuiltKey::other(key::global()),
    })
}

/// The trusted proxies of the file.
fn file_proxies(span: &Span, context: &Context<'_>, scope: &Scope<'_>) -> Option<TrustedProxies> {
    match &context.proxies {
        FileProxies::Trusted(proxies) => Some(proxies.clone()),
        FileProxies::Wrong => None,
        FileProxies::Unsaid => {
            let message = "`client-ip` is what trusted proxies say, and none is trusted";
            let help = "say which in `trusted-proxies`, or count by `peer-ip`".to_owned();
            scope.problem_with(span.clone(), message, help);
            None
        }
    }
}

/// The proxies of one key: its own, or those of the file.
fn client_proxies(
    table: &At<ClientIpTable>,
    context: &Context<'_>,
    scope: &Scope<'_>,
) -> Option<TrustedProxies> {
    let own = Proxies::from(&table.value);
    if own.is_unsaid() { file_proxies(&table.span, context, scope) } else { trusted(&table.with(own), scope) }
}

fn ipv6_prefix(bits: &Field<u32>, scope: &Scope<'_>) -> Option<Option<u8>> {
    let Some(bits) = bits.get() else { return Some(None) };
    let read = u8::try_from(bits.value).ok().filter(|bits| (1..=128).contains(bits));
    if read.is_none() {
        let message =
            format!("an IPv6 address has from 1 to 128 bits that can count, and not {}", bits.value);
        scope.field("ipv6-prefix").problem(bits.span.clone(), message);
    }
    read.map(Some)
}

fn cookie_name(name: &At<String>, scope: &Scope<'_>) -> Option<String> {
    // RFC 6265, section 4.1.1: a name is a token. Any other would be found in no cookie.
    let is_token = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte);
    if name.value.is_empty() || !name.value.bytes().all(is_token) {
        scope.problem(name.span.clone(), format!("`{}` cannot be the name of a cookie", name.value));
        return None;
    }
    Some(name.value.clone())
}

fn is_true(field: &Field<bool>) -> bool {
    field.copied().unwrap_or(false)
}

/// Reports that nothing was registered under a name.
pub(super) fn unregistered(what: &str, name: &At<String>, known: &[&str], scope: &Scope<'_>) {
    let message = format!("the application has registered no {what} named `{}`", name.value);
    let all = || (!known.is_empty()).then(|| format!("it has registered {}", list(known.iter().copied())));
    let help = did_you_mean(&name.value, known.iter().copied()).or_else(all);
    scope.problem_with(name.span.clone(), message, help);
}
