//! The maps in which rules are looked up.

use std::collections::HashMap;

/// A map whose keys come from rules, and which is queried with what callers send.
///
/// It does not use SipHash, which takes more than a third of the cost of finding a rule. That is safe,
/// because a caller adds nothing to the map. The longest path that a lookup can take was fixed when the rules
/// were read. Somebody who could choose names in the rules, such as a tenant its host, still does not know
/// the random state.
pub(super) type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
