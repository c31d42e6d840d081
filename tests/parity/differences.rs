//! Where the module differs from the scripts, on purpose: the whole list.
//!
//! Each entry says why, shows examples with what either side answers and then holds, and names the
//! steps of generated histories that it covers. A difference that no entry covers fails, and so
//! does an entry, example or covered step that no longer differs.

use std::sync::LazyLock;

use super::json::{self, DEEPEST, LONGEST, Object};
use super::pair::State;
use super::step::{Action, Step};

/// One deliberate difference.
pub struct Difference {
    pub name: &'static str,
    pub why: &'static str,
    pub covers: Covers,
    pub examples: Vec<Example>,
}

/// Where, in any history, this difference shows.
pub enum Covers {
    /// In these steps the module answers an error and changes nothing.
    Refusal(fn(&Step, &State) -> bool),
    /// In these steps the module's answer is this one.
    Answer(fn(&Step, &State) -> Option<Vec<u8>>),
    /// In the stored metadata: the answers are equal, and the module's metadata would be the
    /// scripts' if cjson rewrote it.
    Metadata(fn(&Object) -> bool),
    /// In no step of its own: the examples set a scene, or another entry covers it, too.
    Examples,
}

/// What either side makes of the same input.
pub enum Example {
    /// `steps`, then what each side answered and holds: `answer; answer | session={metadata without
    /// timestamps}, ..`. A session without metadata is one whose seat leaked. An `ERR ..` of the
    /// module need only begin so, and the scripts' errors, which are Lua's and vary between
    /// servers, are just `error`.
    Answers {
        steps: Vec<Step>,
        scripts: String,
        module: String,
    },
    /// A grant with this `metadata` is answered alike, but the module's text has `module` in it
    /// where the scripts' has `scripts`.
    Text {
        metadata: String,
        scripts: &'static str,
        module: &'static str,
    },
}

/// The entry that covers `step` on a pool with these sessions.
pub fn covering(step: &Step, sessions: &State) -> Option<&'static Difference> {
    table().iter().find(|difference| match difference.covers {
        Covers::Refusal(covers) => covers(step, sessions),
        Covers::Answer(answer) => answer(step, sessions).is_some(),
        Covers::Metadata(_) | Covers::Examples => false,
    })
}

/// Whether an entry lets the stored metadata differ.
pub fn in_metadata(metadata: &Object) -> bool {
    table().iter().any(|difference| match difference.covers {
        Covers::Metadata(covers) => covers(metadata),
        _ => false,
    })
}

/// All of them.
pub fn table() -> &'static [Difference] {
    static TABLE: LazyLock<Vec<Difference>> = LazyLock::new(entries);
    &TABLE
}

fn entries() -> Vec<Difference> {
    let mut table = arguments();
    table.extend(seats());
    table.extend(metadata());
    table.extend(scenes());
    table
}

/// Whether an argument is taken for an option of ACQUIRE or HEARTBEAT.
pub fn is_option(argument: &[u8]) -> bool {
    let names: [&[u8]; 10] = [
        b"EX",
        b"PX",
        b"WEIGHT",
        b"OWNER",
        b"MAX",
        b"TAKEOVER",
        b"WITHTOKEN",
        b"TOKEN",
        b"QUEUE",
        b"BLOCK",
    ];
    names.iter().any(|name| argument.eq_ignore_ascii_case(name))
}

