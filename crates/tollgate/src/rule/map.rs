//! The maps in which rules are looked up.

use std::collections::HashMap;

/// A map whose keys come from rules, and which is asked with what callers send.
///
/// That is why it does without SipHash, which takes more than a third of what it costs to find a rule: a caller adds nothing
/// to it. The longest way that a lookup can go was settled when the rules were read, and who could choose the
/// rules' names, a tenant its host for one, still does not know the random state.
pub(super) type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
