//! A plain server with the scripts and a server with the module, taken through the same history.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use redis::Value;

use super::differences::{self, Covers};
use super::json::{self, Object};
use super::step::{Action, Step, members_key, metadata_key};
use crate::migration::with_migration;
use crate::support::{Command, Server, Wire};

const ACQUIRE: &str = include_str!("../lua/acquire_seat.lua");
const HEARTBEAT: &str = include_str!("../lua/update_heartbeat.lua");
const RELEASE: &str = include_str!("../lua/release_seat.lua");

/// The sessions of one pool, with the JSON text of their metadata where there is one.
pub type State = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// How the module is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By its commands.
    Commands,
    /// By the scripts' own calls, unchanged.
    OwnCalls,
}

/// Both servers, a connection to each, and what their pools were after the last step.
pub struct Pair {
    scripts: Wire,
    module: Wire,
    way: Way,
    shas: [String; 3],
    states: BTreeMap<Vec<u8>, State>,
    last_reply: Vec<u8>,
    _servers: [Server; 2],
}

impl Pair {
    pub fn start(way: Way) -> Self {
        Self::connect(way, Server::wire)
    }

    pub fn start_resp3(way: Way) -> Self {
        Self::connect(way, |server| server.wire().resp3())
    }

    /// One for each way of asking the module, in each protocol.
    pub fn all() -> [Self; 4] {
        [
            Self::start(Way::Commands),
            Self::start_resp3(Way::Commands),
            Self::start(Way::OwnCalls),
            Self::start_resp3(Way::OwnCalls),
        ]
    }

    fn connect(way: Way, wire: impl Fn(&Server) -> Wire) -> Self {
        let module = match way {
            Way::Commands => Server::start(),
            Way::OwnCalls => with_migration().start(),
        };
        let servers = [Server::plain(), module];
        let mut scripts = wire(&servers[0]);
        let shas = [ACQUIRE, HEARTBEAT, RELEASE].map(|text| {
            let sha = bytes(scripts.value(&["SCRIPT", "LOAD", text]));
            String::from_utf8(sha).expect("a SHA1 in hexadecimal digits")
        });
        let module = wire(&servers[1]);
        Self {
            scripts,
            module,
            way,
            shas,
            states: BTreeMap::new(),
            last_reply: Vec::new(),
            _servers: servers,
        }
    }

    /// Both servers as if new.
    pub fn flush(&mut self) {
        for wire in [&mut self.scripts, &mut self.module] {
            assert_eq!(wire.call(&["CONFIG", "SET", "maxmemory", "0"]), b"+OK\r\n");
            assert_eq!(wire.call(&["REPLICAOF", "NO", "ONE"]), b"+OK\r\n");
            assert_eq!(wire.call(&["FLUSHALL"]), b"+OK\r\n");
        }
        self.states.clear();
    }

    /// What the pool at `key` was after the last checked step.
    pub fn state(&self, key: &[u8]) -> State {
        self.states.get(key).cloned().unwrap_or_default()
    }

    /// The module's reply to the last checked step, in words.
    pub fn last_answer(&self) -> String {
        super::said(&self.last_reply)
    }

    /// The raw replies of the scripts and of the module.
    pub fn ask(&mut self, step: &Step) -> (Vec<u8>, Vec<u8>) {
        let (scripts, module) = self.commands(step);
        (self.scripts.call(&scripts), self.module.call(&module))
    }

    /// The raw replies to a transaction of all `steps`.
    pub fn ask_in_multi(&mut self, steps: &[Step]) -> (Vec<u8>, Vec<u8>) {
        let queued: Vec<_> = steps.iter().map(|step| self.commands(step)).collect();
        let (scripts, module): (Vec<_>, Vec<_>) = queued.into_iter().unzip();
        let transaction = |wire: &mut Wire, commands: Vec<Command>| {
            assert_eq!(wire.call(&["MULTI"]), b"+OK\r\n");
            for command in commands {
                assert_eq!(wire.call(&command), b"+QUEUED\r\n");
            }
            wire.call(&["EXEC"])
        };
        (
            transaction(&mut self.scripts, scripts),
            transaction(&mut self.module, module),
        )
    }

