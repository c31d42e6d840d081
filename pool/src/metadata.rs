//! The JSON object that a caller gives to its session.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::MAX_SECOND;
use crate::json_fast_path::is_simple_object;

/// How deep arrays and objects may nest, the object itself included: cjson's own limit in the
/// scripts.
pub const MAX_NESTING: u32 = 1000;

/// What a session is granted with: the caller's object, checked, and without the names that the
/// pool keeps itself.
///
/// ```
/// use seat_pool::Metadata;
///
/// let sent = br#"{"host":"laptop-17","heartbeat_count":3,"acquired_at":0}"#;
/// let metadata = Metadata::parse(sent, 16_384)?;
/// assert_eq!(*metadata.text, *br#"{"host":"laptop-17"}"#);
/// assert_eq!(metadata.heartbeat_count, Some(3));
/// # Ok::<(), seat_pool::MetadataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// The text of the object as the caller sent it. Only if it names `acquired_at`,
    /// `last_heartbeat` or `heartbeat_count`, then those members are left out: the scripts
    /// overwrote the former two, and the latter is [`Metadata::heartbeat_count`].
    pub text: Cow<'a, [u8]>,
    /// Where the caller makes the count of heartbeats start.
    pub heartbeat_count: Option<i64>,
}

/// What the scripts stored for a session: the caller's object with what they kept in it themselves.
///
/// ```
/// use seat_pool::Stored;
///
/// let field = br#"{"host":"laptop-17","acquired_at":1700000000.9,"last_heartbeat":1700000050}"#;
/// let stored = Stored::parse(field, 16_384)?;
/// assert_eq!(*stored.metadata.text, *br#"{"host":"laptop-17"}"#);
/// assert_eq!(stored.acquired_at, Some(1_700_000_000));
/// assert_eq!(stored.last_heartbeat, Some(1_700_000_050));
/// # Ok::<(), seat_pool::MetadataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    /// The caller's part, and the count of heartbeats.
    pub metadata: Metadata<'a>,
    /// When the seat was granted, in seconds of unix time.
    pub acquired_at: Option<u32>,
    /// The last sign of life, in seconds of unix time.
    pub last_heartbeat: Option<u32>,
}

/// Why a caller's metadata is refused.
///
/// ```
/// use seat_pool::{Metadata, MetadataError};
///
/// assert_eq!(Metadata::parse(b"[1]", 100), Err(MetadataError::NotAnObject));
/// let error = Metadata::parse(b"{}", 1).unwrap_err();
/// assert_eq!(error.to_string(), "metadata must be at most 1 bytes");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataError {
    /// Not a JSON object by RFC 8259 in UTF-8, or one with a number that no double can hold or a
    /// string that is not unicode.
    NotAnObject,
    /// Longer than the limit of this many bytes.
    TooLong(usize),
    /// Arrays and objects nest deeper than [`MAX_NESTING`].
    TooDeep,
    /// `heartbeat_count` is not an integer literal of 64 bits, so that no heartbeat could count on
    /// from it.
    CountNotAnInteger,
    /// `acquired_at` or `last_heartbeat` of a stored object is not a number of seconds that a
    /// session can hold.
    NotATime,
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => f.write_str("metadata must be a JSON object (RFC 8259, UTF-8)"),
            Self::TooLong(limit) => write!(f, "metadata must be at most {limit} bytes"),
            Self::TooDeep => write!(f, "metadata must not nest deeper than {MAX_NESTING} levels"),
            Self::CountNotAnInteger => {
                f.write_str("heartbeat_count in metadata must be an integer of 64 bits")
            }
            Self::NotATime => f.write_str(
                "acquired_at and last_heartbeat in metadata must be seconds of unix time",
            ),
        }
    }
}

impl std::error::Error for MetadataError {}

