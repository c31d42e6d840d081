//! What counts as the same metadata, and what the scripts' JSON library makes of it.

use serde::Deserialize;
use serde_json::{Map, Value};

pub type Object = Map<String, Value>;

/// The deepest nesting that either side takes.
pub const DEEPEST: usize = 1000;

/// The longest metadata that the module takes.
pub const LONGEST: usize = 16384;

/// The object in `text`, if it is one by RFC 8259.
pub fn object(text: &[u8]) -> Option<Object> {
    if nesting(text) > DEEPEST {
        return None;
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    deserializer.disable_recursion_limit();
    let value = Value::deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    match value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

/// How deep the brackets go, those in strings left out.
fn nesting(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Equal as JSON: the order of keys and the spelling of numbers and texts do not matter, types and
/// values do.
pub fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => match (one.as_i128(), other.as_i128()) {
            (Some(one), Some(other)) => one == other,
            _ => one.as_f64() == other.as_f64(),
        },
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => same_object(one, other),
        _ => one == other,
    }
}

/// As [`same`], of objects.
pub fn same_object(one: &Object, other: &Object) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
}

/// Whether cjson changes `value` by reading and writing it: a number of more than fourteen digits,
/// an empty array.
pub fn cjson_changes(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().expect("a finite number");
            let written: f64 = format!("{float:.13e}").parse().expect("a number");
            written != float || number.as_i128().is_some_and(|exact| float as i128 != exact)
        }
        Value::Array(elements) => elements.is_empty() || elements.iter().any(cjson_changes),
        Value::Object(object) => cjson_changes_object(object),
        _ => false,
    }
}

/// As [`cjson_changes`], of an object.
pub fn cjson_changes_object(object: &Object) -> bool {
    object.values().any(cjson_changes)
}

/// The metadata without what the server writes into it at each grant and heartbeat.
pub fn without_timestamps(mut object: Object) -> Object {
    object.remove("acquired_at");
    object.remove("last_heartbeat");
    object
}
