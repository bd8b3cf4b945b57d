//! Which slot of a cluster a counter is in.

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a counter: that of what is in the braces of its name.
pub(crate) fn slot(name: &[u8]) -> u16 {
    let tag = name.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &name[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        Some(&rest[..close]).filter(|tag| !tag.is_empty())
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(name)) % SLOTS
}

/// Something to put into the braces of a name, so that it is in one of these slots.
pub(super) fn tag_in(is_ours: impl Fn(u16) -> bool) -> Option<String> {
    // Every slot is hit by one of the first few hundred thousand numbers.
    (0..1_000_000_u32).map(|number| number.to_string()).find(|tag| is_ours(slot(tag.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // As `CLUSTER KEYSLOT` answers.
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{foo}bar"), 12_182);
        assert_eq!(slot(b"tollgate:per-user:{foo}"), 12_182);
        assert_eq!(slot(b"somekey"), 11_058);
    }
}
