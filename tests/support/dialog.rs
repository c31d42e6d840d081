//! A conversation with a server in a notation that a person reads, and in which each kind of reply
//! is distinct.
//!
//! `1` is an integer, `"x"` a bulk string (bytes outside printable ASCII escaped), `QUEUED` one of
//! capital letters and underscores alone, `+OK` a status, `!ERR ...` an error, `[..]` an array,
//! `{k: v}` a RESP3 map, `nil` RESP2's null and `null` RESP3's. So a reply is written as the
//! documentation names it: `[1, ACQUIRED, 1, 2]`.

use super::stream::escaped;
use super::{Builder, Server, Wire, eventually};

/// One connection.
pub struct Dialog(Wire);

impl Builder {
    /// Starts the server, and a conversation with it.
    #[track_caller]
    pub fn scene(self) -> (Server, Dialog) {
        let server = self.start();
        let dialog = Dialog::with(&server);
        (server, dialog)
    }

    /// The same, and session `a` holds the only seat of `pool`.
    #[track_caller]
    pub fn full_pool(self) -> (Server, Dialog) {
        let (server, mut dialog) = self.scene();
        dialog.acquire("pool", "a", 1, "{}");
        (server, dialog)
    }
}

impl Server {
    /// As [`Builder::scene`], with all at its defaults.
    #[track_caller]
    pub fn scene() -> (Server, Dialog) {
        Self::builder().scene()
    }

    /// As [`Builder::full_pool`], with all at its defaults.
    #[track_caller]
    pub fn full_pool() -> (Server, Dialog) {
        Self::builder().full_pool()
    }

    /// A conversation that the server has begun, too: what is sent next is carried out before what
    /// is sent later, by whomever.
    #[track_caller]
    pub fn accepted(&self) -> Dialog {
        let mut dialog = Dialog::with(self);
        dialog.expect("PING", "+PONG");
        dialog
    }

    /// The command, which loads all data anew, must leave the data the same.
    #[track_caller]
    pub fn reloads_the_same(&self, command: &str) {
        let digest = self.digest();
        Dialog::with(self).expect(command, "+OK");
        assert_eq!(self.digest(), digest, "{command}");
    }
}

impl Dialog {
    #[track_caller]
    pub fn with(server: &Server) -> Self {
        Self(server.wire())
    }

    #[track_caller]
    pub fn in_resp3(server: &Server) -> Self {
        Self(server.wire().resp3())
    }

    /// As the user `worker`, made anew with these rights.
    #[track_caller]
    pub fn as_worker(server: &Server, rights: &str) -> Self {
        let make = format!("ACL SETUSER worker reset on nopass {rights}");
        Self::with(server).expect(&make, "+OK");
        let mut dialog = Self::with(server);
        dialog.expect("AUTH worker x", "+OK");
        dialog
    }

    /// The command must be refused for want of a right.
    #[track_caller]
    pub fn forbidden(&mut self, command: &str) {
        let reply = self.ask(command);
        assert!(reply.starts_with("!NOPERM "), "{command}: {reply}");
    }

    /// Sends a command, whose arguments are as for [`arguments`], and returns the reply.
    #[track_caller]
    pub fn ask(&mut self, command: &str) -> String {
        self.ask_args(&arguments(command))
    }

    /// The same with the arguments as they are.
    #[track_caller]
    pub fn ask_args(&mut self, arguments: &[impl AsRef<[u8]>]) -> String {
        readable(&self.0.call(arguments))
    }

    /// The reply to a script that is called with these keys.
    #[track_caller]
    pub fn eval(&mut self, script: &str, keys: &[&str]) -> String {
        let count = keys.len().to_string();
        self.ask_args(&[&["EVAL", script, &count], keys].concat())
    }

    /// The reply to RESTORE of what DUMP gave, without a time to live.
    #[track_caller]
    pub fn restore(&mut self, key: &str, payload: &[u8], options: &[&str]) -> String {
        let mut command = vec![b"RESTORE", key.as_bytes(), b"0", payload];
        command.extend(options.iter().map(|option| option.as_bytes()));
        self.ask_args(&command)
    }

    /// The replies to commands that run in one MULTI, so without the server's timers in between.
    #[track_caller]
    pub fn at_once(&mut self, commands: &[&str]) -> Vec<String> {
        self.expect("MULTI", "+OK");
        for command in commands {
            self.expect(command, "+QUEUED");
        }
        let reply = self.raw(&["EXEC"]);
        let mut rest = &reply[..];
        let elements = head(&mut rest).escape_ascii().to_string();
        assert_eq!(elements, format!("*{}", commands.len()), "EXEC");
        commands.iter().map(|_| render(&mut rest)).collect()
    }

