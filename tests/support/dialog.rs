//! A conversation with a server in a notation that a person reads, and that still tells every kind of reply apart.
//!
//! `1` is an integer, `"x"` a bulk string (bytes outside printable ASCII escaped), `+OK` a status, `!ERR ...` an error, `[..]` an array,
//! `{k: v}` a RESP3 map, `nil` RESP2's null and `null` RESP3's.

use super::{Command, Server, Wire};

/// One connection.
pub struct Dialog(Wire);

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

    /// Sends a command whose arguments are separated by single spaces, and returns the reply.
    #[track_caller]
    pub fn ask(&mut self, command: &str) -> String {
        self.ask_args(&command.split(' ').collect::<Vec<_>>())
    }

    /// The same with the arguments as they are.
    #[track_caller]
    pub fn ask_args(&mut self, arguments: &[impl AsRef<[u8]>]) -> String {
        readable(&self.0.call(arguments))
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

    /// A command that must grant a seat.
    #[track_caller]
    pub fn acquire(&mut self, key: &str, session: &str, seats: i64, metadata: &str) {
        let seats = seats.to_string();
        let reply = self.ask_args(&["SEAT.ACQUIRE", key, session, &seats, metadata]);
        assert!(
            reply.starts_with(r#"[1, "ACQUIRED", "#),
            "{session}: {reply}"
        );
    }

    /// Sends without waiting.
    #[track_caller]
    pub fn send(&mut self, command: &str) {
        self.0.send(&command.split(' ').collect::<Vec<_>>());
    }

    /// The next reply or push message.
    #[track_caller]
    pub fn read(&mut self) -> String {
        readable(&self.0.read())
    }

    /// The ids of the sessions in a pool, sorted.
    #[track_caller]
    pub fn sessions(&mut self, key: &str) -> Vec<String> {
        let value = self.0.value(&["SEAT.SESSIONS", key]);
        let mut ids: Vec<String> = redis::from_redis_value(value).expect("an array of ids");
        ids.sort();
        ids
    }

    /// A field of SEAT.INFO, which must exist.
    #[track_caller]
    pub fn pool_info(&mut self, key: &str, field: &str) -> i64 {
        let value = self.0.value(&["SEAT.INFO", key]);
        let fields: Vec<(String, i64)> =
            redis::from_redis_value(value).expect("names and integers");
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

/// A replicated command as one line.
pub fn line(command: &Command) -> String {
    let words: Vec<_> = command.iter().map(|argument| escaped(argument)).collect();
    words.join(" ")
}

/// What a server replicated while `actions` ran, a line each, timestamps and all.
#[track_caller]
pub fn replicated(server: &Server, actions: impl FnOnce()) -> Vec<String> {
    server.stream_of(actions).iter().map(line).collect()
}

/// Everything by which a change could be noticed: all data, what was replicated, the save points' counter and the module's totals.
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

/// One field of INFO seat.
#[track_caller]
pub fn total(server: &Server, field: &str) -> u64 {
    let info = server.info("seat");
    let value = info.get(field);
    let value = value.unwrap_or_else(|| panic!("no {field} in INFO seat: {info:?}"));
    value.parse().expect("a total is a number")
}

/// A reply in the notation that the head of this file describes.
#[track_caller]
fn readable(raw: &[u8]) -> String {
    let mut rest = raw;
    let text = render(&mut rest);
    assert!(rest.is_empty(), "{}", raw.escape_ascii());
    text
}

fn render(rest: &mut &[u8]) -> String {
    let end = rest.iter().position(|&byte| byte == b'\r').expect("a line");
    let (kind, head) = (rest[0], escaped(&rest[1..end]));
    *rest = &rest[end + 2..];
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
                format!("\"{}\"", escaped(payload))
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

/// Quotes are left as they are, for JSON would be hard to read otherwise.
fn escaped(bytes: &[u8]) -> String {
    let text = bytes.escape_ascii().to_string();
    text.replace("\\\"", "\"").replace("\\'", "'")
}
