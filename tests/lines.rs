//! Commands and replies as lines of words, for tests that are about what is said and not about its bytes.

use std::fmt::Write;

use redis::Value;

use crate::support::{Server, Wire, eventually};

/// A connection that is spoken to in lines.
pub trait Lines {
    /// The reply to a command whose arguments hold no white space: integers and strings as they are, `-` before an error, nested
    /// arrays in brackets.
    fn ask(&mut self, line: &str) -> String;

    /// The replies to commands that run in one MULTI, so without the server's timers in between.
    fn ask_at_once(&mut self, lines: &[&str]) -> Vec<String>;

    /// The reply to a command that answers with an integer.
    fn number(&mut self, line: &str) -> i64;

    /// `SEAT.INFO key`, as fields and values.
    fn pool_info(&mut self, key: &str, field: &str) -> i64;

    /// The server's own time, in milliseconds.
    fn now_ms(&mut self) -> i64;
}

impl Lines for Wire {
    #[track_caller]
    fn ask(&mut self, line: &str) -> String {
        said(&self.value(&arguments(line)))
    }

    #[track_caller]
    fn ask_at_once(&mut self, lines: &[&str]) -> Vec<String> {
        assert_eq!(self.ask("MULTI"), "OK");
        for line in lines {
            assert_eq!(self.ask(line), "QUEUED", "{line}");
        }
        match self.value(&["EXEC"]) {
            Value::Array(replies) => replies.iter().map(said).collect(),
            other => panic!("EXEC answered {other:?}"),
        }
    }

    #[track_caller]
    fn number(&mut self, line: &str) -> i64 {
        let reply = self.ask(line);
        reply
            .parse()
            .unwrap_or_else(|_| panic!("{line} answered {reply}"))
    }

    #[track_caller]
    fn pool_info(&mut self, key: &str, field: &str) -> i64 {
        let info = self.ask(&format!("SEAT.INFO {key}"));
        let mut words = info.split(' ');
        words.find(|word| *word == field);
        let value = words.next().and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("no {field} in: {info}"))
    }

    #[track_caller]
    fn now_ms(&mut self) -> i64 {
        let time = self.ask("TIME");
        let (seconds, micros) = time.split_once(' ').expect("two numbers");
        let number = |digits: &str| digits.parse::<i64>().expect("a number");
        number(seconds) * 1000 + number(micros) / 1000
    }
}

/// The words of a line, each an argument.
pub fn arguments(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn said(value: &Value) -> String {
    let list = |values: &[Value]| {
        let said = values.iter().map(|value| match value {
            Value::Array(_) => format!("[{}]", said(value)),
            _ => said(value),
        });
        said.collect::<Vec<_>>().join(" ")
    };
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Okay => "OK".to_owned(),
        Value::Array(values) => list(values),
        Value::Map(pairs) => {
            let mut text = String::new();
            for (key, value) in pairs {
                write!(text, "{} {} ", said(key), said(value)).expect("memory");
            }
            text.trim_end().to_owned()
        }
        Value::ServerError(error) => {
            format!("-{} {}", error.code(), error.details().unwrap_or_default())
        }
        other => panic!("no reply that these tests know: {other:?}"),
    }
}

/// Sends many commands without waiting for each reply; none may be an error.
#[track_caller]
pub fn ask_many(wire: &mut Wire, lines: impl IntoIterator<Item = String>) {
    let lines: Vec<String> = lines.into_iter().collect();
    // The replies of one portion fit into the socket's buffers.
    for lines in lines.chunks(1000) {
        let calls: Vec<Vec<&[u8]>> = lines
            .iter()
            .map(|line| arguments(line).into_iter().map(str::as_bytes).collect())
            .collect();
        let calls: Vec<&[&[u8]]> = calls.iter().map(Vec::as_slice).collect();
        for (line, reply) in lines.iter().zip(wire.values(&calls)) {
            let refused = matches!(reply, Value::ServerError(_));
            assert!(!refused, "{line}: {}", said(&reply));
        }
    }
}

/// Effects by which `many` sessions get seats of `pool` with a lease until `deadline_ms`.
pub fn grants_until(deadline_ms: i64, many: usize) -> impl Iterator<Item = String> {
    let seconds = deadline_ms / 1000;
    (0..many).map(move |n| {
        format!(
            "SEAT.EFFECT pool GRANT session-{n} 1000000 {seconds} {seconds} - 60000 {deadline_ms} {{}}"
        )
    })
}

/// A total of `INFO seat`.
#[track_caller]
pub fn total(server: &Server, name: &str) -> u64 {
    server.info("seat")[&format!("seat_{name}")]
        .parse()
        .expect("a number")
}

/// Waits until the server has reclaimed exactly `seats` seats since it was started.
#[track_caller]
pub fn wait_for_reclaim(server: &Server, seats: u64) {
    let mut reclaimed = 0;
    eventually(&format!("{seats} seats are reclaimed"), || {
        reclaimed = total(server, "expired");
        reclaimed >= seats
    });
    assert_eq!(reclaimed, seats, "seats reclaimed");
}

/// Waits until the server's own clock has come to `at_ms`.
#[track_caller]
pub fn wait_until(wire: &mut Wire, at_ms: i64) {
    eventually(&format!("the server's clock shows {at_ms}"), || {
        wire.now_ms() >= at_ms
    });
}

/// What the server replicated, without the MULTI and EXEC around what belongs together.
pub fn effects_of(server: &Server, actions: impl FnOnce()) -> Vec<String> {
    let stream = server.stream_of(actions);
    let lines = stream
        .iter()
        .map(|command| crate::support::words(command).join(" "));
    lines
        .filter(|line| line != "MULTI" && line != "EXEC")
        .collect()
}
