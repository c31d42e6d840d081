//! A client that costs as little as a client can: the calls are encoded beforehand, and the replies
//! are only cut apart while the clock runs and looked at afterwards.

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::support::Server;

const PATIENCE: Duration = Duration::from_secs(60);

/// Calls, encoded.
#[derive(Default)]
pub struct Calls {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The replies that each call gets: more than one for a transaction.
    replies_each: usize,
    /// What each last reply contains if the call did what is measured.
    expected: &'static str,
}

impl Calls {
    pub fn new(expected: &'static str, replies_each: usize) -> Calls {
        Calls {
            expected,
            replies_each,
            ..Calls::default()
        }
    }

    /// Adds a command to the call that is being written.
    pub fn command(&mut self, arguments: &[impl AsRef<[u8]>]) {
        write!(self.bytes, "*{}\r\n", arguments.len()).expect("memory");
        for argument in arguments {
            let argument = argument.as_ref();
            write!(self.bytes, "${}\r\n", argument.len()).expect("memory");
            self.bytes.extend_from_slice(argument);
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// Ends the call.
    pub fn end_call(&mut self) {
        self.ends.push(self.bytes.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of the calls from `from` on, up to `count` of them.
    fn slice(&self, from: usize, count: usize) -> (&[u8], usize) {
        let to = (from + count).min(self.len());
        let start = from.checked_sub(1).map_or(0, |before| self.ends[before]);
        (&self.bytes[start..self.ends[to - 1]], to - from)
    }
}

pub struct Client {
    stream: UnixStream,
    buffer: Vec<u8>,
    filled: usize,
}

/// Many connections, which keep the server busy from one pipeline to the next.
pub struct Crowd {
    clients: Vec<Client>,
}

impl Crowd {
    pub fn of(server: &Server, connections: usize) -> Crowd {
        let clients = (0..connections).map(|_| Client::of(server)).collect();
        Crowd { clients }
    }

    /// Sends all calls, a pipeline of `depth` on each connection and the next when that is
    /// answered, and returns the time for all.
    pub fn send(&mut self, calls: &Calls, depth: usize) -> Duration {
        let connections = self.clients.len();
        // A client's replies stay in its buffer to be looked at afterwards.
        let mut ends = vec![0; connections];
        let mut replies: Vec<(usize, Range<usize>)> = Vec::with_capacity(calls.len());
        for client in &mut self.clients {
            client.filled = 0;
        }
        let start = Instant::now();
        let starts: Vec<usize> = (0..calls.len()).step_by(depth).collect();
        for turn in starts.chunks(connections) {
            let mut counts = Vec::with_capacity(connections);
            for (client, &from) in self.clients.iter_mut().zip(turn) {
                let (bytes, count) = calls.slice(from, depth);
                client.stream.write_all(bytes).expect("the server takes it");
                counts.push(count);
            }
            for (number, count) in counts.into_iter().enumerate() {
                for _ in 0..count {
                    let mut reply = ends[number]..ends[number];
                    for _ in 0..calls.replies_each {
                        reply = reply.end..self.clients[number].read_reply(reply.end);
                    }
                    ends[number] = reply.end;
                    replies.push((number, reply));
                }
            }
        }
        let elapsed = start.elapsed();
        for (number, reply) in replies {
            self.clients[number].check(calls, reply);
        }
        elapsed
    }
}

/// What the client saw of some calls.
pub struct Seen {
    pub elapsed: Duration,
    /// From sending to the last reply, for each pipeline.
    pub round_trips: Vec<Duration>,
}

impl Client {
    pub fn of(server: &Server) -> Client {
        let stream = UnixStream::connect(server.socket()).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Client {
            stream,
            buffer: vec![0; 1 << 20],
            filled: 0,
        }
    }

    /// Sends all calls, `depth` of them in a pipeline, each pipeline after the replies to the one
    /// before.
    pub fn send(&mut self, calls: &Calls, depth: usize) -> Seen {
        self.filled = 0;
        let mut replies = Vec::with_capacity(calls.len());
        let mut round_trips = Vec::with_capacity(calls.len().div_ceil(depth));
        let mut end = 0;
        let start = Instant::now();
        let mut sent_at = start;
        for from in (0..calls.len()).step_by(depth) {
            let (bytes, count) = calls.slice(from, depth);
            self.stream.write_all(bytes).expect("the server takes it");
            for _ in 0..count {
                let mut reply = end..end;
                for _ in 0..calls.replies_each {
                    reply = reply.end..self.read_reply(reply.end);
                }
                end = reply.end;
                replies.push(reply);
            }
            let now = Instant::now();
            round_trips.push(now - sent_at);
            sent_at = now;
        }
        let elapsed = start.elapsed();
        for reply in replies {
            self.check(calls, reply);
        }
        Seen {
            elapsed,
            round_trips,
        }
    }

    /// A figure counts only if all calls did what was to be measured.
    fn check(&self, calls: &Calls, reply: Range<usize>) {
        let reply = String::from_utf8_lossy(&self.buffer[reply]);
        let expected = calls.expected;
        assert!(reply.contains(expected), "{reply:?} is not {expected:?}");
    }

    /// Waits until the reply that begins at `start` is there in full, and returns its end.
    fn read_reply(&mut self, start: usize) -> usize {
        loop {
            if let Some(length) = reply_length(&self.buffer[start..self.filled]) {
                return start + length;
            }
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.filled * 2, 0);
            }
            let read = self.stream.read(&mut self.buffer[self.filled..]);
            let read = read.expect("the server replies in time");
            assert!(read > 0, "the server closed the connection");
            self.filled += read;
        }
    }
}

/// The length of the reply at the beginning of `bytes`, if it is there in full.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.iter().position(|&byte| byte == b'\n')? + 1;
    let number = || -> i64 {
        let digits = std::str::from_utf8(&bytes[1..line - 2]).ok();
        digits
            .and_then(|digits| digits.parse().ok())
            .expect("a length")
    };
    match bytes[0] {
        b'$' => {
            let payload = usize::try_from(number()).map_or(0, |length| length + 2);
            (bytes.len() >= line + payload).then_some(line + payload)
        }
        b'*' => {
            let mut length = line;
            for _ in 0..number() {
                length += reply_length(&bytes[length..])?;
            }
            Some(length)
        }
        _ => Some(line),
    }
}
