//! The slots of a cluster: which keys are on the same node.

use crate::ffi::Ctx;

/// The part of a key by which the cluster chooses its slot: what stands between the first `{` and
/// the next `}`, or all of it.
pub(crate) fn hashed_part(key: &[u8]) -> &[u8] {
    let position = |bytes: &[u8], brace| bytes.iter().position(|&byte| byte == brace);
    let tag = position(key, b'{').and_then(|open| {
        let rest = &key[open + 1..];
        position(rest, b'}').map(|close| &rest[..close])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// The slot of a key, as `CLUSTER KEYSLOT` gives it.
pub(crate) fn slot(key: &[u8]) -> u16 {
    slot_of_part(hashed_part(key))
}

/// The slot of a key that is hashed whole.
pub(crate) fn slot_of_part(hashed: &[u8]) -> u16 {
    let crc = hashed.iter().fold(0, |crc: u16, &byte| {
        (crc << 8) ^ CRC16[usize::from(crc >> 8) ^ usize::from(byte)]
    });
    crc & 0x3fff
}

/// Whether a command on the one key may look at the other: always without a cluster, and in one if
/// their slots are the same. Newer servers look for every key in the slot of the command that runs.
pub(crate) fn is_shared(ctx: Ctx<'_>, one: &[u8], other: &[u8]) -> bool {
    !ctx.is_in_cluster() || slot(one) == slot(other)
}

/// CRC16 of the XMODEM kind, which the cluster's specification names: polynomial 0x1021, no
/// reflection, 0 at the start.
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
pub(crate) mod tests {
    use super::slot;

    /// Keys of all kinds, and their slots as `CLUSTER KEYSLOT` gives them.
    pub(crate) const KEYS: [(&[u8], u16); 12] = [
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
        for (key, expected) in KEYS {
            assert_eq!(slot(key), expected, "{}", key.escape_ascii());
        }
    }
}