    /// Commands that run in one MULTI must each answer its reply.
    #[track_caller]
    pub fn expect_at_once(&mut self, steps: &[(&str, &str)]) {
        let commands: Vec<&str> = steps.iter().map(|(command, _)| *command).collect();
        for ((command, expected), reply) in steps.iter().zip(self.at_once(&commands)) {
            assert_eq!(reply, *expected, "{command}");
        }
    }

    /// The replies to commands that are sent at once.
    #[track_caller]
    pub fn pipeline(&mut self, commands: &[impl AsRef<str>]) -> Vec<String> {
        self.send_all(commands);
        commands.iter().map(|_| self.read()).collect()
    }

    /// Sends many commands without waiting for each reply; none may be an error.
    #[track_caller]
    pub fn ask_all(&mut self, commands: impl IntoIterator<Item = String>) {
        let commands: Vec<String> = commands.into_iter().collect();
        // The replies of one portion fit into the socket's buffers.
        for portion in commands.chunks(1000) {
            for (command, reply) in portion.iter().zip(self.pipeline(portion)) {
                assert!(!reply.starts_with('!'), "{command}: {reply}");
            }
        }
    }

    /// The raw bytes of a reply, for payloads.
    #[track_caller]
    pub fn raw(&mut self, arguments: &[impl AsRef<[u8]>]) -> Vec<u8> {
        self.0.call(arguments)
    }

    /// The payload of a bulk reply.
    #[track_caller]
    pub fn bytes(&mut self, arguments: &[impl AsRef<[u8]>]) -> Vec<u8> {
        match self.0.value(arguments) {
            redis::Value::BulkString(bytes) => bytes,
            other => panic!("no bulk string: {other:?}"),
        }
    }

    /// An integer reply.
    #[track_caller]
    pub fn number(&mut self, command: &str) -> i64 {
        let reply = self.ask(command);
        let number = reply.parse();
        number.unwrap_or_else(|_| panic!("{command}: no integer: {reply}"))
    }

    /// A command that must answer `reply`.
    #[track_caller]
    pub fn expect(&mut self, command: &str, reply: &str) {
        assert_eq!(self.ask(command), reply, "{command}");
    }

    /// A command whose answer must begin so, as an error's does whatever the rest of its words.
    #[track_caller]
    pub fn begins(&mut self, command: &str, start: &str) {
        let reply = self.ask(command);
        assert!(reply.starts_with(start), "{command}: {reply}");
    }

    /// A command whose answer must have this in it.
    #[track_caller]
    pub fn contains(&mut self, command: &str, part: &str) {
        let reply = self.ask(command);
        assert!(reply.contains(part), "{command}: {reply}");
    }

    /// A command that must not answer an error.
    #[track_caller]
    pub fn succeeds(&mut self, command: &str) {
        let reply = self.ask(command);
        assert!(!reply.starts_with('!'), "{command}: {reply}");
    }

    /// A command that must grant a seat.
    #[track_caller]
    pub fn acquire(&mut self, key: &str, session: &str, seats: i64, metadata: &str) {
        let seats = seats.to_string();
        let reply = self.ask_args(&["SEAT.ACQUIRE", key, session, &seats, metadata]);
        assert!(reply.starts_with("[1, ACQUIRED, "), "{session}: {reply}");
    }

    /// The same for several sessions, which state one limit and no metadata.
    #[track_caller]
    pub fn acquire_all(&mut self, key: &str, sessions: &[&str], seats: i64) {
        for session in sessions {
            self.acquire(key, session, seats, "{}");
        }
    }

    /// Sends without waiting.
    #[track_caller]
    pub fn send(&mut self, command: &str) {
        self.send_args(&arguments(command));
    }

    /// Sends all of them at once, without waiting, so that the server carries them out in one turn
    /// of its event loop if they fit into what it reads at a time, 16 KiB.
    #[track_caller]
    pub fn send_all(&mut self, commands: &[impl AsRef<str>]) {
        let commands: Vec<Vec<&str>> = commands
            .iter()
            .map(|command| arguments(command.as_ref()))
            .collect();
        self.0.send_all(&commands);
    }

    /// The same with the arguments as they are.
    #[track_caller]
    pub fn send_args(&mut self, arguments: &[impl AsRef<[u8]>]) {
        self.0.send(arguments);
    }

    /// The next reply or push message.
    #[track_caller]
    pub fn read(&mut self) -> String {
        readable(&self.0.read())
    }

    /// Whether a reply has come that has not been read.
    #[track_caller]
    pub fn has_reply(&mut self) -> bool {
        self.0.has_reply()
    }

    /// The server's own time, in milliseconds.
    #[track_caller]
    pub fn now_ms(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = self.query("TIME");
        seconds * 1000 + micros / 1000
    }

