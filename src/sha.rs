//! The hashes by which scripts are called.

/// The SHA1 of a script's text.
pub(crate) type Sha = [u8; 20];

/// The hash that forty hexadecimal digits state, in any case.
pub(crate) fn sha_of_hex(digits: &[u8]) -> Option<Sha> {
    let mut sha = Sha::default();
    if digits.len() != 2 * sha.len() {
        return None;
    }
    for (byte, pair) in sha.iter_mut().zip(digits.chunks(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(sha)
}

#[cfg(test)]
mod tests {
    use super::sha_of_hex;

    #[test]
    fn a_hash_is_forty_hexadecimal_digits_in_any_case() {
        let sha = sha_of_hex(b"00ff10AbCdEf0123456789aabbccddeeff012345");
        assert_eq!(
            sha.map(|sha| sha[..4].to_vec()),
            Some(vec![0, 255, 16, 0xab])
        );
        for digits in [
            "",
            "00ff",
            &"0".repeat(39),
            &"0".repeat(41),
            &"g".repeat(40),
        ] {
            assert_eq!(sha_of_hex(digits.as_bytes()), None, "{digits}");
        }
    }
}
