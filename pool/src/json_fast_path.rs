//! The JSON fast path: most metadata is simple enough to be accepted without a full parser.

use memchr::memchr;

/// How deep a simple object nests at most.
const LEVELS: u32 = 16;

/// The most digits of a simple number: any such fits a double.
const DIGITS: usize = 100;

/// Whether `text`, which is UTF-8, is a JSON object that [`crate::Metadata`] keeps as it is, by
/// this quick look: no escapes, no exponents, no white space but single spaces, little nesting, and
/// none of the names in `reserved` among its own members. `false` says nothing but that a parser
/// must look. O(n).
pub(crate) fn is_simple_object(text: &str, reserved: &[&str]) -> bool {
    // Without a branch, so that many bytes are looked at in one instruction.
    let is_unescaped = |so_far, &byte: &u8| so_far & (byte >= b' ') & (byte != b'\\');
    if !text.as_bytes().iter().fold(true, is_unescaped) {
        return false;
    }
    let mut look = Look {
        rest: text.as_bytes(),
    };
    look.object(LEVELS, reserved).is_some() && look.rest.is_empty()
}

struct Look<'a> {
    rest: &'a [u8],
}

impl<'a> Look<'a> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn skip(&mut self, expected: u8) -> bool {
        let is_next = self.rest.first() == Some(&expected);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    fn object(&mut self, levels: u32, reserved: &[&str]) -> Option<()> {
        self.skip(b'{').then_some(())?;
        if self.skip(b'}') {
            return Some(());
        }
        loop {
            self.skip(b' ');
            let name = self.string()?;
            if reserved.iter().any(|reserved| reserved.as_bytes() == name) {
                return None;
            }
            self.skip(b':').then_some(())?;
            self.skip(b' ');
            self.value(levels)?;
            match self.next()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    fn array(&mut self, levels: u32) -> Option<()> {
        self.skip(b'[').then_some(())?;
        if self.skip(b']') {
            return Some(());
        }
        loop {
            self.skip(b' ');
            self.value(levels)?;
            match self.next()? {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    fn value(&mut self, levels: u32) -> Option<()> {
        match self.rest.first()? {
            b'"' => self.string().map(drop),
            b'{' => self.object(levels.checked_sub(1)?, &[]),
            b'[' => self.array(levels.checked_sub(1)?),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        self.skip(b'"').then_some(())?;
        let end = memchr(b'"', self.rest)?;
        let (text, rest) = (&self.rest[..end], &self.rest[end + 1..]);
        self.rest = rest;
        Some(text)
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        self.skip(b'-');
        let whole = self.digits()?;
        if whole.len() > 1 && whole[0] == b'0' {
            return None;
        }
        if self.skip(b'.') {
            self.digits()?;
        }
        // An exponent is left over, and nothing takes it.
        Some(())
    }

    fn digits(&mut self) -> Option<&'a [u8]> {
        let is_other = |byte: &u8| !byte.is_ascii_digit();
        let end = self.rest.iter().position(is_other)?;
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        (1..=DIGITS).contains(&digits.len()).then_some(digits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::is_simple_object;
    use crate::Metadata;

    const RESERVED: [&str; 2] = ["acquired_at", "heartbeat_count"];

    #[test]
    fn what_clients_send_is_simple() {
        for text in [
            "{}",
            r#"{"a":1}"#,
            r#"{"user_email":"a@example.com","n":-12.5,"list":[1, true, null, []],"deep":{"acquired_at":{}}}"#,
            r#"{"user_email": "ünï", "hardware_id": "hw-001"}"#,
        ] {
            assert!(is_simple_object(text, &RESERVED), "{text}");
        }
    }

    #[test]
    fn what_needs_a_parser_is_not() {
        let digits = format!(r#"{{"a":{}}}"#, "1".repeat(101));
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(17), "]".repeat(17));
        for text in [
            "",
            "{",
            "}",
            "[]",
            "{}x",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":1e5}"#,
            r#"{"a":01}"#,
            r#"{"a":-}"#,
            r#"{"a":1.}"#,
            r#"{"a":.5}"#,
            r#"{"a":+1}"#,
            r#"{"a":tru}"#,
            r#"{"a":"\n"}"#,
            "{\"a\":\"\n\"}",
            r#"{"a":[1,]}"#,
            r#"{"a":[}"#,
            r#"{"a":1 }"#,
            r#"{"acquired_at":1}"#,
            r#"{"a":1,"heartbeat_count":2}"#,
            r#"{"a":1"#,
            r#"{"a":"x"#,
            r#"{"a":1]"#,
            &digits,
            &deep,
        ] {
            assert!(!is_simple_object(text, &RESERVED), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

        #[test]
        fn what_is_simple_is_what_a_json_parser_takes(
            text in r#"\{("[ab ]{0,2}": ?(-?[0-9]{1,3}(\.[0-9]{0,2})?(e[0-9])?|"[a-z\\n]{0,3}"|true|null|\[[0-9, ]{0,4}\]|\{\}|\{"a":1\}|.),? ?){0,3}\}?"#
        ) {
            if is_simple_object(&text, &RESERVED) {
                let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
                prop_assert!(value.is_object());
                prop_assert!(Metadata::is_stored_form(text.as_bytes()));
            }
        }
    }
}