    fn commands(&self, step: &Step) -> (Command, Command) {
        let sha = |action| match action {
            Action::Acquire => self.shas[0].clone(),
            Action::Heartbeat => self.shas[1].clone(),
            _ => self.shas[2].clone(),
        };
        let module = match (self.way, step.action) {
            (Way::OwnCalls, Action::Acquire | Action::Heartbeat | Action::Release) => {
                step.for_scripts(sha)
            }
            _ => step.for_module(),
        };
        (step.for_scripts(sha), module)
    }

    /// Takes a step on both sides and says what is wrong with the answers or the states, if
    /// anything is.
    pub fn check(&mut self, step: &Step) -> Result<(), String> {
        let before = self.states.remove(&step.key).unwrap_or_default();
        let difference = differences::covering(step, &before);
        let began = unix_seconds();
        let (scripts, module) = self.ask(step);
        let span = began..=unix_seconds();
        let after = self.module_state(&step.key)?;
        let oracle = self.scripts_state(&step.key);

        let replies = || {
            format!(
                "the scripts: {}\nthe module:  {}",
                scripts.escape_ascii(),
                module.escape_ascii()
            )
        };
        let wrong = |what: String| Err(format!("{what}\n{}", replies()));
        if let Err(what) = consistent(step, &module, &before, &after, span) {
            return wrong(what);
        }
        match difference {
            None => {
                let alike = match step.action {
                    Action::Drop => (scripts == b":0\r\n") == (module == b":0\r\n"),
                    _ => scripts == module,
                };
                if !alike {
                    return wrong(
                        "the answers differ, and no listed difference covers it".to_owned(),
                    );
                }
            }
            Some(difference) => {
                let as_listed = match difference.covers {
                    Covers::Refusal(_) => module.starts_with(b"-ERR "),
                    Covers::Answer(expected) => {
                        expected(step, &before).is_some_and(|expected| expected == module)
                    }
                    Covers::Metadata(_) | Covers::Examples => unreachable!("these cover no step"),
                };
                if !as_listed {
                    return wrong(format!("not as listed under `{}`", difference.name));
                }
                if scripts == module {
                    return wrong(format!(
                        "no difference, but `{}` is listed for it",
                        difference.name
                    ));
                }
            }
        }
        if difference.is_some() && !self.same_state(&oracle, &after)? {
            self.align_scripts(&step.key, &after);
        } else if !self.same_state(&oracle, &after)? {
            return wrong(format!(
                "the states differ, and no listed difference covers it\nthe scripts: {}\nthe module:  {}",
                shown(&oracle),
                shown(&after)
            ));
        }
        self.states.insert(step.key.clone(), after);
        self.last_reply = module;
        Ok(())
    }

    /// Whether no step touched another key than its own.
    pub fn check_untouched(&mut self) -> Result<(), String> {
        for (key, state) in self.states.clone() {
            let now = self.module_state(&key)?;
            if now != state {
                return Err(format!(
                    "{} changed by itself:\n{}\n{}",
                    key.escape_ascii(),
                    shown(&state),
                    shown(&now)
                ));
            }
        }
        Ok(())
    }

    /// What the module holds at `key`; the commands that read it must agree.
    pub fn module_state(&mut self, key: &[u8]) -> Result<State, String> {
        let mut replies = self.module.values(&[
            &[b"SEAT.COUNT", key],
            &[b"EXISTS", key],
            &[b"SEAT.SESSIONS", key, b"WITHMETADATA"],
        ]);
        let sessions = replies.pop().expect("three replies");
        let state: State = pairs(sessions)
            .into_iter()
            .map(|(id, json)| (bytes(id), Some(bytes(json))))
            .collect();
        if replies
            != [
                Value::Int(state.len() as i64),
                Value::Int(i64::from(!state.is_empty())),
            ]
        {
            return Err(format!(
                "COUNT and EXISTS are {replies:?}, but there are {}",
                shown(&state)
            ));
        }
        Ok(state)
    }

