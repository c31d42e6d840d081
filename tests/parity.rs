//! The scripts as oracle: the same step goes to the original Lua on a plain server and to `SEAT.*`.
//! The raw bytes of the replies are compared, and after each step the sessions and their metadata.

mod differences;
mod generate;
mod json;
mod pair;
mod step;

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::time::Instant;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use redis::Value;

use crate::support::Server;
use differences::{Difference, Example};
use json::{DEEPEST, LONGEST};
use pair::{Pair, State, Way};
use step::{Action, Step};

/// The most steps of one generated history, and how many steps each test takes at least: 20,000 in
/// all within the plain domain.
const LONGEST_HISTORY: usize = 120;
const STEPS_RESP2: usize = 12_000;
const STEPS_RESP3: usize = 8_000;
const STEPS_BAD_INPUT: usize = 8_000;

#[test]
fn the_oracle_is_the_original_scripts() {
    let server = Server::plain();
    let mut plain = server.wire();
    for (text, sha) in [
        (
            include_str!("lua/acquire_seat.lua"),
            "98e6a76cc964f48e1d02251cf5d98384d50b1965",
        ),
        (
            include_str!("lua/release_seat.lua"),
            "5be059ede42740d8f2961ea5e13463a4b442c363",
        ),
        (
            include_str!("lua/update_heartbeat.lua"),
            "8da2d20aef2c2437bed05ea563eefd28ada92e25",
        ),
    ] {
        assert_eq!(
            plain.value(&["SCRIPT", "LOAD", text]),
            Value::BulkString(sha.into())
        );
    }
}

#[test]
fn generated_histories_are_answered_alike_in_resp2() {
    histories_agree(
        "resp2",
        Pair::start(Way::Commands),
        STEPS_RESP2,
        generate::plain(LONGEST_HISTORY),
        only_plain,
    );
}

#[test]
fn generated_histories_are_answered_alike_in_resp3() {
    histories_agree(
        "resp3",
        Pair::start_resp3(Way::Commands),
        STEPS_RESP3,
        generate::plain(LONGEST_HISTORY),
        only_plain,
    );
}

#[test]
fn generated_histories_with_bad_input_differ_only_as_listed() {
    histories_agree(
        "bad input",
        Pair::start(Way::Commands),
        STEPS_BAD_INPUT,
        generate::odd(LONGEST_HISTORY),
        |_, _| Ok(()),
    );
}

#[test]
fn the_scripts_own_calls_are_answered_alike_in_resp2() {
    histories_agree(
        "own calls, resp2",
        Pair::start(Way::OwnCalls),
        STEPS_RESP2,
        generate::plain(LONGEST_HISTORY),
        only_plain,
    );
}

#[test]
fn the_scripts_own_calls_are_answered_alike_in_resp3() {
    histories_agree(
        "own calls, resp3",
        Pair::start_resp3(Way::OwnCalls),
        STEPS_RESP3,
        generate::plain(LONGEST_HISTORY),
        only_plain,
    );
}

#[test]
fn the_scripts_own_calls_with_bad_input_differ_only_as_listed() {
    histories_agree(
        "own calls, bad input",
        Pair::start(Way::OwnCalls),
        STEPS_BAD_INPUT,
        generate::odd(LONGEST_HISTORY),
        |_, _| Ok(()),
    );
}

/// Guards the generator: a plain history may not be excused by the list.
fn only_plain(step: &Step, sessions: &State) -> Result<(), String> {
    match differences::covering(step, sessions) {
        Some(difference) => Err(format!("not a plain step: `{}`", difference.name)),
        None => Ok(()),
    }
}

fn histories_agree(
    name: &str,
    pair: Pair,
    enough: usize,
    strategy: impl Strategy<Value = Vec<Step>>,
    guard: impl Fn(&Step, &State) -> Result<(), String>,
) {
    let began = Instant::now();
    let pair = RefCell::new(pair);
    let steps = Cell::new(0);
    let take = |history: Vec<Step>| {
        let mut pair = pair.borrow_mut();
        pair.flush();
        for step in &history {
            guard(step, &pair.state(&step.key))?;
            pair.check(step)?;
            steps.set(steps.get() + 1);
        }
        pair.check_untouched()
    };
    while steps.get() < enough {
        let config = Config {
            cases: 1,
            failure_persistence: None,
            max_shrink_iters: 20_000,
            max_shrink_time: 60_000,
            ..Config::default()
        };
        let outcome = TestRunner::new(config).run(&strategy, |history| {
            take(history).map_err(TestCaseError::fail)
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(wrong, history)) => panic!(
                "{wrong}\nafter, on empty servers (a script takes the same: EVALSHA sha 1 key ...):\n{}",
                history
                    .iter()
                    .map(|step| format!("  {step:?}\n"))
                    .collect::<String>()
            ),
            Err(TestError::Abort(why)) => panic!("no history: {why}"),
        }
    }
    // Not captured by the test harness: the figure is part of the result.
    writeln!(
        io::stderr(),
        "parity, {name}: {} steps in {:.1?}",
        steps.get(),
        began.elapsed()
    )
    .expect("stderr");
}

