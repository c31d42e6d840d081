//! Random streams of commands against a primary with a replica and an AOF: the module's own
//! commands, good and spoilt, and all that the server can do to the same keys meanwhile. Nothing
//! may crash, leak, diverge, or hold more sessions than anybody allowed.
//!
//! `SEAT_TEST_SEED` repeats a failing run's commands; what has expired between two of them is up to
//! the machine.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redis::Value;

use super::random_commands::{
    self, LIMITED, MOST_OF_AN_OWNER, MOST_SEATS, SHORT_MS, Taste, Words, words,
};
use super::{figure, scale};
use crate::data_type::corrupt_payloads;
use crate::migration;
use crate::support::{Builder, Server, Wire, eventually, workload};

const DATABASES: usize = 3;
const CLIENTS: usize = 6;
const MOST_WAITERS: usize = 12;

/// The first byte of a payload of a module's value. Spoilt values of other types would try the
/// server.
const MODULE_VALUE: u8 = 7;

/// Where the type's own number ends.
const AFTER_TYPE: usize = 10;

/// Few, so that some of them are present ones.
const KNOWN_TOKENS: usize = 8;

/// The commands that a failure shows.
const SHOWN: usize = 60;

/// What was sent last, and what the pools looked like then, shown if the test fails.
#[derive(Default)]
struct History {
    commands: VecDeque<String>,
    figures: String,
}

impl History {
    fn add(&mut self, client: &str, command: &[Vec<u8>]) {
        if self.commands.len() == SHOWN {
            self.commands.pop_front();
        }
        let command: Vec<_> = command
            .iter()
            .map(|word| {
                let shown = word[..word.len().min(80)].escape_ascii().to_string();
                if word.len() > 80 {
                    format!("{shown}... of {} bytes", word.len())
                } else {
                    shown
                }
            })
            .collect();
        self.commands
            .push_back(format!("{client}: {}", command.join(" ")));
    }
}

impl Drop for History {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the last commands:");
            self.commands.iter().for_each(|line| eprintln!("  {line}"));
            eprintln!("{}", self.figures);
        }
    }
}

/// A client that was blocked when it was last looked at.
struct Waiting {
    wire: Wire,
    id: i64,
}

struct Stream {
    history: History,
    random: Rng,
    taste: Taste,
    clients: Vec<Wire>,
    waiters: Vec<Waiting>,
    observer: Wire,
    /// Until when some key may end by its time.
    keys_end: Instant,
    dumps: Vec<Vec<u8>>,
    /// Some of those that replies had.
    tokens: Vec<u64>,
    sent: u64,
    replica: Option<Server>,
    primary: Server,
}

impl Stream {
    /// On a primary with an AOF and a replica.
    fn replicated(random: Rng, taste: Taste) -> Self {
        let builder = Server::builder()
            .recording()
            .config("appendfsync no")
            .config("auto-aof-rewrite-percentage 0")
            .config("repl-backlog-size 16kb")
            .tcp();
        let mut stream = Self::on(builder, random, taste);
        let replica = Server::builder().replica_of(&stream.primary).start();
        stream.primary.wait_for_offset(&replica);
        stream.replica = Some(replica);
        stream
    }

    fn on(builder: Builder, mut random: Rng, taste: Taste) -> Self {
        let mut settings = Vec::new();
        if random.bool() {
            settings.push("lease-grace 30000".to_owned());
        }
        if taste.effects {
            settings.push("allow-effects yes".to_owned());
        }
        if taste.scripts {
            settings.push("script-keys yes script-view yes".to_owned());
            if random.bool() {
                let [acquire, release, heartbeat] = migration::SHAS;
                settings.push(format!(
                    "acquire-sha {acquire} release-sha {release} heartbeat-sha {heartbeat}"
                ));
            }
        }
        let primary = builder.module_args(&settings.join(" ")).start();
        Self {
            history: History::default(),
            random,
            taste,
            clients: (0..CLIENTS).map(|_| primary.wire()).collect(),
            waiters: Vec::new(),
            observer: primary.wire(),
            keys_end: Instant::now(),
            dumps: Vec::new(),
            tokens: Vec::new(),
            sent: 0,
            replica: None,
            primary,
        }
    }

