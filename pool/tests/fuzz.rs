//! Millions of made-up inputs for whatever reads what others wrote: pools, metadata, effects.
//!
//! Each input is a mutation of one in `corpus/`, or of one that was made from those and accepted.
//! `SEAT_TEST_SEED` repeats a run, and a failure prints the input. An input that ever failed
//! belongs into the corpus, which is also replayed as it is. `SEAT_TRUST=full` tries a hundred
//! times as many; the numbers that it prints are what was tried.

mod common;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::{env, fs, thread};

use common::{decode, exercise, json_value};
use fastrand::Rng;
use seat_pool::{
    Claim, DecodeError, Effect, Freed, Grant, Heartbeat, Holder, Join, Lease, MAX_ARRIVAL,
    MAX_METADATA_BYTES, MAX_NESTING, MAX_SECOND, MAX_TOKEN, MAX_WEIGHT, Metadata, MetadataError,
    Moment, Pool, Ticket,
};

/// How many accepted inputs serve as a start for others.
const KEPT: usize = 400;

fn inputs(short: u64) -> u64 {
    match env::var("SEAT_TRUST").as_deref() {
        Ok("full") => short * 100,
        Ok(other) => panic!("SEAT_TRUST is {other:?}, but can only be \"full\""),
        Err(_) => short,
    }
}

fn seed() -> u64 {
    env::var("SEAT_TEST_SEED").map_or_else(
        |_| fastrand::u64(..),
        |seed| seed.parse().expect("SEAT_TEST_SEED is an unsigned integer"),
    )
}

/// Tells how much was tried, past the test harness.
fn figure(what: &str) {
    writeln!(io::stderr(), "{what}").expect("stderr");
}

/// Tells what is being tried, if that fails.
struct Trying<'a> {
    seed: u64,
    number: u64,
    input: &'a [Vec<u8>],
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("SEAT_TEST_SEED={}, input {}:", self.seed, self.number);
            for blob in self.input {
                eprintln!("  b\"{}\"", blob.escape_ascii());
            }
        }
    }
}

/// The files of a part of the corpus, by name.
fn corpus(part: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(part);
    let files =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files: BTreeMap<_, _> = files
        .map(|file| {
            let path = file.expect("a readable entry").path();
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            (name, fs::read(&path).expect("a readable file"))
        })
        .collect();
    assert!(!files.is_empty(), "nothing in {}", folder.display());
    files
}

/// A pool's blobs as a file of the corpus has them: a line of hexadecimal digits each, after lines
/// that begin with `#`.
fn blobs_of(file: &[u8]) -> Vec<Vec<u8>> {
    let text = str::from_utf8(file).expect("a file of text");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let digits: Vec<u8> = line
                .bytes()
                .filter(|byte| !byte.is_ascii_whitespace())
                .collect();
            let pairs = digits
                .chunks(2)
                .map(|pair| str::from_utf8(pair).expect("ASCII"));
            pairs
                .map(|pair| u8::from_str_radix(pair, 16).expect("two hexadecimal digits"))
                .collect()
        })
        .collect()
}

/// A small change of some bytes, or of their order.
fn mutate(random: &mut Rng, bytes: &mut Vec<u8>, others: &[u8], dictionary: &[&[u8]]) {
    const TELLING: [u8; 10] = [0, 1, 2, 0x22, 0x7f, 0x80, 0x81, 0xc0, 0xfe, 0xff];
    let at = random.usize(..=bytes.len());
    let end = (at + random.usize(..12)).min(bytes.len());
    match random.u8(..10) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
        1 if at < bytes.len() => bytes[at] = TELLING[random.usize(..TELLING.len())],
        2 if at < bytes.len() => {
            bytes[at] = bytes[at].wrapping_add(if random.bool() { 1 } else { 255 })
        }
        3 => bytes.insert(at, random.u8(..)),
        4 => drop(bytes.drain(at..end)),
        5 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        6 => bytes.truncate(at),
        7 if !others.is_empty() => {
            let from = random.usize(..others.len());
            let to = (from + random.usize(..40)).min(others.len());
            bytes.splice(at..end, others[from..to].iter().copied());
        }
        _ => {
            let word = dictionary[random.usize(..dictionary.len())];
            let end = if random.bool() { at } else { end };
            bytes.splice(at..end, word.iter().copied());
        }
    }
}