const _: () = assert!(STEPS_RESP2 + STEPS_RESP3 >= 20_000);

/// Takes both sides through `steps`, each with the answer that it must have.
#[track_caller]
fn agree(steps: &[(Step, &str)]) {
    for mut pair in Pair::all() {
        for (step, answer) in steps {
            pair.check(step)
                .unwrap_or_else(|wrong| panic!("{step:?}: {wrong}"));
            assert_eq!(pair.last_answer(), *answer, "{step:?}");
        }
    }
}

fn acquire(session: impl AsRef<[u8]>, seats: &str, metadata: impl AsRef<[u8]>) -> Step {
    Step::new(
        Action::Acquire,
        b"license",
        &[session.as_ref(), seats.as_bytes(), metadata.as_ref()],
    )
}

fn heartbeat(session: impl AsRef<[u8]>) -> Step {
    Step::new(Action::Heartbeat, b"license", &[session.as_ref()])
}

fn release(session: impl AsRef<[u8]>) -> Step {
    Step::new(Action::Release, b"license", &[session.as_ref()])
}

#[test]
fn a_seat_is_taken_once_kept_and_given_back_once() {
    agree(&[
        (acquire("a", "2", "{}"), "1 ACQUIRED 1 2"),
        (acquire("a", "2", "{}"), "1 ALREADY_ACTIVE 1"),
        (acquire("b", "2", "{}"), "1 ACQUIRED 2 2"),
        (acquire("c", "2", "{}"), "0 NO_SEATS_AVAILABLE 2 2"),
        (acquire("a", "2", "{}"), "1 ALREADY_ACTIVE 2"),
        (heartbeat("a"), "1 HEARTBEAT_UPDATED 1"),
        (heartbeat("a"), "1 HEARTBEAT_UPDATED 2"),
        (heartbeat("c"), "0 SESSION_NOT_ACTIVE"),
        (release("c"), "0 SESSION_NOT_FOUND"),
        (release("a"), "1 RELEASED 1"),
        (release("a"), "0 SESSION_NOT_FOUND"),
        (heartbeat("a"), "0 SESSION_NOT_ACTIVE"),
        (acquire("c", "2", "{}"), "1 ACQUIRED 2 2"),
        (release("b"), "1 RELEASED 1"),
        (release("c"), "1 RELEASED 0"),
        (release("c"), "0 SESSION_NOT_FOUND"),
        (acquire("a", "1", "{}"), "1 ACQUIRED 1 1"),
        (heartbeat("a"), "1 HEARTBEAT_UPDATED 1"),
    ]);
}

#[test]
fn the_limit_is_the_callers_at_each_call() {
    agree(&[
        (acquire("a", "0", "{}"), "0 NO_SEATS_AVAILABLE 0 0"),
        (acquire("a", "-1", "{}"), "0 NO_SEATS_AVAILABLE 0 -1"),
        (
            acquire("a", "-9223372036854775808", "{}"),
            "0 NO_SEATS_AVAILABLE 0 -9223372036854775808",
        ),
        (acquire("a", "3", "{}"), "1 ACQUIRED 1 3"),
        (acquire("b", "3", "{}"), "1 ACQUIRED 2 3"),
        (acquire("c", "1", "{}"), "0 NO_SEATS_AVAILABLE 2 1"),
        (acquire("c", "2", "{}"), "0 NO_SEATS_AVAILABLE 2 2"),
        (
            acquire("c", "9007199254740992", "{}"),
            "1 ACQUIRED 3 9007199254740992",
        ),
        (acquire("c", "-5", "{}"), "1 ALREADY_ACTIVE 3"),
    ]);
}