impl Metadata<'_> {
    /// The metadata of a session whose caller gave none.
    pub const NONE: Metadata<'static> = Metadata {
        text: Cow::Borrowed(b"{}"),
        heartbeat_count: None,
    };

    /// The same, independent of the text that it was parsed from. O(n), since it is copied.
    pub fn into_owned(self) -> Metadata<'static> {
        Metadata {
            text: Cow::Owned(self.text.into_owned()),
            heartbeat_count: self.heartbeat_count,
        }
    }

    /// Checks `raw`, at most `limit` bytes of it, and takes out the names that the pool keeps
    /// itself. They match after unescaping, and of duplicates the last wins, as with every JSON
    /// parser that the scripts' readers use. O(n).
    ///
    /// Fails with any [`MetadataError`] but [`MetadataError::NotATime`]: what a caller sends as
    /// timestamps is dropped, whatever it is.
    pub fn parse(raw: &[u8], limit: usize) -> Result<Metadata<'_>, MetadataError> {
        parse(raw, limit).map(|(metadata, _)| metadata)
    }

    /// Whether `text` can stand in a pool as it is: an object that [`Metadata::parse`] would
    /// neither refuse nor change, of at most [`crate::MAX_METADATA_BYTES`]. O(n).
    ///
    /// ```
    /// use seat_pool::Metadata;
    ///
    /// assert!(Metadata::is_stored_form(br#"{"host":"laptop-17"}"#));
    /// assert!(!Metadata::is_stored_form(br#"{"heartbeat_count":3}"#));
    /// assert!(!Metadata::is_stored_form(b" {}"));
    /// ```
    pub fn is_stored_form(text: &[u8]) -> bool {
        Metadata::parse(text, crate::MAX_METADATA_BYTES).is_ok_and(|metadata| {
            metadata.heartbeat_count.is_none()
                && matches!(metadata.text, Cow::Borrowed(kept) if kept == text)
        })
    }
}

impl Stored<'_> {
    /// As [`Metadata::parse`], with the timestamps. Fractions of a second, which the scripts never
    /// wrote, are dropped. O(n).
    ///
    /// Fails likewise, and with [`MetadataError::NotATime`].
    pub fn parse(raw: &[u8], limit: usize) -> Result<Stored<'_>, MetadataError> {
        let (metadata, found) = parse(raw, limit)?;
        let second = |literal: Option<&str>| {
            let second =
                literal.map(|literal| whole_seconds(literal).ok_or(MetadataError::NotATime));
            second.transpose()
        };
        Ok(Stored {
            metadata,
            acquired_at: second(found.acquired_at)?,
            last_heartbeat: second(found.last_heartbeat)?,
        })
    }
}

fn parse(raw: &[u8], limit: usize) -> Result<(Metadata<'_>, Found<'_>), MetadataError> {
    if raw.len() > limit {
        return Err(MetadataError::TooLong(limit));
    }
    let text = std::str::from_utf8(raw).map_err(|_| MetadataError::NotAnObject)?;
    if is_simple_object(text, &Name::RESERVED) {
        let metadata = Metadata {
            text: Cow::Borrowed(raw),
            heartbeat_count: None,
        };
        return Ok((metadata, Found::default()));
    }
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    let too_deep = Cell::new(false);
    let found = parse_with(
        text,
        TopLevel {
            too_deep: &too_deep,
        },
    )
    .map_err(|_| {
        if too_deep.get() {
            MetadataError::TooDeep
        } else {
            MetadataError::NotAnObject
        }
    })?;
    let heartbeat_count = match found.count {
        None => None,
        Some(literal) => Some(integer(literal).ok_or(MetadataError::CountNotAnInteger)?),
    };
    let text = if found.reserved {
        Cow::Owned(without_reserved(text).map_err(|_| MetadataError::NotAnObject)?)
    } else {
        Cow::Borrowed(text.as_bytes())
    };
    let metadata = Metadata {
        text,
        heartbeat_count,
    };
    Ok((metadata, found))
}

/// Whether an object in stored form has no members.
pub(crate) fn is_empty_object(object: &[u8]) -> bool {
    object[1..object.len() - 1].trim_ascii().is_empty()
}

/// The value of a JSON number without fraction and exponent. JSON's grammar is stricter than
/// `parse`, but it has been checked. The lowest number of 64 bits is left out: [`crate::Session`]
/// has a use for it.
fn integer(literal: &str) -> Option<i64> {
    literal.parse().ok().filter(|&count| count != i64::MIN)
}

/// The seconds of a JSON number, as far as a session's timestamps go.
fn whole_seconds(literal: &str) -> Option<u32> {
    let seconds: f64 = literal.parse().ok()?;
    let is_number = literal.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    (is_number && (0.0..f64::from(MAX_SECOND) + 1.0).contains(&seconds)).then_some(seconds as u32)
}