    /// Sends from one of the clients, and gives back the raw reply.
    fn ask(&mut self, client: usize, command: &[Vec<u8>]) -> Vec<u8> {
        self.history.add(&client.to_string(), command);
        self.sent += 1;
        let reply = self.clients[client].call(command);
        let value = sound_reply(&reply);
        self.note_tokens(&value);
        reply
    }

    fn seat_command(&mut self) -> Words {
        random_commands::seat_command(&mut self.random, self.taste, &self.tokens)
    }

    fn note_tokens(&mut self, reply: &Value) {
        match reply {
            Value::Array(elements) => elements.iter().for_each(|value| self.note_tokens(value)),
            // Microseconds of this century's unix time.
            &Value::Int(number) if (1 << 50..1 << 52).contains(&number) => {
                if self.tokens.len() == KNOWN_TOKENS {
                    self.tokens.swap_remove(self.random.usize(..KNOWN_TOKENS));
                }
                self.tokens.push(number as u64);
            }
            _ => {}
        }
    }

    fn observe(&mut self, command: &[&str]) -> Value {
        self.history.add("observer", &words(command));
        self.observer.value(command)
    }

    fn act(&mut self) {
        let client = self.random.usize(..CLIENTS);
        match self.random.u8(..100) {
            0..70 => {
                let command = self.seat_command();
                if !random_commands::may_block(&command) {
                    self.ask(client, &command);
                } else if self.waiters.len() < MOST_WAITERS {
                    self.wait_with(&command);
                }
            }
            70..84 => {
                let command = self.foreign();
                self.ask(client, &command);
            }
            84..88 => self.transaction(client),
            88..91 => self.script(client),
            91..93 => self.dump_or_restore(client),
            93..99 => self.end_a_wait(),
            _ => self.disturb(),
        }
    }

    /// A command of the server's own on keys of the module.
    fn foreign(&mut self) -> Words {
        let loses_client_database = self.primary.product().loses_client_database();
        let random = &mut self.random;
        let template = match random.u8(..36) {
            0 => "SET ONE text",
            1 => "SET ONE text PX SOON",
            2..5 => "DEL ONE",
            5 => "UNLINK ONE OTHER",
            6..9 => "RENAME ONE OTHER",
            9 => "RENAMENX ONE OTHER",
            10 => "PEXPIRE ONE SOON",
            11 => "EXPIRE ONE 100000",
            12 => "EXPIRE ONE -1",
            13 => "PERSIST ONE",
            14..16 => "COPY ONE OTHER REPLACE",
            // There, what follows would be done, logged and replicated in the wrong database.
            16 if loses_client_database => "COPY ONE OTHER",
            16 => "COPY ONE OTHER DB DATABASE",
            17 => "MOVE ONE DATABASE",
            18..21 => "SWAPDB DATABASE DATABASE",
            21..23 => "SELECT DATABASE",
            23 => "SORT ONE",
            24 => "LPUSH ONE x",
            25 => "GETSET ONE x",
            26 => "SORT OTHER BY nosort STORE ONE",
            27 => "SUNIONSTORE ONE OTHER",
            28 => "OBJECT FREQ ONE",
            29 => "MEMORY USAGE ONE",
            30 => "TYPE ONE",
            31 => "SCAN 0 TYPE seat-pool",
            32 => "FLUSHDB",
            33 if random.bool() => "FLUSHALL",
            33 => "FLUSHALL ASYNC",
            34 => "SINTERSTORE ONE ONE OTHER",
            _ => "DEBUG DIGEST-VALUE ONE",
        };
        if template.contains("SOON") {
            // In a transaction it begins a little later.
            self.keys_end = Instant::now() + Duration::from_millis(2 * SHORT_MS);
        }
        let (one, other) = (random_commands::key(random), random_commands::key(random));
        template
            .split(' ')
            .map(|word| match word {
                "ONE" => one.clone().into_bytes(),
                "OTHER" => other.clone().into_bytes(),
                "SOON" => random.u64(1..SHORT_MS).to_string().into_bytes(),
                "DATABASE" => random.usize(..DATABASES).to_string().into_bytes(),
                literal => literal.into(),
            })
            .collect()
    }

