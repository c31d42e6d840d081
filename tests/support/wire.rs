//! A connection that shows each reply as it came: raw RESP bytes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::wait::PATIENCE;

/// One connection over the server's unix socket, RESP2 until [`Wire::resp3`].
pub struct Wire {
    stream: BufReader<UnixStream>,
}

impl Wire {
    pub(super) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Switches the connection to RESP3.
    #[track_caller]
    pub fn resp3(mut self) -> Self {
        let reply = self.call(&["HELLO", "3"]);
        assert!(
            reply.starts_with(b"%"),
            "HELLO 3 answered {}",
            reply.escape_ascii()
        );
        self
    }

    /// Sends one command and reads the raw bytes of its reply.
    #[track_caller]
    pub fn call(&mut self, arguments: &[impl AsRef<[u8]>]) -> Vec<u8> {
        self.send(arguments);
        self.read()
    }

    /// The reply as a value, for those who do not care about its bytes.
    #[track_caller]
    pub fn value(&mut self, arguments: &[impl AsRef<[u8]>]) -> redis::Value {
        parse(&self.call(arguments))
    }

    /// Sends all commands at once and reads their replies.
    #[track_caller]
    pub fn values(&mut self, commands: &[&[&[u8]]]) -> Vec<redis::Value> {
        self.send_all(commands);
        commands.iter().map(|_| parse(&self.read())).collect()
    }

    /// Sends all commands at once and does not wait.
    #[track_caller]
    pub fn send_all<A: AsRef<[u8]>>(&mut self, commands: &[impl AsRef<[A]>]) {
        let sent: Vec<u8> = commands
            .iter()
            .flat_map(|command| encode(command.as_ref()))
            .collect();
        self.stream
            .get_mut()
            .write_all(&sent)
            .expect("the server takes the commands");
    }

    /// Sends one command and does not wait: for pipelines and for commands that block.
    #[track_caller]
    pub fn send(&mut self, arguments: &[impl AsRef<[u8]>]) {
        self.try_send(arguments)
            .expect("the server takes the command");
    }

    /// Reads the raw bytes of exactly one reply (a push message counts as one).
    #[track_caller]
    pub fn read(&mut self) -> Vec<u8> {
        self.try_read().expect("the server replies in time")
    }

    /// Whether a reply, or the beginning of one, has come.
    #[track_caller]
    pub fn has_reply(&mut self) -> bool {
        let stays = "the connection can be told to wait or not";
        self.stream.get_ref().set_nonblocking(true).expect(stays);
        let has_come = self.stream.fill_buf().map(|bytes| !bytes.is_empty());
        self.stream.get_ref().set_nonblocking(false).expect(stays);
        has_come.unwrap_or(false)
    }

    pub(super) fn try_send(&mut self, arguments: &[impl AsRef<[u8]>]) -> io::Result<()> {
        self.stream.get_mut().write_all(&encode(arguments))
    }

    pub(super) fn try_read(&mut self) -> io::Result<Vec<u8>> {
        let mut raw = Vec::new();
        read_reply(&mut self.stream, &mut raw)?;
        Ok(raw)
    }
}

#[track_caller]
fn parse(raw: &[u8]) -> redis::Value {
    redis::parse_redis_value(raw).unwrap_or_else(|error| panic!("{error}: {}", raw.escape_ascii()))
}

fn encode(arguments: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Appends one reply to `raw`, nested ones included.
fn read_reply(from: &mut impl BufRead, raw: &mut Vec<u8>) -> io::Result<()> {
    let start = raw.len();
    from.read_until(b'\n', raw)?;
    let line = &raw[start..];
    if !line.ends_with(b"\r\n") {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let kind = line[0];
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, line.escape_ascii().to_string());
    let length = || -> io::Result<i64> {
        let digits = std::str::from_utf8(&line[1..line.len() - 2]).map_err(|_| malformed())?;
        digits.parse().map_err(|_| malformed())
    };
    let elements = match kind {
        b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => 0,
        b'$' | b'=' | b'!' => {
            if let Ok(payload) = u64::try_from(length()?) {
                let body = raw.len();
                from.take(payload + 2).read_to_end(raw)?;
                if (raw.len() - body) as u64 != payload + 2 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            0
        }
        b'*' | b'~' | b'>' => length()?,
        b'%' => 2 * length()?,
        // An attribute precedes the reply that it belongs to.
        b'|' => 2 * length()? + 1,
        _ => return Err(malformed()),
    };
    for _ in 0..elements {
        read_reply(from, raw)?;
    }
    Ok(())
}