fn parse_with<'de, S: DeserializeSeed<'de>>(
    text: &'de str,
    seed: S,
) -> serde_json::Result<S::Value> {
    let mut parser = serde_json::Deserializer::from_str(text);
    // The seeds count the nesting themselves, up to MAX_NESTING.
    parser.disable_recursion_limit();
    let value = seed.deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// The object again without the members that the pool keeps itself.
fn without_reserved(text: &str) -> serde_json::Result<Vec<u8>> {
    struct Members;

    impl<'de> DeserializeSeed<'de> for Members {
        type Value = Vec<u8>;

        fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
            from.deserialize_map(self)
        }
    }

    impl<'de> Visitor<'de> for Members {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut object = vec![b'{'];
            while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                if Name::of(&name) != Name::Other {
                    continue;
                }
                if object.len() > 1 {
                    object.push(b',');
                }
                serde_json::to_writer(&mut object, &name).map_err(de::Error::custom)?;
                object.push(b':');
                object.extend_from_slice(value.get().as_bytes());
            }
            object.push(b'}');
            Ok(object)
        }
    }

    parse_with(text, Members)
}

/// A member's name, as far as the pool cares.
#[derive(PartialEq, Eq)]
enum Name {
    Count,
    AcquiredAt,
    LastHeartbeat,
    Other,
}

impl Name {
    const RESERVED: [&str; 3] = ["heartbeat_count", "acquired_at", "last_heartbeat"];

    fn of(name: &str) -> Name {
        match name {
            "heartbeat_count" => Name::Count,
            "acquired_at" => Name::AcquiredAt,
            "last_heartbeat" => Name::LastHeartbeat,
            _ => Name::Other,
        }
    }
}

impl<'de> de::Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                Ok(Name::of(name))
            }
        }

        from.deserialize_str(Text)
    }
}

/// What the first pass over an object finds.
#[derive(Default)]
struct Found<'de> {
    reserved: bool,
    /// The text of the last `heartbeat_count`, and those of the timestamps.
    count: Option<&'de str>,
    acquired_at: Option<&'de str>,
    last_heartbeat: Option<&'de str>,
}

struct TopLevel<'a> {
    too_deep: &'a Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for TopLevel<'_> {
    type Value = Found<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TopLevel<'_> {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let checked = Checked {
            levels_left: MAX_NESTING - 1,
            too_deep: self.too_deep,
        };
        let mut found = Found::default();
        while let Some(name) = map.next_key::<Name>()? {
            let place = match name {
                Name::Count => &mut found.count,
                Name::AcquiredAt => &mut found.acquired_at,
                Name::LastHeartbeat => &mut found.last_heartbeat,
                Name::Other => {
                    map.next_value_seed(checked)?;
                    continue;
                }
            };
            let text = map.next_value::<&RawValue>()?.get();
            if name != Name::Count {
                // A count is looked at more closely later.
                parse_with(text, checked).map_err(de::Error::custom)?;
            }
            found.reserved = true;
            *place = Some(text);
        }
        Ok(found)
    }
}

/// Reads any value through and keeps nothing of it. Reading it, rather than skipping it, is what
/// finds the numbers and strings that are JSON by grammar but cannot be decoded.
#[derive(Clone, Copy)]
struct Checked<'a> {
    levels_left: u32,
    too_deep: &'a Cell<bool>,
}

impl Checked<'_> {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        let Some(levels_left) = self.levels_left.checked_sub(1) else {
            self.too_deep.set(true);
            return Err(E::custom("nested too deep"));
        };
        Ok(Checked {
            levels_left,
            ..self
        })
    }
}

