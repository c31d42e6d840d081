//! One `redis-server` process, owned by a value.

use std::collections::HashMap;
use std::env::{self, consts};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::process::Process;
use super::wait::{PATIENCE, eventually};
use super::wire::Wire;

/// The path of a unix socket may not be longer than about a hundred bytes.
const LONGEST_SOCKET_PATH: usize = 100;

/// A cluster's bus listens at the port plus 10,000.
const HIGHEST_PORT: u16 = 55_535;

/// Major, minor, patch.
pub type Version = (u32, u32, u32);

/// Which server a binary is, with the version of its own. Those of Valkey are no later or earlier
/// versions of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Product {
    Redis(Version),
    Valkey(Version),
}

/// What Valkey began as, and what each of its versions calls itself to clients of Redis.
const BEGINNING_OF_VALKEY: Version = (7, 2, 4);

impl Product {
    /// Whether the server leaves a client in another database after `COPY ... DB`, if a module
    /// listens to key events: docs/operations.md lists it.
    pub fn loses_client_database(self) -> bool {
        matches!(self, Product::Valkey(version) if ((8, 1, 1)..(9, 1, 1)).contains(&version))
    }

    /// What the binary says of itself.
    pub fn of(binary: &Path) -> Product {
        let output = Command::new(binary).arg("--version").output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0
        let mut words = text.split_whitespace();
        let name = words.next();
        let version = words
            .find_map(|word| word.strip_prefix("v="))
            .unwrap_or_else(|| panic!("no version in: {text}"));
        let numbers: Result<Vec<u32>, _> = version.split('.').map(str::parse).collect();
        match (name, numbers.as_deref()) {
            (Some("Redis"), Ok(&[major, minor, patch])) => Product::Redis((major, minor, patch)),
            (Some("Valkey"), Ok(&[major, minor, patch])) => Product::Valkey((major, minor, patch)),
            _ => panic!("neither Redis nor Valkey: {text}"),
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, (major, minor, patch)) = match self {
            Product::Redis(version) => ("Redis", version),
            Product::Valkey(version) => ("Valkey", version),
        };
        write!(f, "{name} {major}.{minor}.{patch}")
    }
}

/// What a server shall be like; see the documentation of [`super`].
#[derive(Clone, Default)]
pub struct Builder {
    binary: Option<PathBuf>,
    sentinel: bool,
    plain: bool,
    module_args: String,
    shipped_grace: bool,
    lines: Vec<String>,
    tcp: bool,
    data: Option<PathBuf>,
    env: Vec<(String, OsString)>,
}

/// A running server, or one that was stopped and can be started again.
pub struct Server {
    builder: Builder,
    product: Product,
    dir: TempDir,
    port: Option<u16>,
    process: Option<Process>,
}

impl Builder {
    /// Runs this binary instead of `REDIS_SERVER`.
    pub fn binary(mut self, binary: &Path) -> Self {
        self.binary = Some(binary.to_owned());
        self
    }

    /// Runs as a Sentinel, which listens on a port as well.
    pub fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self.plain().tcp()
    }

    /// Without the module.
    pub fn plain(mut self) -> Self {
        self.plain = true;
        self
    }

    /// What follows the module's path in `loadmodule`: names and values.
    pub fn module_args(mut self, arguments: &str) -> Self {
        self.module_args = arguments.to_owned();
        self
    }

    /// With the lease grace that the module has by default. The other servers
    /// have none, so that their leases end at their deadlines whatever happened before.
    pub fn shipped_grace(mut self) -> Self {
        self.shipped_grace = true;
        self
    }

    /// Adds a line of redis.conf.
    pub fn config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Listens on a port of 127.0.0.1, too, that the system chooses.
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// A replica of `primary`, which must have been built with [`Builder::tcp`].
    pub fn replica_of(self, primary: &Server) -> Self {
        self.tcp()
            .config(&format!("replicaof 127.0.0.1 {}", primary.port()))
    }

    /// Keeps an append-only file in which each command stands before its reply is sent, as
    /// [`Server::stream_of`] needs it.
    pub fn recording(self) -> Self {
        self.config("appendonly yes")
            .config("appendfsync always")
            .config("aof-use-rdb-preamble no")
    }

    /// Starts from a copy of what another server left in its directory.
    pub fn data_of(mut self, other: &Server) -> Self {
        self.data = Some(other.dir().to_owned());
        self
    }

    /// Sets a variable in the environment of the server's process.
    #[cfg(target_os = "linux")]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Starts the server and waits until it answers.
    #[track_caller]
    pub fn start(self) -> Server {
        self.try_start()
            .unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// As [`Builder::start`]; the log of a server that would not start is the error.
    pub fn try_start(self) -> Result<Server, String> {
        let dir = short_tempdir();
        if let Some(data) = &self.data {
            copy_data(data, dir.path());
        }
        let mut server = Server {
            product: match &self.binary {
                Some(binary) => Product::of(binary),
                None => default_product(),
            },
            builder: self,
            dir,
            port: None,
            process: None,
        };
        loop {
            if server.builder.tcp {
                server.port = Some(free_port());
            }
            match server.launch() {
                Ok(()) => return Ok(server),
                // Somebody took the port between our look and the server's start.
                Err(log) if log.contains("Address already in use") => {
                    fs::remove_file(server.log_path()).unwrap()
                }
                Err(log) => return Err(log),
            }
        }
    }
}

