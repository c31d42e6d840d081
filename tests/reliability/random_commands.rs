//! Random commands of the module, good ones and spoilt ones.

use fastrand::Rng;

use crate::migration;

/// A command as its arguments.
pub type Words = Vec<Vec<u8>>;

/// The keys that all commands meet at.
pub const KEYS: [&str; 4] = ["p0", "p1", "p2", "p3"];

/// The highest limit that a command states, unless it is to be boundless.
pub const MOST_SEATS: i64 = 6;

/// The same for each of the owners that have one.
pub const MOST_OF_AN_OWNER: i64 = 2;

/// What the names of the owners begin with that have a limit.
pub const LIMITED: &[u8] = b"limited-";

/// As long as the longest id.
const LONGEST: [u8; 1024] = [b'x'; 1024];

/// Milliseconds after which no lease, ticket or wait that was meant to end soon is left.
pub const SHORT_MS: u64 = 150;

/// A time to come that no test lives to see.
const FAR_MS: u64 = 4_102_444_800_000;

pub fn words(arguments: &[&str]) -> Words {
    arguments
        .iter()
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// How random commands are made.
#[derive(Clone, Copy)]
pub struct Taste {
    /// Whether limits may be any number.
    pub boundless: bool,
    /// Whether internal commands are among them.
    pub effects: bool,
    /// Whether the scripts that pools replace, and their keys, are in use as well.
    pub scripts: bool,
}

pub fn key(random: &mut Rng) -> String {
    KEYS[random.usize(..KEYS.len())].to_owned()
}

fn session(random: &mut Rng) -> Vec<u8> {
    match random.u8(..40) {
        0 => b"\0\xff\r\n".to_vec(),
        1 => LONGEST.to_vec(),
        2 => b"BLOCK".to_vec(),
        _ => format!("s{}", random.u8(..14)).into_bytes(),
    }
}

fn owner(random: &mut Rng) -> Vec<u8> {
    match random.u8(..20) {
        0 => b"\0\xff\r\n".to_vec(),
        1 => LONGEST.to_vec(),
        2 => b"MAX".to_vec(),
        3..15 => [LIMITED, &[b'0' + random.u8(..2)]].concat(),
        _ => format!("o{}", random.u8(..2)).into_bytes(),
    }
}

fn weight(random: &mut Rng, taste: Taste) -> Vec<u8> {
    let weight = match random.u8(..20) {
        0 if taste.boundless => (1 << 31) - 1,
        _ => random.i64(1..=3),
    };
    weight.to_string().into_bytes()
}

/// A token that was seen, or one that no session has.
fn token(random: &mut Rng, tokens: &[u64]) -> Vec<u8> {
    let seen = random.choice(tokens).filter(|_| random.u8(..8) > 0);
    let token = seen.copied().unwrap_or_else(|| random.u64(1..20));
    token.to_string().into_bytes()
}

fn seats(random: &mut Rng, taste: Taste) -> Vec<u8> {
    let seats = match random.u8(..20) {
        0 => 0,
        1 => -1,
        2 => i64::MIN,
        3 if taste.boundless => i64::MAX,
        _ => random.i64(1..=MOST_SEATS),
    };
    seats.to_string().into_bytes()
}

fn metadata(random: &mut Rng) -> Vec<u8> {
    match random.u8(..8) {
        0 => br#"{"heartbeat_count":9223372036854775806,"a":1}"#.to_vec(),
        1 => br#"{"acquired\u005fat":[],"last_heartbeat":null,"b":"\ud83d\ude00"}"#.to_vec(),
        2 => format!(r#"{{"x":"{}"}}"#, "y".repeat(random.usize(..3000))).into_bytes(),
        3 => format!("{{\"n\":{}{}}}", "[".repeat(30), "]".repeat(30)).into_bytes(),
        _ => b"{}".to_vec(),
    }
}

/// A length of time that is soon over or never.
fn length_ms(random: &mut Rng) -> Vec<u8> {
    let ms = if random.bool() {
        random.u64(1..SHORT_MS)
    } else {
        86_000_000
    };
    ms.to_string().into_bytes()
}

fn lease(random: &mut Rng, command: &mut Words) {
    match random.u8(..4) {
        0 => command.extend([b"PX".to_vec(), length_ms(random)]),
        1 => command.extend([b"ex".to_vec(), b"100000".to_vec()]),
        _ => {}
    }
}

/// What an ACQUIRE asks for beyond one seat.
fn claim(random: &mut Rng, taste: Taste, command: &mut Words) {
    if random.u8(..3) == 0 {
        command.extend([b"WEIGHT".to_vec(), weight(random, taste)]);
    }
    if random.u8(..5) < 3 {
        let owner = owner(random);
        let is_limited = owner.starts_with(LIMITED);
        command.extend([b"OWNER".to_vec(), owner]);
        if is_limited || random.bool() {
            let max = random.i64(1..=MOST_OF_AN_OWNER);
            command.extend([b"max".to_vec(), max.to_string().into_bytes()]);
            if random.u8(..3) > 0 {
                command.push(b"TAKEOVER".to_vec());
            }
        }
    }
    if random.u8(..4) == 0 {
        command.push(b"WITHTOKEN".to_vec());
    }
}

/// A command of the module, as often as not with an argument that is wrong. `tokens` are those that
/// replies have had.
pub fn seat_command(random: &mut Rng, taste: Taste, tokens: &[u64]) -> Words {
    let mut command = if taste.effects && random.u8(..4) == 0 {
        effect(random, taste)
    } else if taste.scripts && random.u8(..3) == 0 {
        with_migration(random)
    } else {
        good_command(random, taste, tokens)
    };
    // A spoilt script would try the server's interpreter.
    while command[0] != b"EVAL" && random.u8(..5) == 0 {
        spoil(random, &mut command);
    }
    if !taste.boundless {
        bound(&mut command);
    }
    command
}

/// Lowers a limit above [`MOST_SEATS`], which a spoilt command may state, and has no limited owner
/// without its limit.
fn bound(command: &mut Words) {
    if command[0] == b"SEAT.ACQUIRE" {
        bound_owner(command);
    }
    let at = match command[0].as_slice() {
        b"SEAT.ACQUIRE" => 3,
        b"SEAT.RESIZE" => 2,
        _ => return,
    };
    if let Some(word) = command.get_mut(at)
        && let Some(seats) = str::from_utf8(word)
            .ok()
            .and_then(|word| word.parse::<i64>().ok())
        && seats > MOST_SEATS
    {
        *word = MOST_SEATS.to_string().into_bytes();
    }
}

fn bound_owner(command: &mut Words) {
    let value_of = |name: &[u8]| {
        let at = command
            .iter()
            .rposition(|word| word.eq_ignore_ascii_case(name));
        at.map(|at| at + 1).filter(|&at| at < command.len())
    };
    let max = value_of(b"MAX").and_then(|at| str::from_utf8(&command[at]).ok()?.parse().ok());
    let is_bound = max.is_some_and(|max: i64| max <= MOST_OF_AN_OWNER);
    for word in command.iter_mut().skip(1) {
        if word.starts_with(LIMITED) && !is_bound {
            *word = b"unlimited".to_vec();
        }
    }
}

fn good_command(random: &mut Rng, taste: Taste, tokens: &[u64]) -> Words {
    let pool = key(random).into_bytes();
    let session_of = session;
    let session = session(random);
    let mut command: Words = Vec::new();
    match random.u8(..100) {
        0..45 => {
            let seats = seats(random, taste);
            command.extend([b"SEAT.ACQUIRE".to_vec(), pool, session, seats]);
            if random.bool() {
                command.push(metadata(random));
            }
            lease(random, &mut command);
            claim(random, taste, &mut command);
            if random.u8(..3) == 0 {
                command.extend([b"QUEUE".to_vec(), length_ms(random)]);
            }
            if random.u8(..3) == 0 {
                let timeout = if random.bool() {
                    b"0".to_vec()
                } else {
                    length_ms(random)
                };
                command.extend([b"BLOCK".to_vec(), timeout]);
            }
        }
        45..60 => {
            command.extend([b"seat.heartbeat".to_vec(), pool, session]);
            if random.u8(..4) == 0 {
                command.push(metadata(random));
            }
            lease(random, &mut command);
            if random.u8(..4) == 0 {
                command.extend([b"TOKEN".to_vec(), token(random, tokens)]);
            }
        }
        60..73 => {
            command.extend([b"SEAT.RELEASE".to_vec(), pool, session]);
            if random.u8(..4) == 0 {
                command.extend([b"token".to_vec(), token(random, tokens)]);
            }
        }
        73..75 => command.extend([b"SEAT.REVOKEOWNER".to_vec(), pool, owner(random)]),
        75..78 => {
            command.extend([b"SEAT.REVOKE".to_vec(), pool, session]);
            command.extend((0..random.u8(..4)).map(|_| session_of(random)));
        }
        78..81 => {
            command.extend([b"SEAT.CLEANUP".to_vec(), pool]);
            if random.bool() {
                command.extend([b"IDLE".to_vec(), random.u8(..3).to_string().into_bytes()]);
            }
        }
        81..85 => command.extend([b"SEAT.RESIZE".to_vec(), pool, seats(random, taste)]),
        85 => command.extend([b"SEAT.COUNT".to_vec(), pool]),
        86 => command.extend([b"SEAT.OWNERS".to_vec(), pool]),
        87..89 => {
            command.extend([b"SEAT.SESSIONS".to_vec(), pool]);
            if random.bool() {
                command.extend([b"OWNER".to_vec(), owner(random)]);
            }
            command.extend(shown(random));
        }
        89..91 => {
            let cursor = if random.bool() { 0 } else { random.u64(..) };
            let cursor = cursor.to_string().into_bytes();
            command.extend([
                b"SEAT.SCAN".to_vec(),
                pool,
                cursor,
                b"COUNT".to_vec(),
                b"3".to_vec(),
            ]);
            command.extend(shown(random));
        }
        91..93 => {
            command.extend([b"SEAT.GET".to_vec(), pool, session]);
            if random.bool() {
                command.push(b"DETAILS".to_vec());
            }
        }
        93..95 => command.extend([b"SEAT.INFO".to_vec(), pool]),
        95..97 => command.extend([b"SEAT.PTTL".to_vec(), pool, session]),
        97..99 => command.extend([b"SEAT.QUEUE".to_vec(), pool]),
        _ => command.extend([b"SEAT.POSITION".to_vec(), pool, session]),
    }
    command
}

/// What a list of sessions is to show.
fn shown(random: &mut Rng) -> Option<Vec<u8>> {
    let shown: [Option<&[u8]>; 3] = [None, Some(b"WITHMETADATA"), Some(b"WITHDETAILS")];
    shown[random.usize(..3)].map(<[u8]>::to_vec)
}

/// The numbers of an effect are one argument.
fn joined(numbers: &[Vec<u8>]) -> Vec<u8> {
    numbers.join(&b' ')
}

/// An effect that some server could have written, and now and then one that none would.
fn effect(random: &mut Rng, taste: Taste) -> Words {
    let lease = |random: &mut Rng| match random.u8(..4) {
        0 => words(&["1000", "1"]),
        1 => vec![length_ms(random), FAR_MS.to_string().into_bytes()],
        2 => words(&["9223372036854775807", "9223372036854775806"]),
        _ => words(&["0", "0"]),
    };
    let count = |random: &mut Rng| match random.u8(..4) {
        0 => b"9223372036854775807".to_vec(),
        1 => b"-9223372036854775807".to_vec(),
        _ => random.u8(..).to_string().into_bytes(),
    };
    let mut command = vec![b"SEAT.EFFECT".to_vec(), key(random).into_bytes()];
    let (replaced, session) = (session(random), session(random));
    match random.u8(..9) {
        0 | 1 => {
            let mut numbers = vec![seats(random, taste)];
            numbers.extend(words(&["1700000000", "4294967295"]));
            numbers.push(if random.bool() {
                b"-".to_vec()
            } else {
                count(random)
            });
            numbers.extend(lease(random));
            let holder = random.bool();
            if holder {
                numbers.push(weight_of_effect(random, taste));
                numbers.push(match random.u8(..3) {
                    0 => b"-".to_vec(),
                    _ => token_of_effect(random),
                });
            }
            let kind = ["GRANT", "IMPORT"][usize::from(random.u8(..4) == 0)];
            command.extend([kind.into(), session, joined(&numbers)]);
            command.push(match random.u8(..3) {
                0 => b"-".to_vec(),
                1 => br#"{"kept":[1]}"#.to_vec(),
                _ => b"{}".to_vec(),
            });
            if random.bool() && (holder || random.u8(..8) == 0) {
                command.push(owner(random));
                if random.u8(..4) == 0 {
                    command.push(replaced);
                }
            }
        }
        2 => {
            let mut numbers = vec![b"0".to_vec(), count(random)];
            numbers.extend(lease(random));
            command.extend([b"BEAT".to_vec(), session, joined(&numbers)]);
        }
        3 => {
            let numbers = lease(random);
            command.extend([b"RENEW".to_vec(), session, joined(&numbers)]);
        }
        4 => {
            let kind = ["SEATS", "RESIZE"][random.usize(..2)];
            command.extend([kind.into(), seats(random, taste)]);
        }
        5 => {
            let arrival = match random.u8(..8) {
                0 => (1u64 << 62) - 1,
                1 => 0,
                _ => random.u64(..1000),
            };
            let mut numbers = vec![seats(random, taste)];
            numbers.push(arrival.to_string().into_bytes());
            numbers.push(if random.bool() {
                b"-9223372036854775808".to_vec()
            } else {
                b"1".to_vec()
            });
            numbers.push(length_ms(random));
            numbers.push(if random.bool() {
                FAR_MS.to_string().into_bytes()
            } else {
                b"5".to_vec()
            });
            let claim = random.bool();
            let mut owner_of_claim = None;
            if claim {
                numbers.push(weight_of_effect(random, taste));
                numbers.extend(match random.u8(..8) {
                    0 | 1 => words(&["-", "0"]),
                    2 => words(&["-", "1"]),
                    3 => words(&["0", "0"]),
                    4 => words(&["9223372036854775807", "1"]),
                    n => words(&["1", ["0", "1"][usize::from(n % 2)]]),
                });
                owner_of_claim = (random.u8(..4) > 0).then(|| owner(random));
            }
            command.extend([b"JOIN".to_vec(), session, joined(&numbers)]);
            command.extend(owner_of_claim);
        }
        6 => command.extend([b"LEAVE".to_vec(), session]),
        7 => command.extend([b"TOKEN".to_vec(), session, token_of_effect(random)]),
        _ => {
            let why = ["released", "revoked", "expired"][random.usize(..3)];
            command.extend([b"FREE".to_vec(), why.into(), session]);
        }
    }
    command
}

/// A weight, or a number that cannot be one.
fn weight_of_effect(random: &mut Rng, taste: Taste) -> Vec<u8> {
    match random.u8(..16) {
        0 => b"0".to_vec(),
        1 => b"2147483648".to_vec(),
        _ => weight(random, taste),
    }
}

/// A token, or a number that cannot be one. The largest is not among them: no server that has seen
/// it has another to give.
fn token_of_effect(random: &mut Rng) -> Vec<u8> {
    let token = match random.u8(..16) {
        0 => 0,
        1 => 1 << 52,
        2 => (1 << 51) + random.u64(..1 << 50),
        _ => random.u64(1..20),
    };
    token.to_string().into_bytes()
}

/// What callers and readers of the scripts send while a team moves over, and what moves sessions
/// between the two.
fn with_migration(random: &mut Rng) -> Words {
    let (pool, of) = (key(random), key(random));
    let sessions = format!("license:{of}:active_sessions");
    let metadata = format!("license:{of}:session_metadata");
    let json = match random.u8(..5) {
        0 => r#"{"acquired_at":1700000000,"last_heartbeat":1700000001,"heartbeat_count":3,"a":[]}"#,
        1 => r#"{"acquired_at":-1.5,"last_heartbeat":"x","heartbeat_count":null}"#,
        2 => "not JSON",
        _ => "{}",
    };
    let template = match random.u8(..26) {
        0..3 => "SEAT.IMPORT POOL SESSIONS METADATA",
        3..6 => "SEAT.EXPORT POOL SESSIONS METADATA",
        6..9 => "SADD SESSIONS SESSION SESSION",
        9..12 => "HSET METADATA SESSION JSON SESSION JSON",
        12 => "SREM SESSIONS SESSION",
        13 => "HDEL METADATA SESSION",
        14 => "DEL SESSIONS METADATA",
        15 => "RENAME POOL SESSIONS",
        16 => "SISMEMBER SESSIONS SESSION",
        17 => "SMEMBERS SESSIONS",
        18 => "SCARD SESSIONS",
        19 => "HGET METADATA SESSION",
        20 => "HGETALL METADATA",
        21 => "HKEYS METADATA",
        22 => "SET SESSIONS x",
        23 => "EVAL ACQUIRE 1 POOL SESSION 3 JSON",
        24 => "EVAL RELEASE 1 POOL SESSION",
        _ => "EVAL HEARTBEAT 1 POOL SESSION JSON",
    };
    template
        .split(' ')
        .map(|word| match word {
            "POOL" => pool.clone().into_bytes(),
            "SESSIONS" => sessions.clone().into_bytes(),
            "METADATA" => metadata.clone().into_bytes(),
            "SESSION" => session(random),
            "JSON" => json.into(),
            "ACQUIRE" => migration::ACQUIRE.into(),
            "RELEASE" => migration::RELEASE.into(),
            "HEARTBEAT" => migration::HEARTBEAT.into(),
            literal => literal.into(),
        })
        .collect()
}

/// What a client may send instead of any argument.
const JUNK: [&[u8]; 31] = [
    b"",
    b"-",
    b"-1",
    b"0",
    b"1",
    b"1.0",
    b" 5",
    b"0x10",
    b"nan",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"EX",
    b"pX",
    b"QUEUE",
    b"WEIGHT",
    b"OWNER",
    b"Max",
    b"TAKEOVER",
    b"WITHTOKEN",
    b"token",
    b"COUNT",
    b"WITHMETADATA",
    b"withdetails",
    b"IDLE",
    b"{",
    b"[1,2]",
    b"{\"heartbeat_count\":null}",
    b"\xff\xfe\0\r\n",
    b"{\"a\":1e999}",
];

/// Changes, adds, removes or swaps arguments. The command's name stays.
pub fn spoil(random: &mut Rng, command: &mut Words) {
    let last = command.len();
    let at = random.usize(1..=last);
    match random.u8(..7) {
        0 if at < last => drop(command.remove(at)),
        1 => command.insert(at, JUNK[random.usize(..JUNK.len())].to_vec()),
        2 if at < last => {
            let other = random.usize(1..last);
            command.swap(at, other);
        }
        3 if at < last => {
            let word = &mut command[at];
            if !word.is_empty() {
                let byte = random.usize(..word.len());
                word[byte] = random.u8(..);
            }
        }
        4 if at < last => {
            let word = command[at].clone();
            command.insert(at, word);
        }
        5 if at < last && random.u8(..10) == 0 => command[at] = vec![b'z'; random.usize(1..70_000)],
        _ if at < last => command[at] = JUNK[random.usize(..JUNK.len())].to_vec(),
        _ => command.push(b"BLOCK".to_vec()),
    }
}

/// Whether a client that sends this may have to wait for its reply.
pub fn may_block(command: &Words) -> bool {
    command[0].eq_ignore_ascii_case(b"SEAT.ACQUIRE")
        && command
            .iter()
            .any(|word| word.eq_ignore_ascii_case(b"BLOCK"))
}