fn arguments() -> Vec<Difference> {
    let long = "x".repeat(1025);
    vec![
        Difference {
            name: "a missing argument",
            why: "Redis's own error instead of Lua's, also where the script never got to use the argument",
            covers: Covers::Refusal(|step, _| match step.action {
                Action::Acquire => step.arguments.len() < 2,
                Action::Heartbeat | Action::Release => step.arguments.is_empty(),
                _ => false,
            }),
            examples: vec![
                answers(
                    &[Step::new(Action::Acquire, KEY, &[])],
                    "error | ",
                    "ERR wrong number of arguments | ",
                ),
                answers(
                    &[Step::new(Action::Acquire, KEY, &[b"s"])],
                    "error | ",
                    "ERR wrong number of arguments | ",
                ),
                answers(
                    &[
                        acquire("s", "5", "{}"),
                        Step::new(Action::Acquire, KEY, &[b"s"]),
                    ],
                    "1 ACQUIRED 1 5; 1 ALREADY_ACTIVE 1 | s={}",
                    "1 ACQUIRED 1 5; ERR wrong number of arguments | s={}",
                ),
                answers(
                    &[Step::new(Action::Heartbeat, KEY, &[])],
                    "error | ",
                    "ERR wrong number of arguments | ",
                ),
                answers(
                    &[Step::new(Action::Release, KEY, &[])],
                    "error | ",
                    "ERR wrong number of arguments | ",
                ),
            ],
        },
        Difference {
            name: "an extra argument",
            why: "a misspelt option must not be taken for a grant without it",
            covers: Covers::Refusal(|step, _| match step.action {
                Action::Acquire => step.arguments.len() > 3,
                Action::Heartbeat => step.arguments.len() > 2,
                Action::Release => step.arguments.len() > 1,
                _ => false,
            }),
            examples: vec![
                answers(
                    &[Step::new(
                        Action::Acquire,
                        KEY,
                        &[b"s", b"5", b"{}", b"extra"],
                    )],
                    "1 ACQUIRED 1 5 | s={}",
                    "ERR | ",
                ),
                answers(
                    &[
                        acquire("s", "5", "{}"),
                        Step::new(Action::Heartbeat, KEY, &[b"s", b"{}", b"extra"]),
                    ],
                    r#"1 ACQUIRED 1 5; 1 HEARTBEAT_UPDATED 1 | s={"heartbeat_count":1}"#,
                    "1 ACQUIRED 1 5; ERR | s={}",
                ),
                answers(
                    &[
                        acquire("s", "5", "{}"),
                        Step::new(Action::Release, KEY, &[b"s", b"extra"]),
                    ],
                    "1 ACQUIRED 1 5; 1 RELEASED 0 | ",
                    "1 ACQUIRED 1 5; ERR | s={}",
                ),
            ],
        },
        Difference {
            name: "metadata of a heartbeat that is the name of an option",
            why: "the script ignored what is an option now",
            covers: Covers::Refusal(|step, _| {
                step.action == Action::Heartbeat
                    && step.arguments.get(1).is_some_and(|word| is_option(word))
            }),
            examples: vec![answers(
                &[
                    acquire("s", "5", "{}"),
                    Step::new(Action::Heartbeat, KEY, &[b"s", b"px"]),
                ],
                r#"1 ACQUIRED 1 5; 1 HEARTBEAT_UPDATED 1 | s={"heartbeat_count":1}"#,
                "1 ACQUIRED 1 5; ERR PX needs a value | s={}",
            )],
        },
        Difference {
            name: "an empty session id",
            why: "it is a client's unset variable, and all such clients would share one seat",
            covers: Covers::Refusal(|step, _| {
                step.action == Action::Acquire && step.session() == Some(b"")
            }),
            examples: vec![answers(
                &[acquire("", "5", "{}")],
                "1 ACQUIRED 1 5 | ={}",
                "ERR session must not be empty | ",
            )],
        },
        Difference {
            name: "a session id of more than 1024 bytes",
            why: "what a caller can make the server remember is bounded",
            covers: Covers::Refusal(|step, _| {
                step.action == Action::Acquire
                    && step.session().is_some_and(|session| session.len() > 1024)
            }),
            examples: vec![answers(
                &[acquire(&long, "5", "{}")],
                &format!("1 ACQUIRED 1 5 | {long}={{}}"),
                "ERR session must be at most 1024 bytes | ",
            )],
        },
    ]
}

