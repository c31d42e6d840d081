//! What is compared: the module's commands, the scripts that they replace, and what else one might
//! do.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::ops::Range;
use std::path::Path;

use redis::Script;

use crate::client::{Calls, Client, Crowd};
use crate::cores::server_core;
use crate::support::{Builder, Server};

/// Calls in a pipeline where it is not the pipeline that is looked at.
const FILLING_DEPTH: usize = 16;

use crate::pool_work::METADATA;
pub use crate::pool_work::session;

/// What a session is granted with. A part of it is its own, as in life, lest a file shrink more
/// than it would there.
pub fn metadata(number: u64) -> String {
    let own = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    METADATA.replace("5f0c8e21a97d", &format!("{own:012x}"))
}

pub const POOL: &str = "LICENSE-2f7c-0001";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Acquire,
    Active,
    Denied,
    Heartbeat,
    Release,
}

impl Operation {
    pub const ALL: [Operation; 5] = [
        Operation::Acquire,
        Operation::Active,
        Operation::Denied,
        Operation::Heartbeat,
        Operation::Release,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Acquire => "ACQUIRE, granted",
            Operation::Active => "ACQUIRE, already active",
            Operation::Denied => "ACQUIRE, denied",
            Operation::Heartbeat => "HEARTBEAT",
            Operation::Release => "RELEASE",
        }
    }

    /// The script of this operation, of three.
    fn script(self) -> usize {
        match self {
            Operation::Acquire | Operation::Active | Operation::Denied => 0,
            Operation::Heartbeat => 1,
            Operation::Release => 2,
        }
    }

    fn status(self) -> &'static str {
        match self {
            Operation::Acquire => "ACQUIRED",
            Operation::Active => "ALREADY_ACTIVE",
            Operation::Denied => "NO_SEATS_AVAILABLE",
            Operation::Heartbeat => "HEARTBEAT_UPDATED",
            Operation::Release => "RELEASED",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    Module,
    Script,
    /// The optimised script of benches/lua.
    Lean,
    Function,
    Set,
    Transaction,
    Noop,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Side::Module => "module",
            Side::Script => "script",
            Side::Lean => "optimised script",
            Side::Function => "function",
            Side::Set => "SET",
            Side::Transaction => "MULTI SADD HSET EXEC",
            Side::Noop => "no-op",
        }
    }

    /// All that a server of this version can do.
    pub fn all(version: (u32, u32, u32)) -> Vec<Side> {
        let mut sides = vec![Side::Module, Side::Script, Side::Lean];
        if version >= (7, 0, 0) {
            sides.push(Side::Function);
        }
        sides.extend([Side::Set, Side::Transaction, Side::Noop]);
        sides
    }

    pub fn offers(self, operation: Operation) -> bool {
        match self {
            Side::Module | Side::Script | Side::Lean | Side::Function => true,
            Side::Set | Side::Transaction | Side::Noop => operation == Operation::Acquire,
        }
    }

    /// The commands whose time in INFO commandstats makes up a call. EXEC's contains that of what
    /// it executes.
    pub fn commands(self, operation: Operation) -> &'static [&'static str] {
        match self {
            Side::Module => match operation.script() {
                0 => &["seat.acquire"],
                1 => &["seat.heartbeat"],
                _ => &["seat.release"],
            },
            Side::Script | Side::Lean => &["evalsha"],
            Side::Function => &["fcall"],
            Side::Set => &["set"],
            Side::Transaction => &["multi", "exec"],
            Side::Noop => &["seat.noop"],
        }
    }
}

/// What is asked of a server.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pub side: Side,
    pub operation: Operation,
    pub pool: &'a str,
    pub seats: u64,
    /// With a lease, which the module alone has.
    pub leased: bool,
}

/// The original scripts and the optimised ones, each in the order of [`Operation::script`].
const SCRIPTS: [[&str; 3]; 2] = [
    [
        include_str!("../../tests/lua/acquire_seat.lua"),
        include_str!("../../tests/lua/update_heartbeat.lua"),
        include_str!("../../tests/lua/release_seat.lua"),
    ],
    [
        include_str!("../lua/acquire.lua"),
        include_str!("../lua/heartbeat.lua"),
        include_str!("../lua/release.lua"),
    ],
];

const FUNCTIONS: [&str; 3] = ["acquire_seat", "update_heartbeat", "release_seat"];

/// One server with what the sides need that run on it.
pub struct Host {
    pub server: Server,
    shas: [[String; 3]; 2],
}

impl Host {
    pub fn start(builder: Builder) -> Host {
        let server = builder.start();
        let mut client = server.client();
        let shas = SCRIPTS.map(|texts| {
            texts.map(|text| {
                let script = Script::new(text);
                let loaded = script.prepare_invoke().load(&mut client);
                loaded.expect("the script loads")
            })
        });
        if server.version() >= (7, 0, 0) {
            let mut library = "#!lua name=seats\n".to_owned();
            for (name, text) in FUNCTIONS.iter().zip(SCRIPTS[0]) {
                library += &format!(
                    "redis.register_function('{name}', function(KEYS, ARGV)\n{text}\nend)\n"
                );
            }
            redis::cmd("FUNCTION")
                .arg(&["LOAD", &library])
                .exec(&mut client)
                .expect("the functions load");
        }
        Host { server, shas }
    }