/// Numbers at the ends of their ranges, and the beginnings of entries.
const POOL_WORDS: [&[u8]; 13] = [
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
    &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0x03],
    &[0x80, 0],
    b"\x01a\x01\x02{}\x00\x00\x00\x00",
    b"\x01b\x05\x00\x01\x02\x08\x01",
    // In the format with owners, weights and tokens.
    b"\x01a\x01\x02{}\x00\x00\x00\x00\x01\x01o\x03\x01\x07",
    b"\x01b\x05\x00\x01\x02\x08\x02\x01\x01o\x01\x02\x01",
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x08],
    &[0xff, 0xff, 0xff, 0xff, 0x07],
];

/// What an accepted pool must be, whatever it was read from.
fn check_pool(pool: &Pool) {
    assert!(!pool.is_empty());
    exercise(pool);
    let blobs: Vec<_> = pool.encode().collect();
    let again = decode(&blobs).expect("what is written is read");
    assert_eq!(contents(&again), contents(pool));
    assert_eq!(
        again.encode().collect::<Vec<_>>(),
        blobs,
        "it is written as it was read"
    );
}

/// All that a pool holds, as the effects that would make it; sessions in any order, tickets in
/// theirs.
fn contents(pool: &Pool) -> (i64, Vec<String>, Vec<String>) {
    let sessions = pool
        .iter()
        .map(|session| format!("{:?}", pool.grant_of(session)));
    let mut sessions: Vec<_> = sessions.collect();
    sessions.sort();
    let tickets = pool
        .all_tickets()
        .map(|ticket| format!("{:?}", pool.join_of(ticket)));
    (pool.seats(), sessions, tickets.collect())
}

#[test]
fn the_corpus_of_pools_is_read_or_refused_as_its_files_say() {
    for (name, file) in corpus("pool") {
        let blobs = blobs_of(&file);
        let _trying = Trying {
            seed: 0,
            number: 0,
            input: &blobs,
        };
        let read = decode(&blobs);
        let expected = name.split('-').next().expect("a first word");
        match (expected, &read) {
            ("sound", Ok(pool)) => check_pool(pool),
            ("refused", Err(_)) => {}
            _ => panic!("{name} is read as {read:?}"),
        }
    }
}

#[test]
fn whatever_a_pool_is_read_from_it_is_sound_or_refused() {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let mut starts: Vec<Vec<Vec<u8>>> =
        corpus("pool").values().map(|file| blobs_of(file)).collect();
    let first = starts.len();
    let mut refused: BTreeMap<String, u64> = BTreeMap::new();
    let (tried, mut taken) = (inputs(30_000), 0);
    for number in 0..tried {
        let mut blobs = starts[random.usize(..starts.len())].clone();
        let others = starts[random.usize(..starts.len())].concat();
        for _ in 0..random.u8(1..8) {
            let blob = random.usize(..blobs.len());
            match random.u8(..30) {
                0 if blobs.len() > 1 => drop(blobs.remove(blob)),
                1 if blobs.len() < 6 => blobs.insert(blob, blobs[blob].clone()),
                2 => {
                    let other = random.usize(..blobs.len());
                    blobs.swap(blob, other);
                }
                _ => mutate(&mut random, &mut blobs[blob], &others, &POOL_WORDS),
            }
        }
        let _trying = Trying {
            seed,
            number,
            input: &blobs,
        };
        match decode(&blobs) {
            Ok(pool) => {
                check_pool(&pool);
                taken += 1;
                if blobs.concat().len() < 2000 {
                    keep(&mut random, &mut starts, first, blobs.clone());
                }
            }
            Err(error) => *refused.entry(format!("{error:?}")).or_default() += 1,
        }
    }
    figure(&format!(
        "trust: inputs tried: {tried} (decoder), of which {taken} were accepted"
    ));
    // Neither all nothing, nor all the same refusal: the corpus reaches each check.
    assert!(taken > tried / 100, "{taken} accepted, {refused:?} refused");
    for error in [
        DecodeError::Malformed,
        DecodeError::Empty,
        DecodeError::WrongNumberOfEntries,
        DecodeError::DuplicateSession,
        DecodeError::BadSessionId,
        DecodeError::BadMetadata,
        DecodeError::BadLease,
        DecodeError::BadTicket,
        DecodeError::BadHolder,
    ] {
        assert!(
            refused.contains_key(&format!("{error:?}")),
            "{error:?} never came: {refused:?}"
        );
    }
}

