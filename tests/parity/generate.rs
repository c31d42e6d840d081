//! Histories: few keys, few sessions and small limits, so that they collide.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::differences::is_option;
use super::json::LONGEST;
use super::step::{Action, Step};

const KEYS: [&[u8]; 3] = [b"LIC-1", b"bin\0\r\n\xff", "{größe}:🪑".as_bytes()];

/// Ids that look like options, integers and parts of the protocol among them.
fn sessions() -> Vec<Vec<u8>> {
    let ids: [&[u8]; 7] = [
        b"s1",
        b"s2",
        b"s3",
        b"EX",
        b"-1",
        b"\0\xff\r\n$-1\r\n",
        "sitzung-ü-🪑".as_bytes(),
    ];
    let mut ids: Vec<_> = ids.map(<[u8]>::to_vec).into();
    ids.push(vec![b'x'; 1024]);
    ids
}

/// Histories in which both sides must answer the same bytes.
pub fn plain(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(plain_step(), 1..=longest)
}

/// Histories in which every third step or so is one that a careful client would not send.
pub fn odd(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(prop_oneof![2 => plain_step(), 1 => odd_step()], 1..=longest)
}

fn plain_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => step(Action::Acquire, (session(), seats(), metadata())
            .prop_map(|(session, seats, metadata)| vec![session, seats.into(), metadata.into_bytes()])),
        6 => step(Action::Heartbeat, (any_session(), heartbeat_metadata())
            .prop_map(|(session, metadata)| [vec![session], metadata].concat())),
        6 => step(Action::Release, any_session().prop_map(|session| vec![session])),
        1 => step(Action::Drop, Just(Vec::new())),
    ]
}

fn odd_step() -> impl Strategy<Value = Step> {
    let acquire =
        |session: Vec<u8>, seats: &str, metadata: Vec<u8>| vec![session, seats.into(), metadata];
    prop_oneof![
        step(
            Action::Acquire,
            (session(), odd_seats(), metadata()).prop_map(move |(session, seats, metadata)| {
                acquire(session, seats, metadata.into())
            })
        ),
        step(
            Action::Acquire,
            (session(), seats(), odd_metadata())
                .prop_map(move |(session, seats, metadata)| acquire(session, seats, metadata))
        ),
        step(
            Action::Acquire,
            (session(), seats()).prop_map(|(session, seats)| vec![session, seats.into()])
        ),
        step(
            Action::Acquire,
            (odd_session(), seats(), metadata()).prop_map(move |(session, seats, metadata)| {
                acquire(session, seats, metadata.into())
            })
        ),
        odd_arity(Action::Acquire, [0, 1, 4, 5]),
        odd_arity(Action::Heartbeat, [0, 3, 4, 5]),
        odd_arity(Action::Release, [0, 2, 3, 4]),
    ]
}

fn step(
    action: Action,
    arguments: impl Strategy<Value = Vec<Vec<u8>>>,
) -> impl Strategy<Value = Step> {
    (select(KEYS.to_vec()), arguments).prop_map(move |(key, arguments)| Step {
        action,
        key: key.to_vec(),
        arguments,
    })
}

/// Right arguments, of which some are missing or followed by others.
fn odd_arity(action: Action, counts: [usize; 4]) -> impl Strategy<Value = Step> {
    let arguments = (session(), seats(), metadata(), select(counts.to_vec())).prop_map(
        move |(session, seats, metadata, count)| {
            let mut arguments = vec![session];
            if action == Action::Acquire {
                arguments.push(seats.into());
            }
            arguments.extend([
                metadata.into_bytes(),
                b"extra".to_vec(),
                Vec::new(),
                b"7".to_vec(),
            ]);
            arguments.truncate(count);
            arguments
        },
    );
    step(action, arguments)
}

fn session() -> impl Strategy<Value = Vec<u8>> {
    select(sessions())
}

/// An id that no session can have.
fn odd_session() -> impl Strategy<Value = Vec<u8>> {
    select(vec![Vec::new(), vec![b'x'; 1025]])
}

fn any_session() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![20 => session(), 1 => odd_session()]
}

fn seats() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        8 => select(vec!["1", "2", "3", "4"]),
        2 => select(vec!["0", "-1", "1000000", "9007199254740992", "-9007199254740992", "-9223372036854775808"]),
    ]
}

fn odd_seats() -> impl Strategy<Value = &'static str> {
    select(vec![
        "5.7",
        "0x2",
        " 2",
        "2 ",
        "1e0",
        "+2",
        "002",
        "2.0",
        "inf",
        "-inf",
        "nan",
        "-0",
        "two",
        "",
        "1,000",
        "9007199254740993",
        "-9007199254740993",
        "9223372036854775805",
        "9223372036854775808",
    ])
}

/// The second argument of HEARTBEAT means nothing, so it may be anything but an option.
fn heartbeat_metadata() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop_oneof![
        2 => Just(Vec::new()),
        1 => metadata().prop_map(|metadata| vec![metadata.into_bytes()]),
        1 => vec(any::<u8>(), 0..20)
            .prop_filter("an option", |garbage| !is_option(garbage))
            .prop_map(|garbage| vec![garbage]),
    ]
}

fn metadata() -> BoxedStrategy<String> {
    prop_oneof![
        1 => Just("{}".to_owned()),
        4 => typical(),
        6 => objects(scalar(), 1),
        1 => (0..200_usize).prop_map(|less| padded(LONGEST - less)),
    ]
    .boxed()
}