    /// Waits until the server's clock has come to `at_ms`.
    #[track_caller]
    pub fn wait_until(&mut self, at_ms: i64) {
        eventually(&format!("the server's clock shows {at_ms}"), || {
            self.now_ms() >= at_ms
        });
    }

    /// The next reply must be this.
    #[track_caller]
    pub fn hears(&mut self, reply: &str) {
        assert_eq!(self.read(), reply);
    }

    /// The next reply must be a grant.
    #[track_caller]
    pub fn is_granted(&mut self) {
        let reply = self.read();
        assert!(reply.starts_with("[1, ACQUIRED, "), "{reply}");
    }

    /// The reply as what it is read as.
    #[track_caller]
    pub fn query<T: redis::FromRedisValue>(&mut self, command: &str) -> T {
        let value = self.value(&arguments(command));
        redis::from_redis_value(value).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// The reply as a value.
    #[track_caller]
    pub fn value(&mut self, arguments: &[impl AsRef<[u8]>]) -> redis::Value {
        self.0.value(arguments)
    }

    /// The ids of the sessions in a pool, sorted.
    #[track_caller]
    pub fn sessions(&mut self, key: &str) -> Vec<String> {
        let mut ids: Vec<String> = self.query(&format!("SEAT.SESSIONS {key}"));
        ids.sort();
        ids
    }

    /// Whether the client of this number is blocked at present.
    #[track_caller]
    pub fn is_blocked(&mut self, id: i64) -> bool {
        let client = self.ask(&format!("CLIENT LIST ID {id}"));
        let mut fields = client.split(' ');
        let flags = fields.find_map(|field| field.strip_prefix("flags="));
        flags.is_some_and(|flags| flags.contains('b'))
    }

    /// The sessions that wait, in order, each with the milliseconds since it joined.
    #[track_caller]
    pub fn queue_with_times(&mut self, key: &str) -> Vec<(String, i64)> {
        self.query(&format!("SEAT.QUEUE {key}"))
    }

    /// The sessions that wait, in order.
    #[track_caller]
    pub fn queue(&mut self, key: &str) -> Vec<String> {
        let waiting = self.queue_with_times(key).into_iter();
        waiting.map(|(session, _)| session).collect()
    }

    /// Returns once the queue is this.
    #[track_caller]
    pub fn queue_becomes(&mut self, key: &str, sessions: &[&str]) {
        let what = format!("the queue at {key} is {sessions:?}");
        eventually(&what, || self.queue(key) == sessions);
    }

    /// What EXEC answers to these.
    #[track_caller]
    pub fn transaction(&mut self, commands: &[&str]) -> String {
        self.expect("MULTI", "+OK");
        for command in commands {
            self.expect(command, "+QUEUED");
        }
        self.ask("EXEC")
    }

    /// One seat can be taken, by one session only, and given back, and then there is no pool:
    /// nothing was leaked there.
    #[track_caller]
    pub fn one_seat_is_free(&mut self, key: &str) {
        assert_eq!(self.queue(key), [""; 0]);
        self.expect(&format!("SEAT.ACQUIRE {key} last 1"), "[1, ACQUIRED, 1, 1]");
        self.expect(&format!("SEAT.RELEASE {key} last"), "[1, RELEASED, 0]");
        self.expect(&format!("EXISTS {key}"), "0");
    }

    /// A field of SEAT.INFO, which must exist.
    #[track_caller]
    pub fn pool_info(&mut self, key: &str, field: &str) -> i64 {
        let fields: Vec<(String, i64)> = self.query(&format!("SEAT.INFO {key}"));
        let found = fields.iter().find(|(name, _)| name == field);
        found
            .unwrap_or_else(|| panic!("no {field} in {fields:?}"))
            .1
    }

    /// DEBUG DIGEST-VALUE of one key.
    #[track_caller]
    pub fn digest_of(&mut self, key: &str) -> String {
        let reply = self.ask_args(&["DEBUG", "DIGEST-VALUE", key]);
        assert!(reply.len() > 40, "{reply}");
        reply
    }
}

/// Everything by which a change could be noticed: all data, what was replicated, the save points'
/// counter and the module's totals.
#[derive(Debug, PartialEq, Eq)]
pub struct Traces {
    digest: String,
    replicated: usize,
    unsaved_changes: String,
    totals: Vec<(String, String)>,
}

impl Traces {
    /// Of a server that is built with `recording()`.
    #[track_caller]
    pub fn of(server: &Server) -> Self {
        Self {
            digest: server.digest(),
            replicated: server.commands_in_aof().len(),
            unsaved_changes: server.info("persistence")["rdb_changes_since_last_save"].clone(),
            totals: totals(server),
        }
    }