/// Keeps an accepted input as a start, instead of an older one when there are enough; the corpus
/// itself stays.
fn keep<T>(random: &mut Rng, starts: &mut Vec<T>, first: usize, input: T) {
    if starts.len() < first + KEPT {
        starts.push(input);
    } else {
        starts[random.usize(first..first + KEPT)] = input;
    }
}

const JSON_WORDS: [&[u8]; 24] = [
    b"\"acquired_at\":1,",
    b"\"heartbeat_count\":-7,",
    b"\"heartbeat\\u005fcount\":9223372036854775807,",
    b"\"last_heartbeat\":{},",
    b"\"heartbeat_count\":null,",
    b"{",
    b"}",
    b"[",
    b"]",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":{\"a\":",
    b"\"",
    b",",
    b":",
    b"\\ud83d\\ude00",
    b"\\ud83d",
    b"\\u0000",
    b"\xf0\x9f\x98\x80",
    b"1e400",
    b"-0",
    b"0.1e-7",
    b"-9223372036854775808",
    b"18446744073709551616",
    b" \t\r\n",
];

/// What must hold for any bytes that a caller gives as metadata.
fn check_metadata(raw: &[u8]) -> Result<(), MetadataError> {
    let parsed = Metadata::parse(raw, MAX_METADATA_BYTES);
    let value = json_value(raw).ok().filter(serde_json::Value::is_object);
    let metadata = match parsed {
        Ok(metadata) => metadata,
        Err(MetadataError::NotAnObject) => {
            assert!(value.is_none(), "an object is refused");
            return Err(MetadataError::NotAnObject);
        }
        Err(MetadataError::CountNotAnInteger) => {
            let count = value
                .as_ref()
                .and_then(|value| value["heartbeat_count"].as_i64());
            // The lowest integer is no count.
            assert!(count.is_none_or(|count| count == i64::MIN), "{count:?}");
            return Err(MetadataError::CountNotAnInteger);
        }
        Err(error) => return Err(error),
    };
    // A count that a later one replaces may be what no parser can hold.
    let mut value = match value {
        None if metadata.heartbeat_count.is_some() => json_value(&metadata.text).expect("JSON"),
        value => value.expect("only objects are accepted"),
    };
    let members = value.as_object_mut().expect("an object");
    for name in ["acquired_at", "last_heartbeat", "heartbeat_count"] {
        members.remove(name);
    }
    assert_eq!(
        json_value(&metadata.text).expect("JSON"),
        value,
        "the caller's own members"
    );
    assert!(
        Metadata::is_stored_form(&metadata.text),
        "it is stored as it will be read"
    );
    assert!(metadata.text.len() <= raw.len(), "it has grown");

    let mut pool = Pool::new(1);
    pool.apply(&Effect::granting(1_000, b"a", 1, &metadata, None));
    let session = pool.get(Moment::at(1_000), b"a").expect("it holds a seat");
    let mut shown = json_value(&session.json().expect("it has metadata")).expect("JSON");
    let shown = shown.as_object_mut().expect("an object");
    assert_eq!(shown.remove("acquired_at"), Some(1.into()));
    assert_eq!(shown.remove("last_heartbeat"), Some(1.into()));
    let count = shown
        .remove("heartbeat_count")
        .and_then(|count| count.as_i64());
    assert_eq!(count, metadata.heartbeat_count);
    assert_eq!(Some(&*shown), value.as_object());
    check_pool(&pool);
    Ok(())
}