#[test]
fn any_bytes_are_a_session() {
    let longest = vec![0xfe; 1024];
    let ids: [&[u8]; 8] = [
        b"\0",
        b"\xff\xfe",
        b"\r\n",
        "ünï-🪑".as_bytes(),
        b"EX",
        b"WITHMETADATA",
        b" ",
        &longest,
    ];
    let seats = ids.len().to_string();
    let mut steps = Vec::new();
    let granted: Vec<_> = (1..=ids.len())
        .map(|used| format!("1 ACQUIRED {used} {seats}"))
        .collect();
    let released: Vec<_> = (0..ids.len())
        .rev()
        .map(|used| format!("1 RELEASED {used}"))
        .collect();
    steps.extend(
        ids.iter()
            .zip(&granted)
            .map(|(id, answer)| (acquire(id, &seats, "{}"), answer.as_str())),
    );
    steps.extend(
        ids.iter()
            .map(|id| (heartbeat(id), "1 HEARTBEAT_UPDATED 1")),
    );
    steps.extend(
        ids.iter()
            .zip(&released)
            .map(|(id, answer)| (release(id), answer.as_str())),
    );
    agree(&steps);
}

#[test]
fn metadata_is_the_callers_except_for_the_timestamps() {
    let longest = format!(r#"{{"a":"{}"}}"#, "x".repeat(LONGEST - r#"{"a":""}"#.len()));
    let arrays = DEEPEST - 1;
    let deepest = format!(r#"{{"a":{}1{}}}"#, "[".repeat(arrays), "]".repeat(arrays));
    let mut steps = Vec::new();
    for metadata in [
        r#"{"user_email":"test@example.com","hardware_id":"hw-001","project_root":"/home/user/project"}"#,
        " {\t\"a\" :\r\n[ 1 , -2.5e-3 , null , true , {} , \"\" ] } ",
        r#"{"":"", "a":"\u0000\u001f\u007f\u00e9\ud83e\ude91\/\b\f\n\r\t\"\\", "é🪑":"é🪑"}"#,
        r#"{"a":1,"a":2,"b":{"a":1,"a":3}}"#,
        r#"{"1":"x","2":"y","-1":0}"#,
        r#"{"acquired_at":1,"last_heartbeat":2}"#,
        r#"{"acquired_at":"yesterday","last_heartbeat":null}"#,
        r#"{"acquired_at":{"a":[1]},"last_heartbeat":[false]}"#,
        r#"{"acquired\u005fat":1,"\u006cast_heartbeat":2}"#,
        r#"{"acquired_at":1,"acquired_at":2,"acquired\u005fat":3}"#,
        r#"{"Acquired_at":1,"acquired_at ":2,"nested":{"acquired_at":3,"heartbeat_count":"x"}}"#,
        &longest,
        &deepest,
    ] {
        steps.push((acquire("s", "1", metadata), "1 ACQUIRED 1 1"));
        steps.push((heartbeat("s"), "1 HEARTBEAT_UPDATED 1"));
        steps.push((acquire("s", "1", r#"{"other":1}"#), "1 ALREADY_ACTIVE 1"));
        steps.push((release("s"), "1 RELEASED 0"));
    }
    agree(&steps);
}

#[test]
fn the_count_of_heartbeats_starts_where_the_caller_says() {
    let mut steps = Vec::new();
    for (metadata, answer) in [
        (r#"{"heartbeat_count":0}"#, "1 HEARTBEAT_UPDATED 1"),
        (r#"{"heartbeat_count":41}"#, "1 HEARTBEAT_UPDATED 42"),
        (r#"{"heartbeat_count":-1}"#, "1 HEARTBEAT_UPDATED 0"),
        (r#"{"heartbeat_count":-7}"#, "1 HEARTBEAT_UPDATED -6"),
        (
            r#"{"heartbeat_count":99999999999998}"#,
            "1 HEARTBEAT_UPDATED 99999999999999",
        ),
        (r#"{"heartbeat\u005fcount":5}"#, "1 HEARTBEAT_UPDATED 6"),
        (
            r#"{"heartbeat_count":1,"heartbeat_count":8}"#,
            "1 HEARTBEAT_UPDATED 9",
        ),
        (
            r#"{"heartbeat_count":"x","heartbeat\u005fcount":8}"#,
            "1 HEARTBEAT_UPDATED 9",
        ),
        (
            r#"{"heartbeat_counts":7,"x":{"heartbeat_count":7}}"#,
            "1 HEARTBEAT_UPDATED 1",
        ),
    ] {
        steps.push((acquire("s", "1", metadata), "1 ACQUIRED 1 1"));
        steps.push((heartbeat("s"), answer));
        steps.push((release("s"), "1 RELEASED 0"));
    }
    agree(&steps);
}

#[test]
fn metadata_that_is_not_needed_is_not_looked_at() {
    let too_long = " ".repeat(LONGEST + 1);
    let mut steps = vec![(acquire("s", "1", r#"{"a":1}"#), "1 ACQUIRED 1 1")];
    for metadata in [
        "",
        "nonsense",
        "[1]",
        r#"{"heartbeat_count":null}"#,
        "{\"a\":\"\u{1}\"}",
        &too_long,
    ] {
        steps.push((acquire("s", "1", metadata), "1 ALREADY_ACTIVE 1"));
        steps.push((acquire("t", "1", metadata), "0 NO_SEATS_AVAILABLE 1 1"));
        let heartbeat = Step::new(Action::Heartbeat, b"license", &[b"t", metadata.as_bytes()]);
        steps.push((heartbeat, "0 SESSION_NOT_ACTIVE"));
    }
    steps.push((
        Step::new(Action::Acquire, b"license", &[b"s", b"1"]),
        "1 ALREADY_ACTIVE 1",
    ));
    steps.push((
        Step::new(Action::Acquire, b"license", &[b"t", b"1"]),
        "0 NO_SEATS_AVAILABLE 1 1",
    ));
    for (count, metadata) in ["", "nonsense", r#"{"heartbeat_count":100}"#, &too_long]
        .iter()
        .enumerate()
    {
        let heartbeat = Step::new(Action::Heartbeat, b"license", &[b"s", metadata.as_bytes()]);
        let answers = [
            "1 HEARTBEAT_UPDATED 1",
            "1 HEARTBEAT_UPDATED 2",
            "1 HEARTBEAT_UPDATED 3",
            "1 HEARTBEAT_UPDATED 4",
        ];
        steps.push((heartbeat, answers[count]));
    }
    agree(&steps);
}

#[test]
fn pools_are_apart_and_dropped_whole() {
    let at = |key: &[u8], action, arguments: &[&[u8]]| Step::new(action, key, arguments);
    agree(&[
        (
            at(b"", Action::Acquire, &[b"s", b"1", b"{}"]),
            "1 ACQUIRED 1 1",
        ),
        (
            at(b"a\0b", Action::Acquire, &[b"s", b"1", b"{}"]),
            "1 ACQUIRED 1 1",
        ),
        (
            at(b"a\0", Action::Acquire, &[b"s", b"1", b"{}"]),
            "1 ACQUIRED 1 1",
        ),
        (at(b"a\0b", Action::Drop, &[]), "1"),
        (at(b"a\0b", Action::Drop, &[]), "0"),
        (
            at(b"a\0b", Action::Heartbeat, &[b"s"]),
            "0 SESSION_NOT_ACTIVE",
        ),
        (
            at(b"a\0", Action::Heartbeat, &[b"s"]),
            "1 HEARTBEAT_UPDATED 1",
        ),
        (at(b"", Action::Release, &[b"s"]), "1 RELEASED 0"),
        (at(b"", Action::Drop, &[]), "0"),
    ]);
}

#[test]
fn a_transaction_sees_its_own_seats() {
    let steps = [
        acquire("a", "1", "{}"),
        acquire("a", "1", "{}"),
        acquire("b", "1", "{}"),
        heartbeat("a"),
        release("a"),
        acquire("b", "1", "{}"),
        release("a"),
    ];
    for mut pair in Pair::all() {
        let (scripts, module) = pair.ask_in_multi(&steps);
        assert_eq!(
            scripts.escape_ascii().to_string(),
            module.escape_ascii().to_string()
        );
        assert!(module.starts_with(b"*7\r\n*4\r\n:1\r\n$8\r\nACQUIRED\r\n:1\r\n:1\r\n*3\r\n"));
    }
}

#[test]
fn what_needs_no_memory_is_answered_when_memory_is_full() {
    let full = Step::new(Action::FillMemory, b"license", &[]);
    agree(&[
        (acquire("s", "1", "{}"), "1 ACQUIRED 1 1"),
        (full, "OK"),
        (acquire("s", "1", "{}"), "1 ALREADY_ACTIVE 1"),
        (acquire("t", "1", "{}"), "0 NO_SEATS_AVAILABLE 1 1"),
        (heartbeat("t"), "0 SESSION_NOT_ACTIVE"),
        (release("t"), "0 SESSION_NOT_FOUND"),
        (release("s"), "1 RELEASED 0"),
    ]);
}

#[test]
fn each_listed_difference_is_one_still() {
    differences_hold(Way::Commands);
}

#[test]
fn each_listed_difference_is_one_of_the_scripts_own_calls_too() {
    differences_hold(Way::OwnCalls);
}

/// The one difference that the scripts' own calls do not have.
const ON_A_REPLICA: &str = "an answer that changes nothing, on a replica";

#[track_caller]
fn differences_hold(way: Way) {
    let mut pair = Pair::start(way);
    let (mut stale, mut passed_over) = (Vec::new(), 0);
    for Difference {
        name,
        why,
        examples,
        ..
    } in differences::table()
    {
        // There a script stays a script: `migration::calls::a_replica_leaves_scripts_alone`.
        if way == Way::OwnCalls && *name == ON_A_REPLICA {
            passed_over += 1;
            continue;
        }
        assert!(
            !why.is_empty() && !examples.is_empty(),
            "`{name}` says too little"
        );
        for (number, example) in examples.iter().enumerate() {
            if let Err(wrong) = differs_as_listed(&mut pair, example) {
                stale.push(format!("`{name}`, example {}:\n{wrong}\n", number + 1));
            }
        }
    }
    assert!(stale.is_empty(), "{}", stale.join("\n"));
    assert_eq!(passed_over, usize::from(way == Way::OwnCalls));
}

fn differs_as_listed(pair: &mut Pair, example: &Example) -> Result<(), String> {
    pair.flush();
    match example {
        Example::Answers {
            steps,
            scripts,
            module,
        } => {
            let answers: Vec<_> = steps.iter().map(|step| pair.ask(step)).collect();
            let (scripts_state, module_state) = pair.plain_states(&steps[0].key)?;
            let (scripts_said, module_said): (Vec<_>, Vec<_>) = answers
                .iter()
                .map(|(scripts, module)| (said(scripts), said(module)))
                .unzip();
            for (side, expected, said, state) in [
                ("the scripts", scripts, &scripts_said, &scripts_state),
                ("the module", module, &module_said, &module_state),
            ] {
                let (answers, then) = expected.split_once(" | ").expect("answers | sessions");
                let answers: Vec<_> = answers.split("; ").collect();
                let as_listed = answers.len() == said.len()
                    && answers.iter().zip(said).all(|(listed, said)| {
                        match said.strip_prefix('-') {
                            Some(_) if *listed == "error" => side == "the scripts",
                            Some(error) => {
                                side == "the module"
                                    && is_error(listed)
                                    && error.starts_with(listed)
                            }
                            None => listed == said,
                        }
                    });
                if !as_listed || then != state {
                    return Err(format!(
                        "{steps:?}\n{side}: {} | {state}\nlisted: {expected}",
                        said.join("; ")
                    ));
                }
            }
            if scripts_said == module_said && scripts_state == module_state {
                return Err(format!(
                    "{steps:?}\nno difference any more: {}",
                    module_said.join("; ")
                ));
            }
        }
        Example::Text {
            metadata,
            scripts,
            module,
        } => {
            let step = acquire("s", "5", metadata);
            let (scripts_reply, module_reply) = pair.ask(&step);
            let text = |state: &State| {
                String::from_utf8_lossy(state[&b"s"[..]].as_deref().unwrap_or_default())
                    .into_owned()
            };
            let (scripts_text, module_text) = (
                text(&pair.scripts_state(b"license")),
                text(&pair.module_state(b"license")?),
            );
            let as_listed = scripts_reply == module_reply
                && scripts_text.contains(scripts)
                && !scripts_text.contains(module)
                && module_text.contains(module);
            if !as_listed {
                return Err(format!(
                    "{metadata}\nthe scripts: {scripts_text}\nthe module:  {module_text}"
                ));
            }
        }
    }
    Ok(())
}

/// An error of the module's, as the list writes it: it begins with its code.
fn is_error(listed: &str) -> bool {
    listed.bytes().take(3).all(|byte| byte.is_ascii_uppercase())
}

/// A reply in a line; an error with a `-` before it.
fn said(reply: &[u8]) -> String {
    fn word(value: &Value) -> String {
        match value {
            Value::Int(number) => number.to_string(),
            Value::BulkString(bytes) => bytes.escape_ascii().to_string(),
            Value::Okay => "OK".to_owned(),
            Value::Array(elements) => elements.iter().map(word).collect::<Vec<_>>().join(" "),
            other => format!("{other:?}"),
        }
    }
    match reply.strip_prefix(b"-") {
        Some(error) => format!("-{}", String::from_utf8_lossy(error).trim_end()),
        None => word(&redis::parse_redis_value(reply).expect("a reply")),
    }
}