fn seats() -> Vec<Difference> {
    let granted = |spelling: &str, seats: &str| {
        answers(
            &[acquire("s", spelling, "{}")],
            &format!("1 ACQUIRED 1 {seats} | s={{}}"),
            "ERR seats must be a 64-bit integer | ",
        )
    };
    let refused = |spelling| {
        answers(
            &[acquire("s", spelling, "{}")],
            "error | ",
            "ERR seats must be a 64-bit integer | ",
        )
    };
    // What the processor makes of a double that no 64-bit integer can hold: some wrap, some
    // saturate.
    let (wild, nan) = match cfg!(target_arch = "x86_64") {
        true => ("-9223372036854775808", "-9223372036854775808"),
        false => ("9223372036854775807", "0"),
    };
    vec![
        Difference {
            name: "seats that are not an integer as Redis writes one",
            why: "Lua takes whatever C's strtod takes, and cuts the answer off; a limit is not to be guessed",
            covers: Covers::Refusal(|step, _| {
                step.action == Action::Acquire
                    && step.arguments.len() > 1
                    && strict_integer(&step.arguments[1]).is_none()
            }),
            examples: vec![
                granted("5.7", "5"),
                granted("0x10", "16"),
                granted(" 5", "5"),
                granted("5 ", "5"),
                granted("1e3", "1000"),
                granted("+5", "5"),
                granted("007", "7"),
                granted("5.0", "5"),
                granted("inf", wild),
                granted("nan", nan),
                granted("1e400", wild),
                granted("9223372036854775808", wild),
                answers(
                    &[acquire("s", "-0", "{}")],
                    "0 NO_SEATS_AVAILABLE 0 0 | ",
                    "ERR seats must be a 64-bit integer | ",
                ),
                refused("five"),
                refused(""),
                refused("1,000"),
            ],
        },
        Difference {
            name: "the same when the session is already active",
            why: "an argument is right or wrong whoever holds a seat",
            covers: Covers::Examples,
            examples: vec![
                answers(
                    &[acquire("s", "5", "{}"), acquire("s", "5.7", "{}")],
                    "1 ACQUIRED 1 5; 1 ALREADY_ACTIVE 1 | s={}",
                    "1 ACQUIRED 1 5; ERR seats must be a 64-bit integer | s={}",
                ),
                answers(
                    &[acquire("s", "5", "{}"), acquire("s", "five", "{}")],
                    "1 ACQUIRED 1 5; 1 ALREADY_ACTIVE 1 | s={}",
                    "1 ACQUIRED 1 5; ERR seats must be a 64-bit integer | s={}",
                ),
            ],
        },
        Difference {
            name: "seats above 2^53",
            why: "Lua's numbers are doubles; here all 64 bits count",
            covers: Covers::Answer(|step, sessions| {
                if step.action != Action::Acquire || sessions.contains_key(step.session()?) {
                    return None;
                }
                let seats = strict_integer(step.arguments.get(1)?)?;
                // A grant that goes on to an error is another difference.
                let granted = (sessions.len() as i64) < seats;
                let exact = seats as f64 as i128 == i128::from(seats);
                if exact || granted && !acceptable(step.arguments.get(2)?) {
                    return None;
                }
                let (done, word, used) = match granted {
                    true => (1, "ACQUIRED", sessions.len() + 1),
                    false => (0, "NO_SEATS_AVAILABLE", sessions.len()),
                };
                Some(
                    format!(
                        "*4\r\n:{done}\r\n${}\r\n{word}\r\n:{used}\r\n:{seats}\r\n",
                        word.len()
                    )
                    .into_bytes(),
                )
            }),
            examples: vec![
                answers(
                    &[acquire("s", "9007199254740993", "{}")],
                    "1 ACQUIRED 1 9007199254740992 | s={}",
                    "1 ACQUIRED 1 9007199254740993 | s={}",
                ),
                answers(
                    &[acquire("s", "9223372036854775805", "{}")],
                    &format!("1 ACQUIRED 1 {wild} | s={{}}"),
                    "1 ACQUIRED 1 9223372036854775805 | s={}",
                ),
                answers(
                    &[acquire("s", "-9007199254740993", "{}")],
                    "0 NO_SEATS_AVAILABLE 0 -9007199254740992 | ",
                    "0 NO_SEATS_AVAILABLE 0 -9007199254740993 | ",
                ),
            ],
        },
    ]
}