#[test]
fn the_corpus_of_metadata_is_accepted_or_refused_as_its_files_say() {
    for (name, file) in corpus("metadata") {
        let input = [file];
        let _trying = Trying {
            seed: 0,
            number: 0,
            input: &input,
        };
        let outcome = check_metadata(&input[0]);
        let expected = name.split('-').next().expect("a first word");
        match (expected, outcome) {
            ("sound", Ok(())) | ("refused", Err(_)) => {}
            (_, outcome) => panic!("{name}: {outcome:?}"),
        }
    }
}

#[test]
fn whatever_is_given_as_metadata_is_kept_or_refused() {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let mut starts: Vec<Vec<u8>> = corpus("metadata").into_values().collect();
    let first = starts.len();
    let (tried, mut taken) = (inputs(30_000), 0);
    let mut refused: BTreeMap<String, u64> = BTreeMap::new();
    for number in 0..tried {
        let mut input = [starts[random.usize(..starts.len())].clone()];
        let others = starts[random.usize(..starts.len())].clone();
        for _ in 0..random.u8(1..5) {
            mutate(&mut random, &mut input[0], &others, &JSON_WORDS);
        }
        let _trying = Trying {
            seed,
            number,
            input: &input,
        };
        match check_metadata(&input[0]) {
            Ok(()) => {
                taken += 1;
                if input[0].len() < 2000 {
                    keep(&mut random, &mut starts, first, input[0].clone());
                }
            }
            Err(error) => *refused.entry(format!("{error:?}")).or_default() += 1,
        }
    }
    figure(&format!(
        "trust: inputs tried: {tried} (metadata), of which {taken} were accepted"
    ));
    assert!(taken > tried / 100, "{taken} accepted, {refused:?} refused");
    for error in [
        MetadataError::NotAnObject,
        MetadataError::TooDeep,
        MetadataError::CountNotAnInteger,
    ] {
        assert!(
            refused.contains_key(&format!("{error:?}")),
            "{error:?} never came: {refused:?}"
        );
    }
}

#[test]
fn nesting_ends_where_the_limit_says_however_it_is_built() {
    let random = &mut Rng::with_seed(seed());
    for _ in 0..inputs(20) {
        let depth = random.u32(MAX_NESTING - 3..MAX_NESTING + 4);
        let mut text = "{\"a\":".to_owned();
        let mut ends = "}".to_owned();
        for _ in 1..depth {
            let (open, close) = if random.bool() {
                ("[", "]")
            } else {
                ("{\"b\":", "}")
            };
            text.push_str(open);
            ends.insert_str(0, close);
        }
        text.push('1');
        text.push_str(&ends);
        let outcome = check_metadata(text.as_bytes());
        let expected = if depth > MAX_NESTING {
            Err(MetadataError::TooDeep)
        } else {
            Ok(())
        };
        assert_eq!(outcome, expected, "{depth} levels: {text}");
    }
}

/// A number that may be anything and is often at an end of its range.
fn number(random: &mut Rng) -> i64 {
    match random.u8(..6) {
        0 => i64::MIN,
        1 => i64::MAX - 1,
        2 => random.i64(..),
        _ => random.i64(-3..2000),
    }
}

fn owner(random: &mut Rng) -> Option<&'static [u8]> {
    const OWNERS: [&[u8]; 3] = [b"o", b"p", &[0xff; 300]];
    random.bool().then(|| OWNERS[random.usize(..3)])
}

fn weight(random: &mut Rng) -> u32 {
    match random.u8(..6) {
        0 => MAX_WEIGHT,
        1 => random.u32(1..=MAX_WEIGHT),
        2 | 3 => random.u32(1..5),
        _ => 1,
    }
}

