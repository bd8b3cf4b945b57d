//! Anything that the model can hold.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::model::key::{
    ClientIpKey, ConstantKey, CookieKey, FirstOfKey, HeaderKey, PathParamKey, PeerIpKey, PeerIpTable,
    RegisteredKey, RequiredKey,
};
use crate::model::rule::{EnforceForTable, LocalTable, RegisteredCost, TierTable};
use crate::model::set::{IetfWord, LayerTable, LimiterTable, ProxiesTable, RejectionWord, Rules};
use crate::model::{
    AlgorithmWord, ClientIpTable, CostSpec, FailureSpec, FailureWord, File, FreeTable, KeyPart, KeyWord,
    MatchSpec, MatchTable, MissingKeyWord, ModeSpec, ModeWord, QuotaSpec, QuotaTable, RuleTable, StatusSpec,
    TierSpec,
};
use crate::read::{At, Field, Named, OneOrMany};

fn at<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = At<T>> {
    value.prop_map(|value| At { span: 0..0, value })
}

fn said<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Field<T>> {
    at(value).prop_map(Field::Said)
}

fn maybe<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Field<T>> {
    option::of(at(value)).prop_map(|value| value.map_or(Field::Unsaid, Field::Said))
}

fn one_or_many<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + Clone + 'static,
) -> impl Strategy<Value = OneOrMany<T>> {
    let one = at(value.clone()).prop_map(OneOrMany::One);
    prop_oneof![one, vec(at(value), 0..3).prop_map(OneOrMany::Many)]
}

fn word<T: Copy + std::fmt::Debug + 'static>(words: &'static [(&str, T)]) -> impl Strategy<Value = T> {
    select(words).prop_map(|(_, word)| word)
}

fn text() -> impl Strategy<Value = String> + Clone {
    prop_oneof!["[a-z/{}* -]{0,12}", any::<String>().prop_map(|text| text.chars().take(8).collect())]
}

pub(super) fn file() -> impl Strategy<Value = File> {
    let rules = vec(at(rule()), 0..4).prop_map(Rules);
    (said(rules), maybe(text()), maybe(proxies()), maybe(layer()), maybe(limiter())).prop_map(
        |(rules, schema, trusted_proxies, layer, limiter)| File {
            rules,
            schema,
            trusted_proxies,
            layer,
            limiter,
        },
    )
}

fn proxies() -> impl Strategy<Value = ProxiesTable> {
    (maybe(one_or_many(text())), maybe(any::<u32>()), maybe(text()))
        .prop_map(|(networks, hops, field)| ProxiesTable { networks, hops, field })
}

fn layer() -> impl Strategy<Value = LayerTable> {
    let fields = (maybe(any::<bool>()), maybe(word(IetfWord::ALL)));
    (fields, maybe(any::<bool>()), maybe(word(RejectionWord::ALL))).prop_map(
        |((x_ratelimit_headers, ietf_headers), charge_preflights, rejection)| LayerTable {
            x_ratelimit_headers,
            ietf_headers,
            charge_preflights,
            rejection,
        },
    )
}

fn limiter() -> impl Strategy<Value = LimiterTable> {
    (maybe(any::<u32>()), maybe(any::<u32>()))
        .prop_map(|(max_waiting, max_local_keys)| LimiterTable { max_waiting, max_local_keys })
}

fn rule() -> impl Strategy<Value = RuleTable> {
    let what = (said(text()), said(quota()), maybe(one_or_many(matches())), maybe(one_or_many(key())));
    let but = maybe(one_or_many(text()));
    let who = (maybe(word(MissingKeyWord::ALL)), maybe(tiers()), maybe(text()));
    let how = (maybe(cost()), maybe(any::<bool>()), maybe(text()), maybe(failure()));
    let which = (maybe(one_or_many(text())), maybe(one_or_many(text())), maybe(any::<bool>()));
    let after = (maybe(free()), maybe(text()));
    let whether = (maybe(mode()), maybe(any::<bool>()), maybe(quota()));
    (what, who, how, which, after, whether, but).prop_map(
        |(what, who, how, which, after, whether, except)| RuleTable {
            except,
            name: what.0,
            quota: what.1,
            matches: what.2,
            key: what.3,
            on_missing_key: who.0,
            tiers: who.1,
            tier_by: who.2,
            cost: how.0,
            settle_in_handler: how.1,
            hold_up_to: how.2,
            on_store_failure: how.3,
            host: which.0,
            when: which.1,
            by_hand: which.2,
            free_when: after.0,
            settle_by: after.1,
            mode: whether.0,
            show_in_shadow: whether.1,
            candidate: whether.2,
        },
    )
}

