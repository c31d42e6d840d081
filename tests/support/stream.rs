//! What a server replicated, read from its append-only file: the same commands as a replica gets,
//! and exact on every version, for with `appendfsync always` a command is in the file before its
//! reply is sent.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Server, now_ms};

/// A command as its arguments.
pub type Command = Vec<Vec<u8>>;

/// Bytes outside printable ASCII escaped. Quotes are left as they are, for JSON would be hard to
/// read otherwise.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let text = bytes.escape_ascii().to_string();
    text.replace("\\\"", "\"").replace("\\'", "'")
}

/// The arguments as text, bytes outside printable ASCII escaped: for comparing and for reading. The
/// numbers of an effect, which are one argument, stand apart.
pub fn words(command: &Command) -> Vec<String> {
    let is_effect = command.first().is_some_and(|name| name == b"SEAT.EFFECT");
    let mut words = Vec::new();
    for (at, argument) in command.iter().enumerate() {
        if is_effect && at == 4 && argument.contains(&b' ') {
            words.extend(argument.split(|&byte| byte == b' ').map(escaped));
        } else {
            words.push(escaped(argument));
        }
    }
    words
}

/// A replicated command as one line.
pub fn line(command: &Command) -> String {
    words(command).join(" ")
}

/// What a server replicated while `actions` ran, a line each, timestamps and all.
#[track_caller]
pub fn replicated(server: &Server, actions: impl FnOnce()) -> Vec<String> {
    server.stream_of(actions).iter().map(line).collect()
}

/// The same without the MULTI and EXEC around what belongs together.
#[track_caller]
pub fn effects_of(server: &Server, actions: impl FnOnce()) -> Vec<String> {
    let mut lines = replicated(server, actions);
    lines.retain(|line| line != "MULTI" && line != "EXEC");
    lines
}

/// What a server replicated while `actions` ran: the effects on pools, the present time as `T`,
/// those of one unit together.
#[track_caller]
pub fn units(server: &Server, actions: impl FnOnce()) -> Vec<Vec<String>> {
    let mut units = Vec::new();
    let mut open: Option<Vec<String>> = None;
    for line in replicated(server, actions) {
        match (line.as_str(), &mut open) {
            ("MULTI", None) => open = Some(Vec::new()),
            ("EXEC", Some(_)) => units.extend(open.take()),
            ("MULTI", Some(_)) | ("EXEC", None) => panic!("{line} out of order"),
            (line, Some(unit)) => unit.push(effect(line)),
            (line, None) => units.push(vec![effect(line)]),
        }
    }
    assert!(open.is_none(), "a unit without an end: {open:?}");
    // Servers before 7.0 pass on empty transactions.
    units.retain(|unit| !unit.is_empty());
    units
}

#[track_caller]
fn effect(line: &str) -> String {
    let effect = line.strip_prefix("SEAT.EFFECT ");
    without_time(effect.unwrap_or_else(|| panic!("not an effect: {line}")))
}

/// A line with the present time, in seconds or milliseconds, as `T`.
pub fn without_time(line: &str) -> String {
    let now_ms = now_ms();
    let recent = |time: i64| (now_ms - time).abs() < 1_000_000;
    let words: Vec<_> = line
        .split(' ')
        .map(|word| match word.parse::<i64>() {
            Ok(time) if recent(time) || recent(time.saturating_mul(1000)) => "T",
            _ => word,
        })
        .collect();
    words.join(" ")
}

impl Server {
    /// All commands in the append-only file, `SELECT`, `MULTI` and `EXEC` included.
    #[track_caller]
    pub fn commands_in_aof(&self) -> Vec<Command> {
        let mut commands = Vec::new();
        for file in self.aof_files() {
            let bytes =
                fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(
                !bytes.starts_with(b"REDIS"),
                "{} holds an RDB: this server needs `aof-use-rdb-preamble no`",
                file.display()
            );
            parse(&bytes, &mut commands);
        }
        commands
    }

    /// The files of the append-only log in the order of replay: one up to 6.2, those of the
    /// manifest from 7.0 on.
    #[track_caller]
    pub fn aof_files(&self) -> Vec<PathBuf> {
        aof_files(self.dir())
    }

    /// The commands that the server replicated while `actions` ran, without the `SELECT` of a
    /// database.
    ///
    /// Effects that come from a timer may still be under way: make `actions` wait for what they
    /// did.
    #[track_caller]
    pub fn stream_of(&self, actions: impl FnOnce()) -> Vec<Command> {
        let before = self.commands_in_aof().len();
        actions();
        let mut commands = self.commands_in_aof().split_off(before);
        commands.retain(|command| !command[0].eq_ignore_ascii_case(b"select"));
        commands
    }
}

fn aof_files(dir: &Path) -> Vec<PathBuf> {
    let parts = dir.join("appendonlydir");
    let manifest = parts.join("appendonly.aof.manifest");
    if !manifest.exists() {
        return vec![dir.join("appendonly.aof")];
    }
    // Lines such as: file appendonly.aof.1.incr.aof seq 1 type i. History (type h) is what a
    // rewrite replaced.
    fs::read_to_string(manifest)
        .expect("a readable manifest")
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| fields[5] != "h")
        .map(|fields| parts.join(fields[1]))
        .collect()
}

fn parse(mut bytes: &[u8], commands: &mut Vec<Command>) {
    fn line<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
        let end = bytes
            .windows(2)
            .position(|pair| pair == b"\r\n")
            .expect("a complete line");
        let (line, rest) = bytes.split_at(end);
        *bytes = &rest[2..];
        line
    }
    fn number(line: &[u8], kind: u8) -> usize {
        assert_eq!(
            line[0],
            kind,
            "in the append-only file: {}",
            line.escape_ascii()
        );
        std::str::from_utf8(&line[1..])
            .expect("digits")
            .parse()
            .expect("a count")
    }
    while !bytes.is_empty() {
        let header = line(&mut bytes);
        if header[0] == b'#' {
            continue;
        }
        let arguments = number(header, b'*');
        commands.push(
            (0..arguments)
                .map(|_| {
                    let length = number(line(&mut bytes), b'$');
                    let (argument, rest) = bytes.split_at(length);
                    bytes = &rest[2..];
                    argument.to_vec()
                })
                .collect(),
        );
    }
}