impl Server {
    /// A server with the module, on a unix socket.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server without the module, on a unix socket.
    #[track_caller]
    pub fn plain() -> Self {
        Self::builder().plain().start()
    }

    /// A primary and its replica, whose link is up.
    #[track_caller]
    pub fn with_replica() -> (Self, Self) {
        let primary = Self::builder().tcp().start();
        let replica = Self::builder().replica_of(&primary).start();
        primary.wait_for_offset(&replica);
        (primary, replica)
    }

    /// A server to be described further.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client of the `redis` crate.
    #[track_caller]
    pub fn client(&self) -> redis::Connection {
        self.connect("")
    }

    /// The same in RESP3.
    #[track_caller]
    pub fn client_resp3(&self) -> redis::Connection {
        self.connect("?protocol=resp3")
    }

    #[track_caller]
    fn connect(&self, parameters: &str) -> redis::Connection {
        let url = format!("redis+unix://{}{parameters}", self.socket().display());
        let connection = redis::Client::open(url)
            .expect("a valid address")
            .get_connection();
        let connection = connection.unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
        connection
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout can be set");
        connection
    }

    /// A connection that shows raw replies.
    #[track_caller]
    pub fn wire(&self) -> Wire {
        Wire::connect(&self.socket()).unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Which server this is.
    pub fn product(&self) -> Product {
        self.product
    }

    /// The version of Redis whose commands and module API it has at least. What a Valkey has beyond
    /// that is to be asked of the server itself, or of [`Server::product`].
    pub fn version(&self) -> Version {
        match self.product {
            Product::Redis(version) => version,
            Product::Valkey(_) => BEGINNING_OF_VALKEY,
        }
    }

    /// The port, if it has one.
    #[track_caller]
    pub fn port(&self) -> u16 {
        self.port.expect("a server built with tcp()")
    }

    /// Its working directory, where RDB and AOF are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir().join("s")
    }