fn odd_metadata() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        // What cjson rewrites.
        3 => objects(prop_oneof![scalar(), long_number()], 0).prop_map(String::into_bytes),
        // One byte off.
        3 => (typical(), any::<prop::sample::Index>(), any::<u8>(), 0..3).prop_map(|(text, at, byte, how)| {
            let mut text = text.into_bytes();
            let at = at.index(text.len());
            match how {
                0 => drop(text.remove(at)),
                1 => text.insert(at, byte),
                _ => text[at] = byte,
            }
            text
        }),
        2 => odd_count().prop_map(|count| format!(r#"{{"heartbeat_count":{count}}}"#).into_bytes()),
        2 => select(vec![
            "", "nonsense", "[]", "[1]", "null", "true", "1", "\"text\"", "{", "{}{}", "{'a':1}", "{\"a\":1,}", "{\"a\":NaN}",
            "{\"a\":0x10}", "{\"a\":01}", "{\"a\":+1}", "{\"a\":1.}", "{\"a\":1e400}", "{\"a\":\"\\ud800\"}", "{\"a\":\"\t\"}",
            "\u{feff}{}",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..40),
        1 => (1..200_usize).prop_map(|more| padded(LONGEST + more).into_bytes()),
    ]
}

fn odd_count() -> impl Strategy<Value = &'static str> {
    select(vec![
        "null",
        "true",
        "false",
        "\"three\"",
        "\"3\"",
        "2.7",
        "3.0",
        "1e2",
        "{}",
        "[3]",
        "99999999999999999999",
    ])
}

/// What the documents' clients send.
fn typical() -> BoxedStrategy<String> {
    (0..100_u32)
        .prop_map(|n| {
            format!(
                r#"{{"user_email": "user{n}@example.com", "hardware_id": "hw-{n:04}", "project_root": "/home/user/project", "n": {n}}}"#
            )
        })
        .boxed()
}

fn padded(length: usize) -> String {
    let empty = r#"{"pad":""}"#.len();
    format!(r#"{{"pad":"{}"}}"#, "p".repeat(length - empty))
}

/// Objects of any shape, the reserved names among their fields; lists have at least `shortest_list`
/// elements.
fn objects(
    leaf: impl Strategy<Value = String> + 'static,
    shortest_list: usize,
) -> BoxedStrategy<String> {
    let space = select(vec!["", " ", "\n\t"]);
    let value = leaf
        .prop_recursive(3, 12, 4, move |inner| {
            prop_oneof![
                vec(inner.clone(), shortest_list..4)
                    .prop_map(|elements| format!("[{}]", elements.join(","))),
                vec((text(), inner), 0..4).prop_map(|fields| joined(&fields, "")),
            ]
        })
        .boxed();
    let overwritten = spellings(&["acquired_at", "last_heartbeat"]);
    let count = spellings(&["heartbeat_count"]);
    let field = prop_oneof![
        6 => (text(), value.clone()),
        2 => (overwritten, value),
        1 => (count, (-10_000_000_000_000..10_000_000_000_000_i64).prop_map(|count| count.to_string())),
    ];
    (vec(field, 0..6), space)
        .prop_map(|(fields, space)| joined(&fields, space))
        .boxed()
}

fn joined(fields: &[(String, String)], space: &str) -> String {
    let fields: Vec<_> = fields
        .iter()
        .map(|(key, value)| format!("{space}{key}{space}:{space}{value}{space}"))
        .collect();
    format!("{space}{{{}}}{space}", fields.join(","))
}

/// Names as such and with an escape in them.
fn spellings(names: &[&str]) -> impl Strategy<Value = String> + use<> {
    let plain = names.iter().map(|name| format!("\"{name}\""));
    let escaped = names
        .iter()
        .map(|name| format!("\"{}\"", name.replace('_', "\\u005f")));
    select(plain.chain(escaped).collect::<Vec<_>>())
}

/// What cjson reads and writes without a change of value.
fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec!["null", "true", "false"]).prop_map(str::to_owned),
        any::<i32>().prop_map(|number| number.to_string()),
        (-99_999_999_999_999..=99_999_999_999_999_i64).prop_map(|number| number.to_string()),
        (any::<i16>(), 0..100_000_u32).prop_map(|(whole, part)| format!("{whole}.{part}")),
        (
            -9999..9999_i32,
            select(vec!["e", "E", "e+", "e-"]),
            0..20_u32
        )
            .prop_map(|(digits, e, exponent)| format!("{digits}{e}{exponent}")),
        text(),
    ]
}

fn long_number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(|number| format!("{number:e}")),
    ]
}

/// A JSON text of any characters, few enough to repeat, as they are or escaped.
fn text() -> impl Strategy<Value = String> {
    let characters = prop_oneof![4 => select(vec!['a', 'b', '/', '"', '\\', '\0', '\u{7f}', 'é', '🪑']), 1 => any::<char>()];
    (vec(characters, 0..4), any::<bool>()).prop_map(|(characters, escaped)| {
        let text: String = characters.into_iter().collect();
        if escaped {
            let units: String = text
                .encode_utf16()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect();
            format!("\"{units}\"")
        } else {
            serde_json::to_string(&text).expect("a text is JSON")
        }
    })
}