impl<'de> DeserializeSeed<'de> for Checked<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Checked<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        let item = self.deeper()?;
        while array.next_element_seed(item)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let value = self.deeper()?;
        while map.next_key::<Name>()?.is_some() {
            map.next_value_seed(value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{Metadata, MetadataError};

    fn parse(raw: &str) -> Result<(String, Option<i64>), MetadataError> {
        let metadata = Metadata::parse(raw.as_bytes(), 100_000)?;
        let text = String::from_utf8(metadata.text.into_owned()).expect("text stays UTF-8");
        Ok((text, metadata.heartbeat_count))
    }

    fn kept(raw: &str) {
        assert_eq!(parse(raw), Ok((raw.to_owned(), None)), "{raw}");
        let metadata = Metadata::parse(raw.as_bytes(), 100_000).unwrap();
        assert!(
            matches!(metadata.text, Cow::Borrowed(_)),
            "{raw} is not copied"
        );
    }

    #[test]
    fn an_object_is_kept_as_sent() {
        kept("{}");
        kept("{ }");
        kept(r#"{"z":1,"a":[],"m":{"/":"\/","n":12345678901234567890,"f":1.50,"e":1e3}}"#);
        kept("{\"emoji\":\"\u{1f600}\",\"escaped\":\"\\ud83d\\ude00\\u0000\"}");
        kept(r#"{"a":1,"a":2}"#);
        kept(r#"{"inner":{"heartbeat_count":null,"acquired_at":[]}}"#);
    }

    #[test]
    fn white_space_around_the_object_goes() {
        assert_eq!(
            parse(" \t\r\n{\"a\" : 1 }\n"),
            Ok(("{\"a\" : 1 }".into(), None))
        );
    }

    #[test]
    fn names_that_the_pool_keeps_are_taken_out() {
        for (raw, text, count) in [
            (r#"{"acquired_at":1}"#, "{}", None),
            (r#"{"last_heartbeat":{"x":[1]},"b":2}"#, r#"{"b":2}"#, None),
            (
                r#"{"a":"\/","heartbeat_count":7}"#,
                r#"{"a":"\/"}"#,
                Some(7),
            ),
            (
                r#"{"heartbeat_count":-3,"a":1.0,"b":[ ]}"#,
                r#"{"a":1.0,"b":[ ]}"#,
                Some(-3),
            ),
            (
                r#"{"acquired\u005fat":1,"heartbeat\u005fcount":2}"#,
                "{}",
                Some(2),
            ),
            (
                r#"{"heartbeat_count":null,"heartbeat_count":5}"#,
                "{}",
                Some(5),
            ),
            (
                r#"{"heartbeat_count":9223372036854775807}"#,
                "{}",
                Some(i64::MAX),
            ),
            (r#"{"heartbeat_count":-0}"#, "{}", Some(0)),
        ] {
            assert_eq!(parse(raw), Ok((text.to_owned(), count)), "{raw}");
        }
    }

    #[test]
    fn a_count_that_no_heartbeat_could_continue_is_refused() {
        for value in [
            "null",
            "\"5\"",
            "1.5",
            "1.0",
            "1e3",
            "false",
            "true",
            "{}",
            "[]",
            "9223372036854775808",
            "-9223372036854775808",
        ] {
            let raw = format!(r#"{{"heartbeat_count":{value}}}"#);
            assert_eq!(parse(&raw), Err(MetadataError::CountNotAnInteger), "{raw}");
            let raw = format!(r#"{{"heartbeat_count":1,"heartbeat_count":{value}}}"#);
            assert_eq!(parse(&raw), Err(MetadataError::CountNotAnInteger), "{raw}");
        }
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        for raw in [
            "",
            " ",
            "[]",
            "[{}]",
            "1",
            "\"{}\"",
            "null",
            "nan",
            "{",
            "{}}",
            "{} {}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{'a':1}",
            "{a:1}",
            "{\"a\":01}",
            "{\"a\":+1}",
            "{\"a\":.5}",
            "{\"a\":0x10}",
            "{\"a\":nan}",
            "{\"a\":Infinity}",
            "{\"a\":1e400}",
            "{\"a\":[-1e400]}",
            "{\"a\":\"\\ud800\"}",
            "{\"\\udc00\":1}",
            "{\"a\":\"\n\"}",
            "{\"a\":\"\\x\"}",
            "\u{feff}{}",
            "{}\0",
            "{\"a\":1}#",
            "/**/{}",
            "{\"heartbeat_count\":}",
            "{\"heartbeat_count\":1",
            "\u{a0}{}",
            "\u{b}{}",
        ] {
            assert_eq!(parse(raw), Err(MetadataError::NotAnObject), "{raw:?}");
        }
        for raw in [
            &b"{\"a\":\"\xff\"}"[..],
            b"{\"\xc0\xaf\":1}",
            b"\xed\xa0\x80{}",
        ] {
            let refused = Metadata::parse(raw, 100);
            assert_eq!(refused, Err(MetadataError::NotAnObject), "{raw:?}");
        }
    }

    #[test]
    fn nesting_ends_where_cjsons_does() {
        let nested = |open: &str, close: &str, levels: usize| {
            format!(
                "{{\"a\":{}1{}}}",
                open.repeat(levels - 1),
                close.repeat(levels - 1)
            )
        };
        for (open, close) in [("[", "]"), ("{\"b\":", "}")] {
            kept(&nested(open, close, 1000));
            assert_eq!(
                parse(&nested(open, close, 1001)),
                Err(MetadataError::TooDeep)
            );
            assert_eq!(
                parse(&nested(open, close, 10_000)),
                Err(MetadataError::TooDeep)
            );
        }
    }

    #[test]
    fn length_is_limited_before_anything_is_read() {
        let raw = [b' '; 101];
        assert_eq!(Metadata::parse(&raw, 100), Err(MetadataError::TooLong(100)));
    }
}