    /// WATCH, what others do meanwhile, MULTI, some commands, EXEC.
    fn transaction(&mut self, client: usize) {
        let key = random_commands::key(&mut self.random);
        if self.random.bool() {
            self.ask(client, &words(&["WATCH", &key]));
            if self.random.bool() {
                let other = (client + 1) % CLIENTS;
                let command = self.seat_command();
                if !random_commands::may_block(&command) {
                    self.ask(other, &command);
                }
            }
        }
        self.ask(client, &words(&["MULTI"]));
        for _ in 0..self.random.u8(1..6) {
            let command = match self.random.u8(..4) {
                0 => self.foreign(),
                _ => self.seat_command(),
            };
            self.ask(client, &command);
        }
        let last = if self.random.u8(..8) == 0 {
            "DISCARD"
        } else {
            "EXEC"
        };
        self.ask(client, &words(&[last]));
    }

    fn script(&mut self, client: usize) {
        const THRICE: &str =
            "local last for i = 1, 3 do last = redis.pcall(unpack(ARGV)) end return last";
        const BESIDE: &str = "local last = redis.pcall(unpack(ARGV)) redis.call('SET', KEYS[1], 'x') \
             redis.call('DEL', KEYS[1]) redis.pcall(unpack(ARGV)) return last";
        let key = random_commands::key(&mut self.random);
        let script = if self.random.bool() { THRICE } else { BESIDE };
        let mut command = words(&["EVAL", script, "1", &key]);
        command.extend(self.seat_command());
        self.ask(client, &command);
    }

    fn dump_or_restore(&mut self, client: usize) {
        let key = random_commands::key(&mut self.random);
        if self.dumps.is_empty() || self.random.bool() {
            let reply = self.ask(client, &words(&["DUMP", &key]));
            if let Ok(Value::BulkString(payload)) = redis::parse_redis_value(&reply) {
                if self.dumps.len() == 20 {
                    self.dumps.swap_remove(self.random.usize(..20));
                }
                self.dumps.push(payload);
            }
        } else {
            let mut payload = self.dumps[self.random.usize(..self.dumps.len())].clone();
            if self.taste.boundless && payload[0] == MODULE_VALUE && self.random.bool() {
                payload = self.spoilt(payload);
            }
            let mut command = words(&["RESTORE", &key, "0"]);
            command.push(payload);
            command.push(b"REPLACE".to_vec());
            self.ask(client, &command);
        }
    }

    /// The payload with some other bytes, and with a checksum that says that they are right.
    fn spoilt(&mut self, mut payload: Vec<u8>) -> Vec<u8> {
        let end = payload.len() - corrupt_payloads::FOOTER;
        for _ in 0..self.random.u8(1..4) {
            payload[self.random.usize(AFTER_TYPE..end)] = self.random.u8(..);
        }
        payload.truncate(payload.len() - corrupt_payloads::CHECKSUM);
        corrupt_payloads::signed(payload)
    }

    /// Sends what may block on a connection of its own, which joins the waiters if it does.
    fn wait_with(&mut self, command: &[Vec<u8>]) {
        let mut wire = self.primary.wire();
        if self.random.u8(..4) == 0 {
            wire = wire.resp3();
        }
        let database = self.random.usize(..DATABASES).to_string();
        wire.call(&["SELECT", &database]);
        let Value::Int(id) = wire.value(&["CLIENT", "ID"]) else {
            panic!("CLIENT ID is no integer");
        };
        self.history
            .add(&format!("client {id} in {database}"), command);
        self.sent += 1;
        wire.send(command);
        eventually("the server has taken the command", || {
            let client = client_line(&mut self.observer, id).expect("a connected client");
            !client.contains(" cmd=client")
        });
        let waiting = Waiting { wire, id };
        if is_blocked(&mut self.observer, id) == Some(true) {
            self.waiters.push(waiting);
        } else {
            self.hear(waiting);
        }
    }