fn metadata() -> Vec<Difference> {
    let object = "ERR metadata must be a JSON object";
    let leaks = |metadata: &str, error: &str| {
        answers(
            &[acquire("s", "5", metadata), acquire("s", "5", "{}")],
            "error; 1 ALREADY_ACTIVE 1 | s",
            &format!("{error}; 1 ACQUIRED 1 5 | s={{}}"),
        )
    };
    let taken = |metadata: &[u8], stored: &str, error: &str| {
        answers(
            &[Step::new(Action::Acquire, KEY, &[b"s", b"5", metadata])],
            &format!("1 ACQUIRED 1 5 | s={stored}"),
            &format!("{error} | "),
        )
    };
    let count = |literal: &str, answer: &str, counted: &str| {
        answers(
            &[
                acquire("s", "5", &format!(r#"{{"heartbeat_count":{literal}}}"#)),
                heartbeat("s"),
            ],
            &format!(r#"1 ACQUIRED 1 5; {answer} | s={{"heartbeat_count":{counted}}}"#),
            "ERR heartbeat_count in metadata must be an integer; 0 SESSION_NOT_ACTIVE | ",
        )
    };
    let padded =
        |length: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(length - r#"{"a":""}"#.len()));
    let nested = |depth: usize| {
        let arrays = depth - 1;
        format!(r#"{{"a":{}{}}}"#, "[".repeat(arrays), "]".repeat(arrays))
    };
    vec![
        Difference {
            name: "metadata left out",
            why: "the script fails after it took the seat, which leaks; to have no metadata is legitimate",
            covers: Covers::Answer(|step, sessions| {
                let seats = strict_integer(step.arguments.get(1)?)?;
                let fresh =
                    step.action == Action::Acquire && !sessions.contains_key(step.session()?);
                let granted = fresh && step.arguments.len() == 2 && (sessions.len() as i64) < seats;
                granted.then(|| {
                    format!(
                        "*4\r\n:1\r\n$8\r\nACQUIRED\r\n:{}\r\n:{seats}\r\n",
                        sessions.len() + 1
                    )
                    .into_bytes()
                })
            }),
            examples: vec![answers(
                &[
                    Step::new(Action::Acquire, KEY, &[b"s", b"5"]),
                    heartbeat("s"),
                ],
                "error; 0 METADATA_NOT_FOUND | s",
                r#"1 ACQUIRED 1 5; 1 HEARTBEAT_UPDATED 1 | s={"heartbeat_count":1}"#,
            )],
        },
        Difference {
            name: "metadata that the scripts choke on",
            why: "the script fails after it took the seat: it leaks, and the retry says ALREADY_ACTIVE. Here nothing changes",
            covers: Covers::Examples,
            examples: vec![
                leaks("nonsense", object),
                leaks("", object),
                leaks(r#"{"a":1"#, object),
                leaks("{'a':1}", object),
                leaks(r#"{"a":1,}"#, object),
                leaks(r#"{"a":1} {}"#, object),
                leaks(r#"{"a":.5}"#, object),
                leaks(r#"{"a":NaN}"#, object),
                leaks(r#"{"a":-Infinity}"#, object),
                leaks("null", object),
                leaks("true", object),
                leaks("1", object),
                leaks(r#""text""#, object),
                leaks(r#"{"a":1e400}"#, object),
                leaks(r#"{"a":"\ud800"}"#, object),
                leaks(
                    &nested(DEEPEST + 1),
                    "ERR metadata must not nest deeper than 1000 levels",
                ),
            ],
        },
        Difference {
            name: "metadata that is no JSON object but that cjson takes for one",
            why: "the scripts' library reads more than RFC 8259, and a list as a table; whoever reads the pool would have to as well",
            covers: Covers::Refusal(|step, sessions| {
                would_be_granted(step, sessions)
                    && step
                        .arguments
                        .get(2)
                        .is_some_and(|text| !acceptable_object(text))
            }),
            examples: vec![
                taken(b"[7,8]", r#"{"1":7,"2":8}"#, object),
                taken(b"[]", "{}", object),
                taken(br#"{"a":0x10}"#, r#"{"a":16}"#, object),
                taken(br#"{"a":+1}"#, r#"{"a":1}"#, object),
                taken(br#"{"a":01}"#, r#"{"a":1}"#, object),
                taken(br#"{"a":1.}"#, r#"{"a":1}"#, object),
                taken(b"{\"a\":\"a\tb\"}", r#"{"a":"a\tb"}"#, object),
                taken(b"{\"a\":\"\xff\"}", "not JSON", object),
                taken(b"{\"a\":1}\0", r#"{"a":1}"#, object),
            ],
        },
        Difference {
            name: "metadata of more than 16384 bytes",
            why: "what a caller can make the server remember is bounded",
            covers: Covers::Refusal(|step, sessions| {
                would_be_granted(step, sessions)
                    && step
                        .arguments
                        .get(2)
                        .is_some_and(|text| text.len() > LONGEST)
            }),
            examples: vec![taken(
                padded(LONGEST + 1).as_bytes(),
                &padded(LONGEST + 1),
                "ERR metadata must be at most 16384 bytes",
            )],
        },
        Difference {
            name: "a heartbeat_count of the caller's that is no integer",
            why: "the script takes it, and then its heartbeats fail, round or start again; here the caller hears of it at once",
            covers: Covers::Refusal(|step, sessions| {
                would_be_granted(step, sessions)
                    && step.arguments.get(2).is_some_and(|text| !acceptable(text))
            }),
            examples: vec![
                count("null", "error", "null"),
                count(r#""three""#, "error", r#""three""#),
                count(r#""3""#, "1 HEARTBEAT_UPDATED 4", "4"),
                count("2.7", "1 HEARTBEAT_UPDATED 3", "3.7"),
                count("1e2", "1 HEARTBEAT_UPDATED 101", "101"),
                count("3.0", "1 HEARTBEAT_UPDATED 4", "4"),
                count("false", "1 HEARTBEAT_UPDATED 1", "1"),
                count("true", "error", "true"),
                count("{}", "error", "{}"),
                count("[3]", "error", "[3]"),
            ],
        },
        Difference {
            name: "a heartbeat_count of the caller's of more than fourteen digits",
            why: "cjson writes fourteen, so the scripts' count stands still or jumps; here it counts",
            covers: Covers::Examples,
            examples: vec![answers(
                &[
                    acquire("s", "5", r#"{"heartbeat_count":123456789012345}"#),
                    heartbeat("s"),
                ],
                r#"1 ACQUIRED 1 5; 1 HEARTBEAT_UPDATED 123456789012341 | s={"heartbeat_count":123456789012340.0}"#,
                r#"1 ACQUIRED 1 5; 1 HEARTBEAT_UPDATED 123456789012346 | s={"heartbeat_count":123456789012346}"#,
            )],
        },
        Difference {
            name: "numbers of more than fourteen digits and empty arrays in metadata",
            why: "cjson rewrites them; here the caller's text is kept as sent",
            covers: Covers::Metadata(json::cjson_changes_object),
            examples: vec![
                text(
                    r#"{"n":12345678901234567}"#,
                    "1.2345678901235e+16",
                    "12345678901234567",
                ),
                text(
                    r#"{"n":9007199254740993}"#,
                    "9.007199254741e+15",
                    "9007199254740993",
                ),
                text(
                    r#"{"n":0.12345678901234567}"#,
                    "0.12345678901235",
                    "0.12345678901234567",
                ),
                text(r#"{"list":[]}"#, r#""list":{}"#, r#""list":[]"#),
                text(
                    r#"{"list":[[1,[]]]}"#,
                    r#""list":[[1,{}]]"#,
                    r#""list":[[1,[]]]"#,
                ),
            ],
        },
        Difference {
            name: "the spelling of metadata",
            why: "cjson writes the same JSON in other words; here the caller's text is kept as sent",
            covers: Covers::Examples,
            examples: vec![
                text(
                    r#"{"path":"/home"}"#,
                    r#""path":"\/home""#,
                    r#""path":"/home""#,
                ),
                text(r#"{"n":1e2}"#, r#""n":100"#, r#""n":1e2"#),
                text(r#"{"n":1.50}"#, r#""n":1.5"#, r#""n":1.50"#),
                text(r#"{"u":"\u00e9"}"#, "\"u\":\"\u{e9}\"", r#""u":"\u00e9""#),
                text(r#"{"b":1,"a":2}"#, r#"{"a":2,"#, r#"{"b":1,"a":2,"#),
            ],
        },
    ]
}

fn scenes() -> Vec<Difference> {
    let full = Step::new(Action::FillMemory, KEY, &[]);
    let replica = Step::new(Action::BecomeReplica, KEY, &[]);
    let overwrite = Step::new(Action::Overwrite, KEY, &[]);
    let mut on_a_replica = Vec::new();
    for (step, answer) in [
        (acquire("s", "1", "{}"), "1 ALREADY_ACTIVE 1"),
        (acquire("t", "1", "{}"), "0 NO_SEATS_AVAILABLE 1 1"),
        (heartbeat("t"), "0 SESSION_NOT_ACTIVE"),
        (release("t"), "0 SESSION_NOT_FOUND"),
    ] {
        on_a_replica.push(answers(
            &[acquire("s", "1", "{}"), replica.clone(), step],
            &format!("1 ACQUIRED 1 1; OK; {answer} | s={{}}"),
            "1 ACQUIRED 1 1; OK; READONLY | s={}",
        ));
    }
    let mut on_another_type = Vec::new();
    for (step, scripts) in [
        (acquire("s", "5", "{}"), "1 ACQUIRED 1 5 | s={}"),
        (heartbeat("s"), "0 SESSION_NOT_ACTIVE | "),
        (release("s"), "0 SESSION_NOT_FOUND | "),
    ] {
        on_another_type.push(answers(
            &[overwrite.clone(), step],
            &format!("OK; {scripts}"),
            "OK; WRONGTYPE | ",
        ));
    }
    vec![
        Difference {
            name: "a heartbeat when memory is full",
            why: "it needs no memory to speak of, and whoever pays for a seat must be able to keep it",
            covers: Covers::Examples,
            examples: vec![answers(
                &[acquire("s", "5", "{}"), full.clone(), heartbeat("s")],
                "1 ACQUIRED 1 5; OK; error | s={}",
                r#"1 ACQUIRED 1 5; OK; 1 HEARTBEAT_UPDATED 1 | s={"heartbeat_count":1}"#,
            )],
        },
        Difference {
            name: "a grant when memory is full",
            why: "both refuse it and change nothing; the module in one way on every server, without a script's line number",
            covers: Covers::Examples,
            examples: vec![answers(
                &[full, acquire("s", "5", "{}")],
                "OK; error | ",
                "OK; OOM command not allowed when used memory > 'maxmemory'. | ",
            )],
        },
        Difference {
            name: "an answer that changes nothing, on a replica",
            why: "the commands are writes to the server, which refuses them before they run; a script fails at its first write",
            covers: Covers::Examples,
            examples: on_a_replica,
        },
        Difference {
            name: "another type at the key",
            why: "the scripts use two names made of the key; the pool is the value at the key itself",
            covers: Covers::Examples,
            examples: on_another_type,
        },
    ]
}

const KEY: &[u8] = b"license";

fn acquire(session: &str, seats: &str, metadata: &str) -> Step {
    Step::new(
        Action::Acquire,
        KEY,
        &[session.as_bytes(), seats.as_bytes(), metadata.as_bytes()],
    )
}

fn heartbeat(session: &str) -> Step {
    Step::new(Action::Heartbeat, KEY, &[session.as_bytes()])
}

fn release(session: &str) -> Step {
    Step::new(Action::Release, KEY, &[session.as_bytes()])
}

fn answers(steps: &[Step], scripts: &str, module: &str) -> Example {
    Example::Answers {
        steps: steps.to_vec(),
        scripts: scripts.to_owned(),
        module: module.to_owned(),
    }
}

fn text(metadata: &str, scripts: &'static str, module: &'static str) -> Example {
    Example::Text {
        metadata: metadata.to_owned(),
        scripts,
        module,
    }
}

/// Whether only the metadata can stand between this ACQUIRE and its grant.
fn would_be_granted(step: &Step, sessions: &State) -> bool {
    let [session, seats, ..] = step.arguments.as_slice() else {
        return false;
    };
    step.action == Action::Acquire
        && !sessions.contains_key(session)
        && strict_integer(seats).is_some_and(|seats| (sessions.len() as i64) < seats)
}

/// Metadata that is an object, whatever is in it.
fn acceptable_object(text: &[u8]) -> bool {
    json::object(text).is_some()
}

/// Metadata that the module takes.
fn acceptable(text: &[u8]) -> bool {
    text.len() <= LONGEST
        && json::object(text).is_some_and(|object| {
            object
                .get("heartbeat_count")
                .is_none_or(|count| count.is_i64())
        })
}

/// The integer in `text` if that is how Redis would write it.
fn strict_integer(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}
