//! One step of a history, sayable to both sides.

use std::fmt;

use crate::support::Command;

/// What a step does. The last four set the scene for the listed differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Acquire,
    Heartbeat,
    Release,
    /// DEL of all that holds the pool.
    Drop,
    /// Memory is full from here on.
    FillMemory,
    /// The server is a replica from here on.
    BecomeReplica,
    /// The key itself gets a string.
    Overwrite,
}

/// An action on a key with the arguments that follow it.
#[derive(Clone)]
pub struct Step {
    pub action: Action,
    pub key: Vec<u8>,
    pub arguments: Vec<Vec<u8>>,
}

impl Step {
    /// A step with any arguments, right or wrong.
    pub fn new(action: Action, key: &[u8], arguments: &[&[u8]]) -> Self {
        let arguments = arguments.iter().map(|argument| argument.to_vec()).collect();
        Self {
            action,
            key: key.to_vec(),
            arguments,
        }
    }

    /// The session that the step is about.
    pub fn session(&self) -> Option<&[u8]> {
        self.arguments.first().map(Vec::as_slice)
    }

    /// The command for a server with the module.
    pub fn for_module(&self) -> Command {
        let name: &[u8] = match self.action {
            Action::Acquire => b"SEAT.ACQUIRE",
            Action::Heartbeat => b"SEAT.HEARTBEAT",
            Action::Release => b"SEAT.RELEASE",
            Action::Drop => b"DEL",
            Action::FillMemory | Action::BecomeReplica | Action::Overwrite => return self.scene(),
        };
        let mut command = vec![name.to_vec(), self.key.clone()];
        command.extend(self.arguments.iter().cloned());
        command
    }

    /// The command for a plain server; `sha` is that of the action's script.
    pub fn for_scripts(&self, sha: impl Fn(Action) -> String) -> Command {
        match self.action {
            Action::Acquire | Action::Heartbeat | Action::Release => {
                let sha = sha(self.action).into_bytes();
                let mut command = vec![b"EVALSHA".to_vec(), sha, b"1".to_vec(), self.key.clone()];
                command.extend(self.arguments.iter().cloned());
                command
            }
            Action::Drop => vec![
                b"DEL".to_vec(),
                members_key(&self.key),
                metadata_key(&self.key),
            ],
            Action::FillMemory | Action::BecomeReplica | Action::Overwrite => self.scene(),
        }
    }

    /// The same command for either side.
    fn scene(&self) -> Command {
        let words: &[&[u8]] = match self.action {
            Action::FillMemory => &[b"CONFIG", b"SET", b"maxmemory", b"1"],
            // Nobody listens there: a replica that keeps its data and waits for a primary.
            Action::BecomeReplica => &[b"REPLICAOF", b"127.0.0.1", b"1"],
            _ => &[b"SET", &self.key, b"text"],
        };
        words.iter().map(|word| word.to_vec()).collect()
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.for_module().iter().map(|word| quoted(word)).collect();
        f.write_str(&words.join(" "))
    }
}

/// As redis-cli takes it.
fn quoted(word: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:".contains(byte);
    if !word.is_empty() && word.iter().all(plain) {
        return String::from_utf8_lossy(word).into_owned();
    }
    let mut quoted = String::from("\"");
    for &byte in word {
        match byte {
            b'"' => quoted.push_str("\\\""),
            b'\\' => quoted.push_str("\\\\"),
            b' '..=b'~' => quoted.push(byte.into()),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted + "\""
}

/// The scripts' set of sessions.
pub fn members_key(key: &[u8]) -> Vec<u8> {
    [b"license:", key, b":active_sessions"].concat()
}

/// The scripts' hash of metadata.
pub fn metadata_key(key: &[u8]) -> Vec<u8> {
    [b"license:", key, b":session_metadata"].concat()
}
