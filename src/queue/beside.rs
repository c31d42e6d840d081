//! Names beside keys, for servers on which clients had better not be blocked at the keys themselves.

/// What no key of anybody's ends with.
const SUFFIX: &[u8] = b"\0seat-queue";

/// A name that nobody uses. In a cluster it is in the slot of `key`, so that those who are blocked there are redirected as if they were
/// blocked at `key`.
pub(super) fn name_beside(key: &[u8], in_cluster: bool) -> Vec<u8> {
    if !in_cluster {
        return [key, SUFFIX].concat();
    }
    let hashed = hashed_part(key);
    if !hashed.is_empty() && !hashed.contains(&b'}') {
        return [b"{", hashed, b"}", SUFFIX].concat();
    }
    // What is hashed of this key cannot stand between braces.
    [b"{", &tag_for(slot(key))[..], b"}", SUFFIX].concat()
}

/// The part of a key by which the cluster chooses its slot: what stands between the first `{` and the next `}`, or all of it.
fn hashed_part(key: &[u8]) -> &[u8] {
    let position = |bytes: &[u8], brace| bytes.iter().position(|&byte| byte == brace);
    let tag = position(key, b'{').and_then(|open| {
        let rest = &key[open + 1..];
        position(rest, b'}').map(|close| &rest[..close])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// The slot of a key, as `CLUSTER KEYSLOT` tells it.
fn slot(key: &[u8]) -> u16 {
    slot_of_part(hashed_part(key))
}

fn slot_of_part(hashed: &[u8]) -> u16 {
    let crc = hashed.iter().fold(0, |crc: u16, &byte| {
        (crc << 8) ^ CRC16[usize::from(crc >> 8) ^ usize::from(byte)]
    });
    crc & 0x3fff
}

/// Two bytes whose slot is `slot`. Each of the 65,536 pairs has a checksum of its own, so each slot has four of them.
fn tag_for(slot: u16) -> [u8; 2] {
    let mut pairs = (0..=u16::MAX).map(u16::to_be_bytes);
    let found = pairs.find(|pair| !pair.contains(&b'}') && slot_of_part(pair) == slot);
    found.expect("a slot below 16,384")
}

/// CRC16 of the XMODEM kind, which the cluster's specification names: polynomial 0x1021, no reflection, 0 at the start.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{name_beside, slot, slot_of_part, tag_for};

    const KEYS: [(&[u8], u16); 12] = [
        (b"pool", 785),
        (b"123456789", 12739),
        (b"", 0),
        (b"}", 12090),
        (b"a}b", 7866),
        (b"{}x}", 10489),
        (b"{tag}pool", 8338),
        (b"pool{tag}", 8338),
        (b"{a}{b}", 15495),
        (b"{{a}}", 10276),
        (b"{open", 7674),
        (b"a}{b}c", 3300),
    ];

    #[test]
    fn slots_are_those_that_the_server_tells() {
        for (key, told) in KEYS {
            assert_eq!(slot(key), told, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn each_slot_has_a_tag() {
        let pairs = (0..=u16::MAX).map(u16::to_be_bytes);
        let tags = pairs.filter(|pair| !pair.contains(&b'}'));
        let slots: HashSet<u16> = tags.map(|tag| slot_of_part(&tag)).collect();
        assert_eq!(slots.len(), 16384);
        for wanted in (0..16384).step_by(1023) {
            let tag = tag_for(wanted);
            assert_eq!(slot(&[b"{", &tag[..], b"}x"].concat()), wanted);
        }
    }

    #[test]
    fn a_name_beside_a_key_is_another_one_and_in_a_cluster_in_the_same_slot() {
        for (key, told) in KEYS {
            assert_eq!(
                slot(&name_beside(key, true)),
                told,
                "{}",
                key.escape_ascii()
            );
            for in_cluster in [false, true] {
                assert_ne!(name_beside(key, in_cluster), key);
            }
        }
    }
}
