//! Which slot of a cluster a counter is in.

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a counter, which depends on the hash tag in its name.
pub(crate) fn slot(name: &[u8]) -> u16 {
    let tag = name.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &name[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        Some(&rest[..close]).filter(|tag| !tag.is_empty())
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(name)) % SLOTS
}

/// A hash tag that puts a name into this slot: four letters or digits, the last two of which are computed.
/// Trying one after the other would take milliseconds.
pub(crate) fn tag_in(slot: u16) -> Option<String> {
    let fit: Vec<u8> = (0..=u8::MAX).filter(u8::is_ascii_alphanumeric).collect();
    let beginnings = fit.iter().flat_map(|first| fit.iter().map(move |second| [*first, *second]));
    // The slot is the remainder of the checksum.
    let sums = (0..=u16::MAX / SLOTS).map(|times| times * SLOTS + slot % SLOTS);
    let sums: Vec<u16> = sums.map(undo).collect();
    beginnings
        .flat_map(|beginning| {
            let so_far = crc16::State::<crc16::XMODEM>::calculate(&beginning);
            sums.iter().map(move |sum| (beginning, (sum ^ so_far).to_be_bytes()))
        })
        .find(|(_, end)| end.iter().all(u8::is_ascii_alphanumeric))
        .and_then(|(beginning, end)| String::from_utf8([beginning, end].concat()).ok())
}

/// What a checksum was before two zero bytes were appended. Appending two other bytes has the same effect as
/// combining them with this value by exclusive or first. So the two bytes to append are the difference
/// between this value and the checksum so far.
fn undo(sum: u16) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    (0..16).fold(sum, |sum, _| if sum & 1 == 1 { ((sum ^ POLYNOMIAL) >> 1) | 1 << 15 } else { sum >> 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // As `CLUSTER KEYSLOT` answers.
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{foo}bar"), 12_182);
        assert_eq!(slot(b"ratekeeper:per-user:{foo}"), 12_182);
        assert_eq!(slot(b"somekey"), 11_058);
    }
    #[test]
    fn every_slot_has_a_tag() {
        for wanted in 0..SLOTS {
            let tag = tag_in(wanted).expect("there is one");
            assert_eq!(slot(format!("probe:{{{tag}}}").as_bytes()), wanted, "{tag}");
        }
    }
}