    /// The process's id, for looking at the process from outside.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running server").id()
    }

    /// Holds the server still, so that what its clients do meanwhile reaches it in their order and
    /// in one turn of its event loop.
    #[track_caller]
    pub fn stands_still(&self, actions: impl FnOnce()) {
        self.signal("STOP");
        actions();
        self.signal("CONT");
    }

    /// Sends it a signal, named as `kill -s` takes it. After STOP it stands still.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(status.expect("kill runs").success());
        if name == "STOP" {
            // The signal is sent by then, not yet carried out.
            eventually("the server stands still", || {
                let state = Command::new("ps")
                    .args(["-o", "state=", "-p", &pid])
                    .output();
                state
                    .expect("ps runs")
                    .stdout
                    .trim_ascii()
                    .starts_with(b"T")
            });
        }
    }

    /// All that it has printed, over restarts.
    pub fn log(&self) -> String {
        fs::read(self.log_path())
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    /// The fields of a section of INFO.
    #[track_caller]
    pub fn info(&self, section: &str) -> HashMap<String, String> {
        let text: String = redis::cmd("INFO")
            .arg(section)
            .query(&mut self.client())
            .expect("INFO answers");
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(field, value)| (field.to_owned(), value.to_owned()))
            .collect()
    }

    /// DEBUG DIGEST: equal if and only if the data sets are.
    #[track_caller]
    pub fn digest(&self) -> String {
        redis::cmd("DEBUG")
            .arg("DIGEST")
            .query(&mut self.client())
            .expect("DEBUG DIGEST answers")
    }

    /// INFO's `used_memory`, in bytes.
    #[track_caller]
    pub fn used_memory(&self) -> i64 {
        self.info("memory")["used_memory"].parse().expect("bytes")
    }

    /// The same once no client is connected but the one that asks, for connections have buffers of
    /// their own until the server has closed them.
    #[track_caller]
    pub fn used_memory_alone(&self) -> i64 {
        eventually("only this connection is left", || {
            self.info("clients")["connected_clients"] == "1"
        });
        self.used_memory()
    }

    /// Rewrites the append-only file, and returns when that is done.
    #[track_caller]
    pub fn rewrite_aof(&self) {
        redis::cmd("BGREWRITEAOF")
            .exec(&mut self.client())
            .expect("a rewrite of the AOF begins");
        eventually("the AOF is rewritten", || {
            let persistence = self.info("persistence");
            persistence["aof_rewrite_in_progress"] == "0"
                && persistence["aof_rewrite_scheduled"] == "0"
        });
        let status = &self.info("persistence")["aof_last_bgrewrite_status"];
        assert_eq!(status, "ok", "the rewrite");
    }

    /// Returns when `replica` has applied all that this primary has written so far.
    #[track_caller]
    pub fn wait_for_offset(&self, replica: &Server) {
        let written: u64 = self.info("replication")["master_repl_offset"]
            .parse()
            .expect("an offset");
        eventually("the replica has applied the primary's writes", || {
            let replication = replica.info("replication");
            replication["master_link_status"] == "up"
                && replication["slave_repl_offset"]
                    .parse::<u64>()
                    .expect("an offset")
                    >= written
        });
    }

    /// Once the replica has applied all, it must hold the same data by its own digest.
    #[track_caller]
    pub fn replica_agrees(&self, replica: &Server) {
        self.wait_for_offset(replica);
        assert_eq!(replica.digest(), self.digest());
    }

    /// Loads the module into a server that runs without, with these arguments.
    #[track_caller]
    pub fn load_module(&self, arguments: &str) {
        let mut load = redis::cmd("MODULE");
        load.arg("LOAD")
            .arg(module().as_os_str().as_encoded_bytes());
        load.arg(arguments.split(' ').collect::<Vec<_>>());
        load.exec(&mut self.client())
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
    }

    /// `kill -9`.
    #[track_caller]
    pub fn kill9(&mut self) {
        let mut process = self.process.take().expect("a running server");
        process.kill().expect("the process can be killed");
        process.wait().expect("the process ends");
    }

    /// SHUTDOWN, which saves if there are save points.
    #[track_caller]
    pub fn shutdown(&mut self) {
        let mut wire = self.wire();
        let mut process = self.process.take().expect("a running server");
        wire.send(&["SHUTDOWN"]);
        eventually("the server ends after SHUTDOWN", || {
            process.try_wait().expect("its status").is_some()
        });
        let status = process.wait().expect("its status");
        assert!(
            status.success(),
            "SHUTDOWN ended with {status}:\n{}",
            self.log()
        );
    }

    /// Starts the server again (after a SHUTDOWN if it runs) with its directory, port and
    /// configuration.
    #[track_caller]
    pub fn restart(&mut self) {
        self.try_restart()
            .unwrap_or_else(|log| panic!("the server did not start again:\n{log}"));
    }

    /// As [`Server::restart`]; the log of a server that would not start is the error.
    #[track_caller]
    pub fn try_restart(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            self.shutdown();
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let before = self.log().len();
            match self.launch() {
                Err(log)
                    if log[before..].contains("Address already in use")
                        && Instant::now() < deadline => {}
                other => return other,
            }
        }
    }

    fn log_path(&self) -> PathBuf {
        self.dir().join("log")
    }

    /// Runs the binary and polls PING until the data is loaded.
    fn launch(&mut self) -> Result<(), String> {
        let configuration = self.dir().join("redis.conf");
        fs::write(&configuration, self.configuration()).expect("the configuration can be written");
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("a log file");
        let binary = self.builder.binary.clone().unwrap_or_else(default_binary);
        let mut command = Command::new(&binary);
        command
            .arg(&configuration)
            .args(self.builder.sentinel.then_some("--sentinel"))
            .current_dir(self.dir())
            .envs(self.builder.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log);
        let mut process = Process::spawn(&mut command)
            .unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.answers() {
                self.process = Some(process);
                return Ok(());
            }
            if process.try_wait().expect("its status").is_some() {
                return Err(self.log());
            }
            if Instant::now() > deadline {
                process.kill().expect("the process can be killed");
                process.wait().expect("the process ends");
                return Err(format!("no answer within {PATIENCE:?}\n{}", self.log()));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub(super) fn answers(&self) -> bool {
        let reply = Wire::connect(&self.socket()).and_then(|mut wire| {
            wire.try_send(&["PING"])?;
            wire.try_read()
        });
        reply.is_ok_and(|reply| !reply.starts_with(b"-LOADING"))
    }

    fn configuration(&self) -> String {
        let mut lines = vec![
            format!("port {}", self.port.unwrap_or(0)),
            "bind 127.0.0.1".to_owned(),
            format!("unixsocket {}", self.socket().display()),
            format!("dir {}", self.dir().display()),
            "save \"\"".to_owned(),
            "repl-diskless-sync-delay 0".to_owned(),
        ];
        if self.version() >= (7, 0, 0) {
            lines.push("enable-debug-command yes".to_owned());
            lines.push("enable-module-command yes".to_owned());
        }
        if !self.builder.plain {
            let grace = if self.builder.shipped_grace {
                ""
            } else {
                "lease-grace 0 "
            };
            lines.push(format!(
                "loadmodule {} {grace}{}",
                module().display(),
                self.builder.module_args
            ));
        }
        lines.extend(self.builder.lines.iter().cloned());
        lines.join("\n") + "\n"
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        let died = process.try_wait().expect("its status");
        if died.is_none() {
            process.kill().expect("the process can be killed");
            process.wait().expect("the process ends");
        }
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(60)..];
            eprintln!(
                "the end of the log of {}:\n{}",
                self.dir().display(),
                tail.join("\n")
            );
        } else if let Some(status) = died {
            panic!("the server died by itself with {status}:\n{}", self.log());
        }
    }
}