    /// What the scripts hold for `key`.
    pub fn scripts_state(&mut self, key: &[u8]) -> State {
        let [members_key, metadata_key] = [members_key(key), metadata_key(key)];
        let mut replies = self
            .scripts
            .values(&[&[b"SMEMBERS", &members_key], &[b"HGETALL", &metadata_key]]);
        let metadata = replies.pop().expect("two replies");
        let members = replies.pop().expect("two replies");
        let mut state: State = list(members)
            .into_iter()
            .map(|id| (bytes(id), None))
            .collect();
        for (id, json) in pairs(metadata) {
            let id = bytes(id);
            let row = state
                .get_mut(&id)
                .unwrap_or_else(|| panic!("metadata without a member: {}", id.escape_ascii()));
            *row = Some(bytes(json));
        }
        state
    }

    /// What both sides hold at `key` in the words of the list of differences, the scene taken down.
    pub fn plain_states(&mut self, key: &[u8]) -> Result<(String, String), String> {
        for wire in [&mut self.scripts, &mut self.module] {
            assert_eq!(wire.call(&["CONFIG", "SET", "maxmemory", "0"]), b"+OK\r\n");
            assert_eq!(wire.call(&["REPLICAOF", "NO", "ONE"]), b"+OK\r\n");
            if wire.call(&[b"TYPE", key]) == b"+string\r\n" {
                assert_eq!(wire.call(&[b"GET", key]), b"$4\r\ntext\r\n");
                assert_eq!(wire.call(&[b"DEL", key]), b":1\r\n");
            }
        }
        let module = self.module_state(key)?;
        Ok((listed(&self.scripts_state(key)), listed(&module)))
    }