fn token(random: &mut Rng) -> u64 {
    match random.bool() {
        true => random.u64(1..MAX_TOKEN),
        false => random.u64(1..4),
    }
}

fn holder(random: &mut Rng) -> Holder<'static> {
    Holder {
        owner: owner(random),
        weight: weight(random),
        token: random.bool().then(|| token(random)),
    }
}

fn claim(random: &mut Rng) -> Claim<'static> {
    let owner = owner(random);
    let limited = owner.is_some() && random.bool();
    let max = number(random).unsigned_abs().clamp(1, i64::MAX as u64);
    Claim {
        owner,
        max_per_owner: limited.then_some(max),
        takeover: limited && random.bool(),
        weight: weight(random),
    }
}

/// Whom a session with an owner may take over from: another one, there or not.
fn replaced(random: &mut Rng, session: &[u8], holder: Holder<'_>) -> Option<&'static [u8]> {
    const SESSIONS: [&[u8]; 6] = [&[0], &[1], &[2], &[3], &[4], &[5]];
    let other = SESSIONS[random.usize(..6)];
    let is_takeover = holder.owner.is_some() && other != session && random.bool();
    is_takeover.then_some(other)
}

/// Any effect that a server could be told of.
fn effect<'a>(random: &mut Rng, session: &'a [u8]) -> Effect<'a> {
    let lease = |random: &mut Rng| Lease {
        length_ms: number(random).unsigned_abs().clamp(1, i64::MAX as u64),
        deadline_ms: number(random),
    };
    let count = |random: &mut Rng| number(random).max(i64::MIN + 1);
    match random.u8(..11) {
        0..3 => {
            let holder = holder(random);
            Effect::Grant(Grant {
                session,
                seats: number(random),
                acquired_at: random.bool().then(|| random.u32(..=MAX_SECOND)),
                last_heartbeat: random.bool().then(|| random.u32(..=MAX_SECOND)),
                heartbeat_count: random.bool().then(|| count(random)),
                lease: random.bool().then(|| lease(random)),
                metadata: random.bool().then_some(b"{\"a\":1}"),
                holder,
                replaces: replaced(random, session, holder),
            })
        }
        3 => Effect::Heartbeat(Heartbeat {
            session,
            last_heartbeat: random.u32(..=MAX_SECOND),
            heartbeat_count: count(random),
            lease: random.bool().then(|| lease(random)),
        }),
        4 => Effect::Renew {
            session,
            lease: lease(random),
        },
        5 => Effect::freeing(session, Freed::Expired),
        6 => Effect::Join(Join {
            session,
            seats: number(random),
            arrival: number(random).unsigned_abs().min(MAX_ARRIVAL - 1),
            ticket: Ticket {
                since_ms: number(random),
                length_ms: number(random).unsigned_abs().clamp(1, i64::MAX as u64),
                deadline_ms: number(random),
            },
            claim: claim(random),
        }),
        7 => Effect::Leave { session },
        8 => Effect::Token {
            session,
            token: token(random),
        },
        9 => Effect::Resize(number(random)),
        _ => Effect::Seats(number(random)),
    }
}

#[test]
fn whatever_effects_come_two_pools_that_follow_them_are_sound_and_the_same() {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let tried = inputs(400);
    let mut effects = 0;
    for number in 0..tried {
        let (mut pool, mut follower) = (Pool::new(0), Pool::new(0));
        let mut told = Vec::new();
        for _ in 0..random.usize(1..60) {
            let session = [random.u8(..6)];
            let effect = effect(&mut random, &session);
            told.push(format!("{effect:?}").into_bytes());
            effects += 1;
            let _trying = Trying {
                seed,
                number,
                input: &told,
            };
            assert_eq!(pool.apply(&effect), follower.apply(&effect));
            assert_eq!(contents(&pool), contents(&follower));
        }
        let _trying = Trying {
            seed,
            number,
            input: &told,
        };
        if !pool.is_empty() {
            check_pool(&pool);
        }
    }
    figure(&format!("trust: inputs tried: {effects} (effects)"));
}