    /// A server for a side: with the module, with the build of it that has the no-op, or without;
    /// pinned to a core of its own.
    pub fn builder(side: Side) -> Builder {
        let builder = match side {
            Side::Module => Server::builder().module_args(&shipped_settings()),
            Side::Noop => {
                let module = env::var("REDIS_SEAT_BENCH_MODULE");
                let module =
                    module.expect("REDIS_SEAT_BENCH_MODULE names the build with the no-op");
                Server::builder()
                    .plain()
                    .config(&format!("loadmodule {module}"))
            }
            _ => Server::builder().plain(),
        };
        match server_core() {
            Some(core) => builder.config(&format!("server_cpulist {core}")),
            None => builder,
        }
    }

    pub fn of(side: Side) -> Host {
        Host::start(Host::builder(side))
    }

    pub fn flush(&self) {
        redis::cmd("FLUSHALL")
            .exec(&mut self.server.client())
            .expect("the server is emptied");
    }

    /// Has the server forget its statistics.
    pub fn reset_stats(&self) {
        redis::cmd("CONFIG")
            .arg("RESETSTAT")
            .exec(&mut self.server.client())
            .expect("statistics can be reset");
    }

    /// The microseconds that commands have taken since, all together.
    pub fn server_micros(&self, commands: &[&str]) -> f64 {
        let stats = self.server.info("commandstats");
        let micros = commands.iter().map(|command| {
            let fields = stats.get(&format!("cmdstat_{command}"));
            let fields = fields.unwrap_or_else(|| panic!("{command} was not called"));
            let fields: HashMap<_, _> = fields
                .split(',')
                .filter_map(|field| field.split_once('='))
                .collect();
            fields["usec"].parse::<f64>().expect("microseconds")
        });
        micros.sum()
    }

    /// The calls of some work for the sessions of these numbers.
    pub fn calls(&self, work: &Work<'_>, sessions: impl IntoIterator<Item = u64>) -> Calls {
        let Work {
            side,
            operation,
            pool,
            ..
        } = *work;
        let mut calls = match side {
            Side::Set => Calls::new("OK", 1),
            Side::Transaction => Calls::new("*2", 4),
            Side::Noop => Calls::new(":0", 1),
            _ => Calls::new(operation.status(), 1),
        };
        let seats = work.seats.to_string();
        let now = "1795959394";
        let (held, beats) = (format!("{pool}:held"), format!("{pool}:beats"));
        let (members, objects) = (
            format!("license:{pool}:active_sessions"),
            format!("license:{pool}:session_metadata"),
        );
        let script = operation.script();
        for number in sessions {
            let (id, metadata) = (session(number), metadata(number));
            let head: &[&str] = match side {
                Side::Module => &[
                    ["SEAT.ACQUIRE", "SEAT.HEARTBEAT", "SEAT.RELEASE"][script],
                    pool,
                ],
                Side::Script => &["EVALSHA", &self.shas[0][script], "1", pool],
                Side::Lean => &["EVALSHA", &self.shas[1][script], "2", &held, &beats],
                Side::Function => &["FCALL", FUNCTIONS[script], "1", pool],
                Side::Noop => &["SEAT.NOOP", pool],
                Side::Set => {
                    calls.command(&["SET", &format!("{pool}:{id}"), &metadata]);
                    calls.end_call();
                    continue;
                }
                Side::Transaction => {
                    calls.command(&["MULTI"]);
                    calls.command(&["SADD", &members, &id]);
                    calls.command(&["HSET", &objects, &id, &metadata]);
                    calls.command(&["EXEC"]);
                    calls.end_call();
                    continue;
                }
            };
            let tail: &[&str] = match (script, side) {
                (0, Side::Lean) => &[&id, &seats, &metadata, now],
                (0, Side::Module) if work.leased => &[&id, &seats, &metadata, "EX", "3600"],
                (0, _) => &[&id, &seats, &metadata],
                (1, Side::Lean) => &[&id, now],
                (1, _) => &[&id, "{}"],
                _ => &[&id],
            };
            calls.command(&[head, tail].concat());
            calls.end_call();
        }
        calls
    }

    /// Does some work for the sessions of these numbers, unmeasured.
    pub fn perform(&self, work: &Work<'_>, sessions: Range<u64>) {
        const AT_ONCE: u64 = 10_000;
        let mut client = self.client();
        for from in sessions.clone().step_by(AT_ONCE as usize) {
            let some = from..(from + AT_ONCE).min(sessions.end);
            client.send(&self.calls(work, some), FILLING_DEPTH);
        }
    }

    /// The server's own time for a call, in microseconds.
    pub fn time(&self, client: &mut Client, work: &Work<'_>, sessions: Vec<u64>) -> f64 {
        let calls = self.calls(work, sessions);
        self.reset_stats();
        client.send(&calls, FILLING_DEPTH);
        self.server_micros(work.side.commands(work.operation)) / calls.len() as f64
    }

    /// A number of a section of INFO.
    pub fn number(&self, section: &str, field: &str) -> f64 {
        self.server.info(section)[field].parse().expect("a number")
    }

    pub fn client(&self) -> Client {
        Client::of(&self.server)
    }

    pub fn crowd(&self, connections: usize) -> Crowd {
        Crowd::of(&self.server, connections)
    }
}

/// The settings with which the shipped redis.conf loads the module.
pub fn shipped_settings() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("redis.conf");
    let text = fs::read_to_string(&path).expect("redis.conf");
    let settings = text.lines().find_map(|line| {
        let arguments = line.strip_prefix("loadmodule ")?;
        Some(
            arguments
                .split_once(' ')
                .map_or("", |(_, settings)| settings),
        )
    });
    settings.expect("redis.conf loads the module").to_owned()
}