    /// The same without the totals, for answers that are counted though they change nothing.
    #[track_caller]
    pub fn without_totals(server: &Server) -> Self {
        Self {
            totals: Vec::new(),
            ..Self::of(server)
        }
    }
}

/// The fields of INFO seat, sorted.
#[track_caller]
pub fn totals(server: &Server) -> Vec<(String, String)> {
    let mut totals: Vec<_> = server.info("seat").into_iter().collect();
    assert!(!totals.is_empty(), "INFO seat has no fields");
    totals.sort();
    totals
}

/// For how long a server has kept a processor busy. Other processes do not count, as they do in
/// what a command took.
pub fn busy_seconds(server: &Server) -> f64 {
    let cpu = server.info("cpu");
    let seconds = |field: &str| cpu[field].parse::<f64>().expect("seconds");
    seconds("used_cpu_sys") + seconds("used_cpu_user")
}

/// One field of INFO seat.
#[track_caller]
pub fn total(server: &Server, field: &str) -> u64 {
    let info = server.info("seat");
    let value = info.get(field);
    let value = value.unwrap_or_else(|| panic!("no {field} in INFO seat: {info:?}"));
    value.parse().expect("a total is a number")
}

/// Waits until a field of INFO seat has this value.
#[track_caller]
pub fn total_becomes(server: &Server, field: &str, value: u64) {
    eventually(&format!("{field} is {value}"), || {
        total(server, field) == value
    });
}

/// Waits until the server has reclaimed exactly `seats` seats since it was started.
#[track_caller]
pub fn wait_for_reclaim(server: &Server, seats: u64) {
    let mut reclaimed = 0;
    eventually(&format!("{seats} seats are reclaimed"), || {
        reclaimed = total(server, "seat_expired");
        reclaimed >= seats
    });
    assert_eq!(reclaimed, seats, "seats reclaimed");
}

/// The number that follows this part of a reply, which must have it.
#[track_caller]
pub fn number_after(reply: &str, part: &str) -> i64 {
    let rest = reply.split_once(part).map(|(_, rest)| rest);
    let digits = rest.and_then(|rest| rest.split(|other: char| !other.is_ascii_digit()).next());
    let number = digits.and_then(|digits| digits.parse().ok());
    number.unwrap_or_else(|| panic!("no number after {part} in {reply}"))
}

/// A reply in the notation that the head of this file describes.
#[track_caller]
fn readable(raw: &[u8]) -> String {
    let mut rest = raw;
    let text = render(&mut rest);
    assert!(rest.is_empty(), "{}", raw.escape_ascii());
    text
}

/// The first line of a reply.
fn head<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = rest.iter().position(|&byte| byte == b'\r').expect("a line");
    let line = &rest[..end];
    *rest = &rest[end + 2..];
    line
}

fn render(rest: &mut &[u8]) -> String {
    let line = head(rest);
    let (kind, head) = (line[0], escaped(&line[1..]));
    let length = || head.parse::<usize>().ok();
    let mut elements = |count: usize| -> Vec<String> { (0..count).map(|_| render(rest)).collect() };
    match kind {
        b':' => head,
        b'+' => format!("+{head}"),
        b'-' => format!("!{head}"),
        b'_' => "null".to_owned(),
        b'$' => match length() {
            None => "nil".to_owned(),
            Some(length) => {
                let (payload, after) = rest.split_at(length);
                *rest = &after[2..];
                let is_word = payload
                    .iter()
                    .all(|&byte| byte.is_ascii_uppercase() || byte == b'_');
                match escaped(payload) {
                    word if is_word && !word.is_empty() => word,
                    text => format!("\"{text}\""),
                }
            }
        },
        b'*' => match length() {
            None => "nil array".to_owned(),
            Some(length) => format!("[{}]", elements(length).join(", ")),
        },
        b'%' => {
            let pairs = elements(2 * length().expect("a count"));
            let pairs: Vec<_> = pairs.chunks(2).map(|pair| pair.join(": ")).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        b'>' => format!("push [{}]", elements(length().expect("a count")).join(", ")),
        b'~' => format!("set [{}]", elements(length().expect("a count")).join(", ")),
        _ => format!("{}{head}", kind.escape_ascii()),
    }
}

/// The arguments of a command: separated by single spaces, but for those within single quotes.
pub fn arguments(command: &str) -> Vec<&str> {
    let mut arguments = Vec::new();
    let mut rest = Some(command);
    while let Some(text) = rest {
        let (word, after) = match text.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').expect("a closing quote"),
            None => text.split_at(text.find(' ').unwrap_or(text.len())),
        };
        arguments.push(word);
        rest = after.strip_prefix(' ');
    }
    arguments
}
