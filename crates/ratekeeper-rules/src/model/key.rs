//! A key of a file.

use crate::read::{At, OneOrMany, Read, expected};
use crate::scope::Scope;
use crate::suggest::{did_you_mean, list};
use crate::tree::{Node, Value};

words! {
    /// A key without parameters.
    KeyWord {
        /// The address of the peer. This is the default.
        "peer-ip" PeerIp,
        /// The address of the client behind the trusted proxies.
        "client-ip" ClientIp,
        /// The bearer token, shown only as a digest.
        "bearer" Bearer,
        /// The path.
        "path" Path,
        /// The route that matched.
        "route" Route,
        /// The method.
        "method" Method,
        /// The gRPC service.
        "grpc-service" GrpcService,
        /// The gRPC method, with its service.
        "grpc-method" GrpcMethod,
        /// One budget for all.
        "global" Global,
    }
}

/// Declares the keys that are tables. The field that a table has determines its key.
macro_rules! key_tables {
    ($( $name:literal $Variant:ident $Table:ident, )*) => {
        /// Who is counted.
        #[derive(Clone, Debug, PartialEq)]
        #[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema), serde(untagged))]
        pub(crate) enum KeyPart {
            Word(KeyWord),
            $( $Variant($Table), )*
        }

        impl Read for KeyPart {
            fn read(node: &Node, scope: &Scope<'_>) -> Option<Self> {
                const KINDS: &[&str] = &[$( $name, )*];
                match (&node.value, kind(KINDS, node, scope)?) {
                    (Value::Text(_), _) => Read::read(node, scope).map(Self::Word),
                    $( (_, Some($name)) => Read::read(node, scope).map(Self::$Variant), )*
                    _ => None,
                }
            }
        }
    };
}

key_tables! {
    "header" Header HeaderKey,
    "cookie" Cookie CookieKey,
    "path-param" PathParam PathParamKey,
    "constant" Constant ConstantKey,
    "registered" Registered RegisteredKey,
    "peer-ip" PeerIp PeerIpKey,
    "client-ip" ClientIp ClientIpKey,
    "required" Required RequiredKey,
    "first-of" FirstOf FirstOfKey,
}

/// Which of these fields a table has; an inner `None` if it is a text.
fn kind(kinds: &[&'static str], node: &Node, scope: &Scope<'_>) -> Option<Option<&'static str>> {
    let entries = match &node.value {
        Value::Text(text) => return check_word(text, kinds, node, scope).then_some(None),
        Value::Table(entries) => entries,
        _ => return expected("a text or a table", node, scope),
    };
    let mut found = entries.iter().filter_map(|entry| kinds.iter().find(|kind| **kind == entry.name));
    match (found.next(), found.next()) {
        (Some(only), None) => Some(Some(only)),
        (Some(one), Some(other)) => {
            let message = format!("a key cannot be both `{one}` and `{other}`");
            let help = match (*one, *other) {
                ("required", kind) | (kind, "required") => {
                    format!(
                        "a key is marked as required by a table around it: `{{ required = {{ {kind} = … }} }}`"
                    )
                }
                _ => "a list of keys is a key: `[{ … }, { … }]`".to_owned(),
            };
            scope.problem_with(node.span.clone(), message, help);
            None
        }
        (None, _) => {
            let near = entries.iter().find_map(|entry| did_you_mean(&entry.name, kinds.iter().copied()));
            let message = format!("a key that is a table has one of {}", list(kinds.iter().copied()));
            scope.problem_with(node.span.clone(), message, near);
            None
        }
    }
}

/// Whether a text is a key. If it is not, the key may be meant to be a table, or one that the application
/// has.
fn check_word(text: &str, kinds: &[&'static str], node: &Node, scope: &Scope<'_>) -> bool {
    let words = || KeyWord::ALL.iter().map(|(word, _)| *word);
    if words().any(|word| word == text) {
        return true;
    }
    if kinds.contains(&text) {
        let help = format!("write it like `{{ {text} = \"…\" }}`");
        scope.problem_with(node.span.clone(), format!("`{text}` alone does not say which"), help);
        return false;
    }
    let tables = kinds.iter().copied().filter(|kind| words().all(|word| word != *kind));
    let known: Vec<_> = words().chain(tables).collect();
    let registered = || format!("what the application registered is `{{ registered = \"{text}\" }}`");
    let help = did_you_mean(text, known.iter().copied()).unwrap_or_else(registered);
    scope.problem_with(node.span.clone(), format!("`{text}` is no key; keys are {}", list(known)), help);
    false
}

table! {
    /// A key without which a list of keys is missing.
    RequiredKey {
        required {
            /// The key.
            "required" required: Box<KeyPart>,
        }
        optional {}
    }
}

table! {
    /// The first of several keys that a request has.
    FirstOfKey {
        required {
            /// The keys, in order.
            "first-of" first_of: Vec<At<KeyPart>>,
        }
        optional {}
    }
}

table! {
    /// The value of a header field.
    HeaderKey {
        required {
            /// The name of the field.
            "header" header: String,
        }
        optional {
            /// Whether the value is a secret, shown only as a digest. It is not by default.
            "secret" secret: bool,
        }
    }
}

table! {
    /// The value of a cookie.
    CookieKey {
        required {
            /// The name of the cookie.
            "cookie" cookie: String,
        }
        optional {
            /// Whether the value is a secret, shown only as a digest. It is not by default.
            "secret" secret: bool,
        }
    }
}

table! {
    /// A parameter of the path.
    PathParamKey {
        required {
            /// The name of the parameter.
            "path-param" path_param: String,
        }
        optional {}
    }
}

table! {
    /// The same key for all requests.
    ConstantKey {
        required {
            /// The key.
            "constant" constant: String,
        }
        optional {}
    }
}

table! {
    /// A key that the application registered.
    RegisteredKey {
        required {
            /// The name under which the application registered it.
            "registered" registered: String,
        }
        optional {}
    }
}

table! {
    /// The address of the peer.
    PeerIpKey {
        required {
            /// Its options.
            "peer-ip" peer_ip: PeerIpTable,
        }
        optional {}
    }
}

table! {
    /// Options of the peer's address.
    PeerIpTable {
        required {}
        optional {
            /// How many bits of an IPv6 address count. 64 by default.
            "ipv6-prefix" ipv6_prefix: u32,
        }
    }
}

table! {
    /// The address of the client behind proxies.
    ClientIpKey {
        required {
            /// Its options.
            "client-ip" client_ip: ClientIpTable,
        }
        optional {}
    }
}

table! {
    /// Options of the client's address. By default the proxies are those that the file trusts.
    ClientIpTable {
        required {}
        optional {
            /// The networks of the proxies, such as `10.0.0.0/8`, or their addresses.
            "networks" networks: OneOrMany<String>,
            /// The number of proxies, one behind the other, wherever they are.
            "hops" hops: u32,
            /// The header field in which proxies name the client.
            "field" field: String,
            /// How many bits of an IPv6 address count. 64 by default.
            "ipv6-prefix" ipv6_prefix: u32,
        }
    }
}