fn quota() -> impl Strategy<Value = QuotaSpec> + Clone {
    let numbers = (any::<u32>(), text(), any::<Option<u32>>(), any::<Option<u32>>());
    let algorithm = option::of(select(AlgorithmWord::ALL));
    let field =
        |number: Option<u32>| number.map_or(Field::Unsaid, |value| Field::Said(At { span: 0..0, value }));
    let table =
        (numbers, algorithm).prop_map(move |((limit, period, burst, capacity), algorithm)| QuotaTable {
            limit: field(Some(limit)),
            period: Field::Said(At { span: 0..0, value: period }),
            algorithm: algorithm
                .map_or(Field::Unsaid, |(_, algorithm)| Field::Said(At { span: 0..0, value: algorithm })),
            burst: field(burst),
            capacity: field(capacity),
        });
    prop_oneof![text().prop_map(QuotaSpec::Text), table.prop_map(QuotaSpec::Table)].boxed()
}

fn matches() -> impl Strategy<Value = MatchSpec> + Clone {
    let table = (maybe(one_or_many(text())), maybe(one_or_many(text())))
        .prop_map(|(method, path)| MatchTable { method, path });
    prop_oneof![text().prop_map(MatchSpec::Text), table.prop_map(MatchSpec::Table)].boxed()
}

fn tiers() -> impl Strategy<Value = Named<TierSpec>> {
    let table = (said(quota()), maybe(text()), maybe(quota()))
        .prop_map(|(quota, hold_up_to, candidate)| TierTable { quota, hold_up_to, candidate });
    let tier = prop_oneof![text().prop_map(TierSpec::Text), table.prop_map(TierSpec::Table)];
    let named = |(name, tier)| (At { span: 0..0, value: name }, tier);
    btree_map(text(), at(tier), 0..3).prop_map(move |tiers| Named(tiers.into_iter().map(named).collect()))
}

fn cost() -> impl Strategy<Value = CostSpec> {
    let registered = said(text()).prop_map(|registered| CostSpec::Registered(RegisteredCost { registered }));
    prop_oneof![any::<u32>().prop_map(CostSpec::Number), registered]
}

fn free() -> impl Strategy<Value = FreeTable> {
    let status =
        || prop_oneof![any::<u32>().prop_map(StatusSpec::Number), text().prop_map(StatusSpec::Text)].boxed();
    (maybe(one_or_many(status())), maybe(one_or_many(status())))
        .prop_map(|(status, status_not)| FreeTable { status, status_not })
}

fn mode() -> impl Strategy<Value = ModeSpec> {
    let some = said(text()).prop_map(|enforce_for| ModeSpec::Table(EnforceForTable { enforce_for }));
    prop_oneof![word(ModeWord::ALL).prop_map(ModeSpec::Text), some]
}

fn failure() -> impl Strategy<Value = FailureSpec> {
    let local = said(text()).prop_map(|local| FailureSpec::Table(LocalTable { local }));
    prop_oneof![word(FailureWord::ALL).prop_map(FailureSpec::Text), local]
}

fn key() -> impl Strategy<Value = KeyPart> + Clone {
    let client =
        (maybe(one_or_many(text())), maybe(any::<u32>()), maybe(text()), maybe(any::<u32>())).prop_map(
            |(networks, hops, field, ipv6_prefix)| ClientIpTable { networks, hops, field, ipv6_prefix },
        );
    prop_oneof![
        word(KeyWord::ALL).prop_map(KeyPart::Word),
        (said(text()), maybe(any::<bool>()))
            .prop_map(|(header, secret)| KeyPart::Header(HeaderKey { header, secret })),
        (said(text()), maybe(any::<bool>()))
            .prop_map(|(cookie, secret)| KeyPart::Cookie(CookieKey { cookie, secret })),
        said(text()).prop_map(|path_param| KeyPart::PathParam(PathParamKey { path_param })),
        said(text()).prop_map(|constant| KeyPart::Constant(ConstantKey { constant })),
        said(text()).prop_map(|registered| KeyPart::Registered(RegisteredKey { registered })),
        said(maybe(any::<u32>()).prop_map(|ipv6_prefix| PeerIpTable { ipv6_prefix }))
            .prop_map(|peer_ip| KeyPart::PeerIp(PeerIpKey { peer_ip })),
        said(client).prop_map(|client_ip| KeyPart::ClientIp(ClientIpKey { client_ip })),
    ]
    .boxed()
    .prop_recursive(2, 4, 3, |key| {
        let required = said(key.clone().prop_map(Box::new));
        prop_oneof![
            required.prop_map(|required| KeyPart::Required(RequiredKey { required })),
            said(vec(at(key), 0..3)).prop_map(|first_of| KeyPart::FirstOf(FirstOfKey { first_of })),
        ]
    })
}