    /// Reads the reply that must be there or under way.
    fn hear(&mut self, mut waiting: Waiting) {
        self.history
            .add(&format!("client {}", waiting.id), &words(&["(reads)"]));
        sound_reply(&waiting.wire.read());
    }

    fn end_a_wait(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        let waiting = self
            .waiters
            .swap_remove(self.random.usize(..self.waiters.len()));
        let id = waiting.id.to_string();
        match self.random.u8(..4) {
            0 => {
                self.history
                    .add(&format!("client {id}"), &words(&["(vanishes)"]));
            }
            1 => drop(self.observe(&["CLIENT", "KILL", "ID", &id])),
            2 => {
                self.observe(&["CLIENT", "UNBLOCK", &id, "TIMEOUT"]);
                self.hear(waiting);
            }
            _ => {
                self.observe(&["CLIENT", "UNBLOCK", &id, "ERROR"]);
                self.hear(waiting);
            }
        }
    }

    /// What happens to the server as a whole.
    fn disturb(&mut self) {
        match self.random.u8(..8) {
            0 | 1 if Instant::now() > self.keys_end => {
                self.drop_ended_keys();
                self.replica_is_online();
                assert_eq!(self.observe(&["DEBUG", "RELOAD"]), Value::Okay);
            }
            2 => {
                // The pause ends before the next command is taken, while timers go on.
                self.observe(&["CLIENT", "PAUSE", "5"]);
                self.observe(&["PING"]);
            }
            3 => {
                self.replica_is_online();
                self.observe(&["CLIENT", "KILL", "TYPE", "replica"]);
            }
            4 => drop(self.observe(&["BGREWRITEAOF"])),
            5 => {
                self.replica_is_online();
                self.observe(&["DEBUG", "CHANGE-REPL-ID"]);
                self.observe(&["CLIENT", "KILL", "TYPE", "replica"]);
            }
            6 if self.primary.version() >= (7, 0, 0) => {
                let most = ["0", "2", "100000"][self.random.usize(..3)];
                self.observe(&["CONFIG", "SET", "seat.max-queue-length", most]);
            }
            _ => {
                let ask = self.random.usize(..CLIENTS);
                self.clients[ask] = self.primary.wire();
            }
        }
    }

    /// No full synchronisation is under way. DEBUG RELOAD would overwrite the file that the replica
    /// is about to be sent, and 6.2.5 crashes by itself when a replica is killed that is being sent
    /// one.
    fn replica_is_online(&self) {
        if self.replica.is_none() {
            return;
        }
        eventually("the replica is online", || {
            let replication = self.primary.info("replication");
            let replica = replication.get("slave0");
            replica.is_some_and(|replica| replica.contains("state=online"))
        });
    }

    /// Has the server drop and replicate each key whose time is over: 6.2 loses it silently in a
    /// reload otherwise.
    fn drop_ended_keys(&mut self) {
        for database in 0..DATABASES {
            self.observe(&["SELECT", &database.to_string()]);
            self.observe(&["SCAN", "0", "COUNT", "100000"]);
        }
    }