    /// Equal but for the timestamps (which [`consistent`] holds against the clock) and for what
    /// cjson is listed to change.
    fn same_state(&mut self, scripts: &State, module: &State) -> Result<bool, String> {
        if !scripts.keys().eq(module.keys()) {
            return Ok(false);
        }
        for (scripts, module) in scripts.values().zip(module.values()) {
            let (Some(scripts), Some(module)) = (scripts, module) else {
                return Ok(false);
            };
            let [scripts, ours] =
                [scripts, module].map(|text| json::object(text).map(json::without_timestamps));
            let (Some(scripts), Some(ours)) = (scripts, ours) else {
                return Ok(false);
            };
            if json::same_object(&scripts, &ours) {
                continue;
            }
            let listed = differences::in_metadata(&ours);
            if !listed || !json::same_object(&scripts, &self.through_cjson(module)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The metadata as the scripts' JSON library reads and writes it.
    fn through_cjson(&mut self, text: &[u8]) -> Object {
        let script = b"return cjson.encode(cjson.decode(ARGV[1]))".as_slice();
        let text = bytes(self.scripts.value(&[b"EVAL", script, b"0", text]));
        json::without_timestamps(json::object(&text).expect("what cjson wrote"))
    }

    /// After a listed difference the history goes on from the module's state.
    fn align_scripts(&mut self, key: &[u8], state: &State) {
        let [members, metadata] = [members_key(key), metadata_key(key)];
        self.scripts.call(&[b"DEL".as_slice(), &members, &metadata]);
        for (id, json) in state {
            let json = json
                .as_ref()
                .expect("the module has metadata for each session");
            assert_eq!(
                self.scripts.call(&[b"SADD".as_slice(), &members, id]),
                b":1\r\n"
            );
            assert_eq!(
                self.scripts
                    .call(&[b"HSET".as_slice(), &metadata, id, json]),
                b":1\r\n"
            );
        }
    }
}

/// Whether the module's state went from `before` to `after` as its reply says, and in nothing else.
fn consistent(
    step: &Step,
    reply: &[u8],
    before: &State,
    after: &State,
    span: std::ops::RangeInclusive<u64>,
) -> Result<(), String> {
    let reply = redis::parse_redis_value(reply).map_err(|error| error.to_string())?;
    let word = match &reply {
        Value::Array(elements) => match elements.get(1) {
            Some(Value::BulkString(word)) => word.as_slice(),
            _ => return Err(format!("not a reply of a seat command: {reply:?}")),
        },
        _ => b"",
    };
    let session = step.session().unwrap_or_default();
    let object = |state: &State| -> Result<Object, String> {
        let text = state
            .get(session)
            .cloned()
            .flatten()
            .ok_or("the session has no metadata")?;
        json::object(&text).ok_or_else(|| format!("not a JSON object: {}", text.escape_ascii()))
    };
    let mut expected = before.clone();
    match word {
        b"ACQUIRED" => {
            let stored = object(after)?;
            let (at, last_heartbeat) = (stored.get("acquired_at"), stored.get("last_heartbeat"));
            let now = at
                .and_then(serde_json::Value::as_u64)
                .is_some_and(|at| span.contains(&at));
            if !now || at != last_heartbeat {
                return Err(format!(
                    "acquired_at {at:?} and last_heartbeat {last_heartbeat:?} are not of {span:?}"
                ));
            }
            let sent = step
                .arguments
                .get(2)
                .map_or(b"{}".as_slice(), Vec::as_slice);
            let sent = json::object(sent).ok_or("a grant with metadata that is no JSON object")?;
            if !json::same_object(
                &json::without_timestamps(sent),
                &json::without_timestamps(stored),
            ) {
                return Err("the caller's metadata is not kept as sent".to_owned());
            }
            expected.insert(session.to_vec(), after[session].clone());
        }
        b"HEARTBEAT_UPDATED" => {
            let (mut was, is) = (object(before)?, object(after)?);
            let last_heartbeat = is.get("last_heartbeat").cloned().unwrap_or_default();
            if !last_heartbeat
                .as_u64()
                .is_some_and(|last_heartbeat| span.contains(&last_heartbeat))
            {
                return Err(format!(
                    "last_heartbeat {last_heartbeat} is not of {span:?}"
                ));
            }
            let Value::Array(elements) = &reply else {
                unreachable!("a word was in it")
            };
            let Value::Int(count) = elements[2] else {
                return Err(format!("no count in {reply:?}"));
            };
            was.insert("last_heartbeat".to_owned(), last_heartbeat);
            was.insert("heartbeat_count".to_owned(), count.into());
            if !json::same_object(&was, &is) {
                return Err("a heartbeat changed more than its count and its time".to_owned());
            }
            expected.insert(session.to_vec(), after[session].clone());
        }
        b"RELEASED" => drop(expected.remove(session)),
        _ if step.action == Action::Drop => expected.clear(),
        _ => {}
    }
    if expected != *after {
        return Err(format!(
            "the reply does not account for\n{}\nafter\n{}",
            shown(after),
            shown(before)
        ));
    }
    Ok(())
}

fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970")
        .as_secs()
}

/// As the list of differences writes it: `session={metadata without timestamps}`, `session` if
/// there is none.
fn listed(state: &State) -> String {
    let row = |(id, text): (&Vec<u8>, &Option<Vec<u8>>)| {
        let id = id.escape_ascii();
        match text.as_deref().map(json::object) {
            None => id.to_string(),
            Some(None) => format!("{id}=not JSON"),
            Some(Some(object)) => format!(
                "{id}={}",
                serde_json::Value::Object(json::without_timestamps(object))
            ),
        }
    };
    state.iter().map(row).collect::<Vec<_>>().join(", ")
}

fn shown(state: &State) -> String {
    let row = |(id, json): (&Vec<u8>, &Option<Vec<u8>>)| {
        let json = json.as_deref().map_or("no metadata".to_owned(), |json| {
            json.escape_ascii().to_string()
        });
        format!("{}: {json}", id.escape_ascii())
    };
    format!("[{}]", state.iter().map(row).collect::<Vec<_>>().join(", "))
}

fn bytes(value: Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes,
        other => panic!("not a bulk string: {other:?}"),
    }
}

/// A RESP2 array or a RESP3 set.
fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(elements) | Value::Set(elements) => elements,
        other => panic!("not a list: {other:?}"),
    }
}

/// A RESP3 map or the flat list of RESP2.
fn pairs(value: Value) -> Vec<(Value, Value)> {
    match value {
        Value::Map(pairs) => pairs,
        other => {
            let mut elements = list(other).into_iter();
            std::iter::from_fn(|| {
                Some((elements.next()?, elements.next().expect("an even number")))
            })
            .collect()
        }
    }
}