/// The binary of a server whose builder names none.
pub fn default_binary() -> PathBuf {
    env::var_os("REDIS_SERVER")
        .unwrap_or_else(|| OsString::from("redis-server"))
        .into()
}

fn default_product() -> Product {
    static PRODUCT: OnceLock<Product> = OnceLock::new();
    *PRODUCT.get_or_init(|| Product::of(&default_binary()))
}

fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        let path = env::var_os("REDIS_SEAT_MODULE").map_or_else(built_module, PathBuf::from);
        path.canonicalize()
            .unwrap_or_else(|error| panic!("no module at {}: {error}", path.display()))
    })
}

/// Cargo does not build a cdylib for the tests next to it, and what an earlier build left may be
/// stale.
fn built_module() -> PathBuf {
    let exe = env::current_exe().expect("the path of the test binary");
    let profile_dir = exe
        .ancestors()
        .nth(2)
        .expect("target/<profile>/deps/<test>");
    let target_dir = profile_dir.parent().expect("target/<profile>");
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let build = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--lib",
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(target_dir)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(
        build.status.success(),
        "the module does not build:\n{}",
        String::from_utf8_lossy(&build.stderr)
    );
    profile_dir.join(format!(
        "{}redis_seat{}",
        consts::DLL_PREFIX,
        consts::DLL_SUFFIX
    ))
}

fn short_tempdir() -> TempDir {
    let inside = |parent: &Path| {
        let dir = tempfile::Builder::new().prefix("seat-").tempdir_in(parent);
        dir.unwrap_or_else(|error| panic!("no directory in {}: {error}", parent.display()))
    };
    let dir = inside(&env::temp_dir());
    if dir.path().join("s").as_os_str().len() < LONGEST_SOCKET_PATH {
        return dir;
    }
    inside(Path::new("/tmp"))
}

fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        if port <= HIGHEST_PORT {
            return port;
        }
    }
}

fn copy_data(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a readable directory") {
        let entry = entry.expect("a readable entry");
        let name = entry.file_name();
        let kind = entry.file_type().expect("its type");
        if kind.is_dir() {
            fs::create_dir(to.join(&name)).expect("a new directory");
            copy_data(&entry.path(), &to.join(&name));
        } else if kind.is_file() && name != "log" && name != "redis.conf" {
            fs::copy(entry.path(), to.join(&name)).expect("a copy");
        }
    }
}