    /// All that must hold when nobody does anything.
    fn check_at_rest(&mut self) {
        for mut waiting in std::mem::take(&mut self.waiters) {
            self.observe(&["CLIENT", "UNBLOCK", &waiting.id.to_string(), "TIMEOUT"]);
            sound_reply(&waiting.wire.read());
        }
        eventually("nobody is blocked", || {
            self.primary.info("seat")["seat_blocked_clients"] == "0"
                && self.primary.info("clients")["blocked_clients"] == "0"
        });
        eventually("each key whose time is over is gone", || {
            Instant::now() > self.keys_end
        });
        self.drop_ended_keys();
        let mut readings = Vec::new();
        eventually("INFO seat counts the tickets of all pools", || {
            readings = self.read_pools();
            let tickets: i64 = readings.iter().map(|reading| reading.waiting).sum();
            let counted = self.primary.info("seat")["seat_tickets"].clone();
            self.history.figures = format!("{counted} tickets counted; {readings:?}");
            counted == tickets.to_string()
        });
        if !self.taste.boundless {
            let highest = readings.iter().map(|reading| reading.weight).max();
            assert!(highest.unwrap_or(0) <= MOST_SEATS, "{readings:?}");
            let held = readings
                .iter()
                .map(|reading| reading.most_of_a_limited_owner);
            assert!(held.max().unwrap_or(0) <= MOST_OF_AN_OWNER, "{readings:?}");
        }
        self.replica_is_online();
        // The last leases expire meanwhile. What a reload would lose, the replica still has.
        eventually("a reload changes nothing", || {
            let before = self.primary.digest();
            self.observer.call(&["DEBUG", "RELOAD"]);
            self.primary.digest() == before
        });
        let mut log = self.primary.log();
        if let Some(replica) = &self.replica {
            eventually("the replica holds the same", || {
                self.primary.wait_for_offset(replica);
                self.primary.digest() == replica.digest()
            });
            assert_eq!(replica.info("seat")["seat_ignored_effects"], "0");
            log += &replica.log();
        }
        assert!(!log.contains("seat: panic in"), "{log}");
    }

    /// The figures of each pool, which agree with its contents.
    fn read_pools(&mut self) -> Vec<Reading> {
        let mut readings = Vec::new();
        for database in 0..DATABASES {
            self.observer.call(&["SELECT", &database.to_string()]);
            // Spoilt commands make pools under other names, too.
            let pools = self
                .observer
                .value(&["SCAN", "0", "COUNT", "1000", "TYPE", "seat-pool"]);
            let (_, pools): (String, Vec<Vec<u8>>) =
                redis::from_redis_value(pools).expect("a cursor and keys");
            for key in pools {
                // Between two commands a lease may expire.
                eventually(
                    &format!("the figures of {} agree", key.escape_ascii()),
                    || {
                        let reading = Reading::of(&mut self.observer, &key);
                        let agree = reading.is_consistent();
                        if agree {
                            readings.push(reading);
                        }
                        agree
                    },
                );
            }
        }
        readings
    }

    /// A server that starts from the AOF has the same data as the replica.
    fn check_aof(&mut self) {
        self.no_rewrite_is_under_way();
        self.primary.shutdown();
        let ended = Server::builder().recording().data_of(&self.primary).start();
        assert_eq!(ended.info("seat")["seat_ignored_effects"], "0");
        // It waits for its primary to take back what has expired, and that is gone: it becomes one
        // itself.
        let replica = self.replica.as_ref().expect("a replica");
        redis::cmd("REPLICAOF")
            .arg("NO")
            .arg("ONE")
            .exec(&mut replica.client())
            .expect("a promotion");
        eventually("the AOF holds what the replica holds", || {
            ended.digest() == replica.digest()
        });
    }

    fn no_rewrite_is_under_way(&self) {
        eventually("no rewrite is under way", || {
            let persistence = self.primary.info("persistence");
            persistence["aof_rewrite_in_progress"] == "0"
                && persistence["aof_rewrite_scheduled"] == "0"
        });
    }

    /// What is used when all connections of the stream and all keys are gone.
    fn memory_when_empty(&mut self) -> i64 {
        self.check_at_rest();
        self.no_rewrite_is_under_way();
        self.clients = (0..CLIENTS).map(|_| self.primary.wire()).collect();
        self.observe(&["FLUSHALL"]);
        eventually("only these connections are left", || {
            let clients = self.primary.info("clients");
            // The one that asks is counted, too.
            clients["connected_clients"] == (CLIENTS + 2).to_string()
        });
        self.observer.call(&["MEMORY", "PURGE"]);
        let memory = self.primary.info("memory");
        memory["used_memory"].parse().expect("a number of bytes")
    }
}

/// What the reading commands say of one pool.
#[derive(Debug)]
struct Reading {
    count: i64,
    sessions: usize,
    scanned: usize,
    with_metadata: usize,
    with_details: usize,
    /// The sum of their weights.
    weight: i64,
    /// Of the sessions with an owner: how many and their weight, by their own details, and as the
    /// pool counts them by owner.
    owned: (i64, i64),
    by_owner: (i64, i64),
    most_of_a_limited_owner: i64,
    /// With the invalid entries that a command has found.
    used: i64,
    /// Entries of the legacy set that are no sessions of the pool: no more of them are counted.
    elsewhere: i64,
    queued: i64,
    waiting: i64,
}

impl Reading {
    fn of(wire: &mut Wire, key: &[u8]) -> Self {
        let number = |value: Value| -> i64 { redis::from_redis_value(value).expect("an integer") };
        let list = |value: Value| match value {
            Value::Array(elements) => elements,
            other => panic!("no array: {other:?}"),
        };
        let scanned = list(wire.value(&[b"SEAT.SCAN", key, b"0", b"COUNT", b"1000000"]));
        assert_eq!(scanned[0], Value::BulkString(b"0".to_vec()));
        // A pool whose last lease has just expired may be gone.
        let info = match wire.value(&[b"SEAT.INFO", key]) {
            Value::Nil => Vec::new(),
            info => list(info),
        };
        let field = |name: &str| {
            let at = info
                .iter()
                .position(|field| *field == Value::BulkString(name.into()));
            at.map_or(0, |at| number(info[at + 1].clone()))
        };
        let count = number(wire.value(&[b"SEAT.COUNT", key]));
        let details = list(wire.value(&[b"SEAT.SESSIONS", key, b"WITHDETAILS"]));
        let detail = |details: &Value, name: &str| -> Value {
            let fields = list(details.clone());
            let at = fields
                .iter()
                .position(|field| *field == Value::BulkString(name.into()));
            fields[at.expect("a field") + 1].clone()
        };
        let details: Vec<(bool, i64)> = details
            .chunks(2)
            .map(|pair| {
                let has_owner = detail(&pair[1], "owner") != Value::Nil;
                (has_owner, number(detail(&pair[1], "weight")))
            })
            .collect();
        let owners = list(wire.value(&[b"SEAT.OWNERS", key]));
        let owners: Vec<(Vec<u8>, i64, i64)> = owners
            .chunks(2)
            .map(|pair| {
                let owner = redis::from_redis_value(pair[0].clone()).expect("a name");
                let figures = redis::from_redis_value(pair[1].clone());
                let (sessions, used) = figures.expect("two numbers");
                (owner, sessions, used)
            })
            .collect();
        let limited = owners
            .iter()
            .filter(|(owner, ..)| owner.starts_with(LIMITED));
        // A reader of the legacy set sees the sessions of the pool and the entries.
        let set = [b"license:", key, b":active_sessions"].concat();
        let seen = match wire.value(&[b"SCARD", &set[..]]) {
            Value::Int(seen) => seen,
            _ => 0,
        };
        Self {
            count,
            elsewhere: (seen - count).max(0),
            sessions: list(wire.value(&[b"SEAT.SESSIONS", key])).len(),
            scanned: list(scanned[1].clone()).len(),
            with_metadata: list(wire.value(&[b"SEAT.SESSIONS", key, b"WITHMETADATA"])).len() / 2,
            with_details: details.len(),
            weight: details.iter().map(|(_, weight)| weight).sum(),
            owned: (
                details.iter().filter(|(has_owner, _)| *has_owner).count() as i64,
                details
                    .iter()
                    .filter(|(has_owner, _)| *has_owner)
                    .map(|(_, weight)| weight)
                    .sum(),
            ),
            by_owner: (
                owners.iter().map(|(_, sessions, _)| sessions).sum(),
                owners.iter().map(|(.., used)| used).sum(),
            ),
            most_of_a_limited_owner: limited.map(|(_, sessions, _)| *sessions).max().unwrap_or(0),
            used: field("used"),
            waiting: field("waiting"),
            queued: list(wire.value(&[b"SEAT.QUEUE", key])).len() as i64,
        }
    }

    fn is_consistent(&self) -> bool {
        let same = [
            self.count,
            self.sessions as i64,
            self.scanned as i64,
            self.with_metadata as i64,
            self.with_details as i64,
        ];
        let counted_elsewhere = self.used - self.weight;
        self.owned == self.by_owner
            && same.iter().all(|&figure| figure == self.count)
            && (0..=self.elsewhere).contains(&counted_elsewhere)
            && self.queued == self.waiting
    }
}

/// No reply reports a defect.
#[track_caller]
fn sound_reply(reply: &[u8]) -> Value {
    let text = reply.escape_ascii().to_string();
    assert!(!text.contains("internal error"), "{text}");
    redis::parse_redis_value(reply).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn client_line(observer: &mut Wire, id: i64) -> Option<String> {
    let list = observer.value(&["CLIENT", "LIST", "ID", &id.to_string()]);
    let list: String = redis::from_redis_value(list).expect("a text");
    (!list.is_empty()).then_some(list)
}

/// Whether a client is blocked; `None` if it is gone.
fn is_blocked(observer: &mut Wire, id: i64) -> Option<bool> {
    let line = client_line(observer, id)?;
    let flags = line
        .split(' ')
        .find_map(|field| field.strip_prefix("flags="));
    Some(flags.expect("a client has flags").contains('b'))
}

fn run(taste: Taste, steps: u64) -> u64 {
    let seed = workload::seed();
    let mut stream = Stream::replicated(Rng::with_seed(seed), taste);
    let check_each = 1500;
    let mut warm = None;
    let mut sent = 0;
    while sent < steps {
        for _ in 0..check_each {
            stream.act();
        }
        sent += check_each;
        stream.check_at_rest();
        if warm.is_none() {
            warm = Some(stream.memory_when_empty());
        }
    }
    let left = stream.memory_when_empty() - warm.expect("at least one round");
    // The server's own tables and buffers vary by that much.
    assert!(
        left < 400_000,
        "{left} bytes more than after the first round"
    );
    for _ in 0..200 {
        stream.act();
    }
    stream.check_at_rest();
    stream.check_aof();
    stream.sent
}

#[test]
fn random_streams_leave_the_server_its_replica_and_its_aof_sound() {
    let steps = scale(4500, 150_000);
    let sent = run(
        Taste {
            boundless: false,
            effects: false,
            scripts: false,
        },
        steps,
    );
    figure(&format!("commands sent: {sent} (streams)"));
}

#[test]
fn random_streams_with_effects_from_clients_leave_them_sound() {
    let steps = scale(4500, 150_000);
    let sent = run(
        Taste {
            boundless: true,
            effects: true,
            scripts: false,
        },
        steps,
    );
    figure(&format!("commands sent: {sent} (streams with effects)"));
}

#[test]
fn random_streams_with_the_scripts_leave_them_sound() {
    let steps = scale(4500, 100_000);
    // Sessions that are adopted from the legacy keys are not held to the limit.
    let sent = run(
        Taste {
            boundless: true,
            effects: false,
            scripts: true,
        },
        steps,
    );
    figure(&format!("commands sent: {sent} (streams with the scripts)"));
}

#[test]
fn a_server_that_has_done_all_of_it_shuts_down_in_order() {
    let seed = workload::seed();
    let taste = Taste {
        boundless: true,
        effects: true,
        scripts: true,
    };
    let mut stream = Stream::on(Server::builder(), Rng::with_seed(seed), taste);
    for _ in 0..scale(500, 20_000) {
        stream.act();
    }
    stream.check_at_rest();
    // Some more, so that clients are blocked and leases run at the end.
    for _ in 0..100 {
        stream.act();
    }
    stream.primary.shutdown();
    figure(&format!(
        "commands sent: {} (before a shutdown)",
        stream.sent
    ));
}
