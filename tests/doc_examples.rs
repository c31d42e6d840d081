//! The documentation is held to the server: its examples run and answer what is shown, its lists
//! are complete, its links lead somewhere, and the tests that it names exist.

use std::collections::{BTreeSet, HashMap};
use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redis::Value;

use crate::support::{Dialog, Server, Waiter, arguments, cluster, eventually};

#[expect(dead_code, reason = "main is for `cargo run --example`")]
#[path = "../examples/quickstart.rs"]
mod quickstart;

const README: &str = "README.md";
const COMMANDS: &str = "docs/commands.md";

/// How console examples show the command line.
const PROMPT: &str = "127.0.0.1:6379> ";

/// The number in the line below this depends on the build.
const VARYING_FIELD: &str = "\"memory_bytes\"";

/// Numbers in the replies to these depend on how long redis-cli takes.
const VARYING_COMMANDS: [&str; 2] = ["SEAT.PTTL ", "SEAT.QUEUE "];

/// The text in the line below these depends on the server, or on how long redis-cli takes.
const VARYING_TEXTS: [&str; 2] = ["\"node\"", "\"held_s\""];

/// A cursor of SEAT.SCAN has so many.
const CURSOR_DIGITS: usize = 19;

/// The one error that no client can provoke.
const DEFECT: &str =
    "ERR internal error of the seat module, see the server's log; please report it";

pub struct Page {
    name: String,
    text: String,
}

/// A fenced block.
pub struct Block<'a> {
    /// The words after the opening fence; the first is the language.
    info: Vec<&'a str>,
    /// Where to find it: `page:line`.
    at: String,
    pub body: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn page(name: &str) -> Page {
    let text = fs::read_to_string(root().join(name));
    Page {
        name: name.to_owned(),
        text: text.unwrap_or_else(|error| panic!("{name}: {error}")),
    }
}

/// Every Markdown file at the root and in `docs/`.
fn pages() -> Vec<Page> {
    let mut names = Vec::new();
    for folder in ["", "docs/"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            let name = name.into_string().expect("a name in UTF-8");
            if name.ends_with(".md") {
                names.push(format!("{folder}{name}"));
            }
        }
    }
    names.iter().map(|name| page(name)).collect()
}

impl Page {
    pub fn blocks(&self, language: &str) -> Vec<Block<'_>> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (number, line) in self.text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(info)) => {
                    open = Some(Block {
                        info: info.split_whitespace().collect(),
                        at: format!("{}:{}", self.name, number + 1),
                        body: String::new(),
                    });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.body += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", self.name);
        blocks.retain(|block| block.info.first() == Some(&language));
        blocks
    }

    /// The text below a heading, up to the next one of its level.
    fn section(&self, heading: &str) -> &str {
        let level = heading.split(' ').next().expect("a level");
        let start = self.text.find(&format!("\n{heading}\n"));
        let start = start.unwrap_or_else(|| panic!("{} has no `{heading}`", self.name)) + 1;
        let body = &self.text[start + heading.len()..];
        let end = body.find(&format!("\n{level} ")).unwrap_or(body.len());
        &body[..end]
    }

    fn headings(&self) -> impl Iterator<Item = &str> {
        let mut fenced = false;
        self.text.lines().filter(move |line| {
            fenced ^= line.starts_with("```");
            !fenced && line.starts_with('#')
        })
    }
}

/// A block ```` ```console ```` is typed into redis-cli on a fresh server; one with ```` ```console
/// 7.0+ ```` only where the server is that new, and one with `shipped` on a server with the
/// settings of the shipped redis.conf.
#[test]
fn console_examples_show_what_redis_cli_shows() {
    let mut wrong = Vec::new();
    let mut ran = BTreeSet::new();
    for page in pages() {
        for block in page.blocks("console") {
            let settings = if block.info.contains(&"shipped") {
                crate::migration::shipped_arguments()
            } else {
                String::new()
            };
            let server = Server::builder()
                .shipped_grace()
                .module_args(&settings)
                .start();
            let least = block.info.iter().find(|word| word.ends_with('+'));
            if least.is_some_and(|least| server.version() < version(least)) {
                continue;
            }
            let shown = mask(&block.body);
            let real = mask(&transcript(&server, &block));
            if shown != real {
                wrong.push(format!("{}, shown:\n{shown}real:\n{real}", block.at));
            }
            ran.insert(page.name.clone());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        ran.contains(README) && ran.contains(COMMANDS),
        "only {ran:?} have examples"
    );
}

/// `7.0+` as the fixture writes versions.
fn version(least: &str) -> (u32, u32, u32) {
    let parts = least.strip_suffix('+').and_then(|v| v.split_once('.'));
    let (major, minor) = parts.unwrap_or_else(|| panic!("not a version: {least}"));
    let number = |part: &str| part.parse().expect("a number");
    (number(major), number(minor), 0)
}

/// What a person would see who types the block's commands. One who goes on from a cursor types the
/// one that has come back.
fn transcript(server: &Server, block: &Block) -> String {
    let commands: Vec<_> = block
        .body
        .lines()
        .filter_map(|line| line.strip_prefix(PROMPT))
        .collect();
    assert!(
        block.body.starts_with(PROMPT),
        "{} does not begin with {PROMPT:?}",
        block.at
    );
    let mut transcript = String::new();
    let mut rest = &commands[..];
    while !rest.is_empty() {
        // Nothing is typed before the cursor that it goes on from is known.
        let others = rest
            .iter()
            .skip(1)
            .position(|typed| cursor(typed).is_some());
        let (now, later) = rest.split_at(others.map_or(rest.len(), |at| at + 1));
        let real = cursor(&transcript).map(str::to_owned);
        let typed: Vec<_> = now
            .iter()
            .map(|typed| match (cursor(typed), &real) {
                (Some(shown), Some(real)) => typed.replace(shown, real),
                _ => (*typed).to_owned(),
            })
            .collect();
        transcript += &typed_into_redis_cli(server, block, &typed);
        rest = later;
    }
    transcript
}

/// The last cursor in a text: nineteen digits in a row.
fn cursor(text: &str) -> Option<&str> {
    let mut numbers = text.rsplit(|c: char| !c.is_ascii_digit());
    numbers.find(|number| number.len() == CURSOR_DIGITS)
}

fn typed_into_redis_cli(server: &Server, block: &Block, commands: &[String]) -> String {
    const END: &str = "end-of-reply";
    let mut cli = Command::new("redis-cli")
        .arg("-s")
        .arg(server.socket())
        .arg("--no-raw")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("redis-cli is on PATH");
    let typed: String = commands
        .iter()
        .map(|command| format!("{command}\nECHO {END}\n"))
        .collect();
    cli.stdin
        .take()
        .expect("a pipe")
        .write_all(typed.as_bytes())
        .expect("redis-cli reads");
    let output = cli.wait_with_output().expect("redis-cli ends");
    assert!(output.status.success(), "{}: redis-cli failed", block.at);
    let output = String::from_utf8(output.stdout).expect("formatted output is text");
    let end = format!("\"{END}\"\n");
    let mut replies = output.split(&end);
    let mut transcript = String::new();
    for command in commands {
        let reply = replies.next().unwrap_or_default();
        transcript += &format!("{PROMPT}{command}\n");
        for line in reply.lines().filter(|line| !is_duration(line)) {
            transcript += &format!("{}\n", line.trim_end());
        }
    }
    transcript
}

/// redis-cli adds a line like `(0.61s)` when the machine is slow.
fn is_duration(line: &str) -> bool {
    line.strip_prefix('(')
        .and_then(|line| line.strip_suffix("s)"))
        .is_some_and(|seconds| seconds.parse::<f64>().is_ok())
}

/// What Redis says behind the full stop of `NOSCRIPT`, and Valkey from 8.1 on does not.
const ADVICE: &str = " Please use EVAL.";

/// The rule that `docs/commands.md` states: ten, thirteen or sixteen digits in a row are a time,
/// with what follows in the id of an entry, nineteen are a cursor, and the memory of a pool, the
/// rest of a lease, the length of a wait, a node and how long a seat was held vary; all else is
/// exact.
fn mask(transcript: &str) -> String {
    let mut masked = String::new();
    let (mut is_below_field, mut is_below_text, mut is_in_reply) = (false, false, false);
    for line in transcript.lines() {
        if let Some(command) = line.strip_prefix(PROMPT) {
            is_in_reply = VARYING_COMMANDS
                .iter()
                .any(|varying| command.starts_with(varying));
        }
        let varies = is_below_field || is_in_reply;
        let mut rest = line;
        if is_below_text && let Some((before, _)) = line.split_once('"') {
            masked += before;
            rest = "<text>";
        }
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            let digits = &rest[start..];
            let length = digits
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(digits.len());
            let (number, after) = digits.split_at(length);
            let is_value = rest[..start].ends_with("(integer) ");
            masked += &rest[..start];
            masked += match number {
                _ if matches!(length, 10 | 13 | 16) => "<time>",
                _ if length == CURSOR_DIGITS => "<cursor>",
                _ if varies && is_value => "<number>",
                number => number,
            };
            rest = after;
            if length == 13
                && let Some(behind) = after.strip_prefix('-')
            {
                rest = behind.trim_start_matches(|c: char| c.is_ascii_digit());
            }
        }
        masked += rest.strip_suffix(ADVICE).unwrap_or(rest);
        masked.push('\n');
        is_below_field = line.contains(VARYING_FIELD);
        is_below_text = VARYING_TEXTS.iter().any(|text| line.ends_with(text));
    }
    masked
}

#[test]
fn masking_hides_what_varies_and_no_more() {
    let shown = " 1) \"x\\\":1795959281,\"\n 2) (integer) 179595928\n15) \"memory_bytes\"\n16) (integer) 952\n17) (integer) 952\n127.0.0.1:6379> SEAT.PTTL a b\n(integer) 359999\n127.0.0.1:6379> SEAT.PTTL a c\n(integer) -1\n127.0.0.1:6379> SEAT.QUEUE a\n1) 1) \"b2\"\n   2) (integer) 7\n127.0.0.1:6379> SEAT.COUNT a\n(integer) 7\n1) 1) \"1795959281000-12\"\n   2) 1) \"node\"\n      2) \"16a1da16\"\n      3) \"held\"\n      4) \"1\"\n";
    let masked = " 1) \"x\\\":<time>,\"\n 2) (integer) 179595928\n15) \"memory_bytes\"\n16) (integer) <number>\n17) (integer) 952\n127.0.0.1:6379> SEAT.PTTL a b\n(integer) <number>\n127.0.0.1:6379> SEAT.PTTL a c\n(integer) -1\n127.0.0.1:6379> SEAT.QUEUE a\n1) 1) \"b2\"\n   2) (integer) <number>\n127.0.0.1:6379> SEAT.COUNT a\n(integer) 7\n1) 1) \"<time>\"\n   2) 1) \"node\"\n      2) <text>\n      3) \"held\"\n      4) \"1\"\n";
    assert_eq!(mask(shown), masked);
}

/// What a line `print(...)` prints stands in the comment below it.
#[test]
fn python_examples_print_what_their_comments_say() {
    let python = python();
    let mut ran = 0;
    for page in pages() {
        for block in page.blocks("python") {
            let server = Server::builder().shipped_grace().start();
            let output = Command::new(&python)
                .args(["-W", "error", "-c", &block.body])
                .env("REDIS_URL", format!("unix://{}", server.socket().display()))
                .env("PYTHONPATH", root().join("clients/python/src"))
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .output()
                .unwrap_or_else(|error| panic!("{}: {error}", python.display()));
            assert!(
                output.status.success(),
                "{}: {}",
                block.at,
                String::from_utf8_lossy(&output.stderr)
            );
            let printed = String::from_utf8(output.stdout).expect("text");
            assert_eq!(
                printed.lines().collect::<Vec<_>>(),
                comments_below_prints(&block.body),
                "{}",
                block.at
            );
            ran += 1;
        }
    }
    assert!(
        ran >= 2,
        "the README shows the Python client, sync and asyncio"
    );
}

fn comments_below_prints(code: &str) -> Vec<&str> {
    let lines = code.lines().map(str::trim_start);
    let pairs = lines.clone().zip(lines.skip(1));
    let prints = pairs.filter(|(line, _)| line.starts_with("print("));
    prints
        .map(|(line, below)| {
            let comment = below.strip_prefix("# ");
            comment.unwrap_or_else(|| panic!("no comment below {line}"))
        })
        .collect()
}

/// The Python with redis-py: `REDIS_SEAT_PYTHON`, or the one that `make setup` prepares.
fn python() -> PathBuf {
    if let Some(python) = env::var_os("REDIS_SEAT_PYTHON") {
        return python.into();
    }
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into);
    let python = target.join("venv/bin/python");
    assert!(
        python.exists(),
        "no {}: run `make setup`, or name a Python that has redis-py in REDIS_SEAT_PYTHON",
        python.display()
    );
    python
}

#[test]
fn the_rust_example_runs_as_the_readme_shows_it() {
    let server = Server::start();
    let url = format!("redis+unix://{}", server.socket().display());
    quickstart::first_session(&url).expect("the session succeeds");
    let totals = server.info("seat");
    assert_eq!(totals["seat_acquired"], "1");
    assert_eq!(totals["seat_heartbeats"], "1");
    assert_eq!(totals["seat_released"], "1");

    let example = include_str!("../examples/quickstart.rs");
    let readme = page(README);
    let [block] = &readme.blocks("rust")[..] else {
        panic!("one block of Rust in the README")
    };
    assert!(
        example.contains(&block.body),
        "{} is not a part of examples/quickstart.rs",
        block.at
    );
}

/// Each command of the server, and no other, has a section; on servers that know the documentation
/// of commands, the syntax, the complexity and the version are the ones that the module registers.
#[test]
fn each_command_is_documented_and_no_other() {
    let (server, mut dialog) = Server::scene();
    let page = page(COMMANDS);
    let sections: BTreeSet<String> = page
        .headings()
        .filter_map(|heading| heading.strip_prefix("### SEAT."))
        .map(|name| format!("seat.{}", name.to_lowercase()))
        .collect();

    if server.version() < (7, 0, 0) {
        let all: Vec<Vec<Value>> = dialog.query("COMMAND");
        let names = all.iter().map(|command| text(&command[0]));
        let commands: BTreeSet<_> = names.filter(|name| name.starts_with("seat.")).collect();
        assert_eq!(sections, commands);
        return;
    }
    let commands: BTreeSet<String> = dialog.query("COMMAND LIST FILTERBY MODULE seat");
    assert_eq!(sections, commands);
    for command in commands {
        let docs: HashMap<String, HashMap<String, Value>> =
            dialog.query(&format!("COMMAND DOCS {command}"));
        let section = page.section(&format!("### {}", command.to_uppercase()));
        let docs = &docs[&command];
        let syntax = syntax(&command, &docs["arguments"]);
        // Prose may be broken anywhere.
        let section = section.replace('\n', " ");
        for part in [
            format!("```text {syntax} ```"),
            format!("**Complexity:** {}", text(&docs["complexity"])),
            format!("**Since:** {}", text(&docs["since"])),
        ] {
            assert!(section.contains(&part), "{command} lacks:\n{part}");
        }
    }
}

fn text(value: &Value) -> String {
    redis::from_redis_value(value.clone()).expect("a string")
}

/// The syntax in the usual notation, from the arguments as COMMAND DOCS gives them.
fn syntax(command: &str, arguments: &Value) -> String {
    let mut parts = vec![command.to_uppercase()];
    parts.extend(each_argument(arguments));
    parts.join(" ")
}

fn each_argument(arguments: &Value) -> Vec<String> {
    let arguments: Vec<HashMap<String, Value>> =
        redis::from_redis_value(arguments.clone()).expect("arguments");
    arguments.iter().map(one_argument).collect()
}

fn one_argument(argument: &HashMap<String, Value>) -> String {
    let mut shown = text(&argument["name"]);
    if let Some(parts) = argument.get("arguments") {
        let between = match &*text(&argument["type"]) {
            "block" => " ",
            _ => " | ",
        };
        shown = each_argument(parts).join(between);
    }
    if let Some(token) = argument.get("token").map(text) {
        shown = match &*text(&argument["type"]) {
            "pure-token" => token,
            _ => format!("{token} {shown}"),
        };
    }
    let flags: Vec<String> = argument.get("flags").map_or_else(Vec::new, |flags| {
        redis::from_redis_value(flags.clone()).expect("flags")
    });
    if flags.iter().any(|flag| flag == "multiple") {
        shown = format!("{shown} [{shown} ...]");
    }
    if flags.iter().any(|flag| flag == "optional") {
        shown = format!("[{shown}]");
    }
    shown
}

/// The table of errors lists what the server answers, and only that. `…` there stands for the rest
/// of a text.
#[test]
fn each_error_is_documented_and_no_other() {
    let page = page(COMMANDS);
    let mut listed: BTreeSet<String> = page
        .section("## Errors")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(error, _)| error.to_owned())
        .collect();
    assert!(
        listed.remove(DEFECT),
        "{COMMANDS} lacks the error of a defect"
    );

    let mut met = BTreeSet::new();
    let mut meet = |reply: &str, command: &str| {
        let error = reply.strip_prefix('!');
        let error = error.unwrap_or_else(|| panic!("{command} answers {reply}"));
        // Before 7.0 the name is spelt as the client did.
        let error = error.replace("'SEAT.ACQUIRE'", "'seat.acquire'");
        let row = listed.iter().find(|listed| {
            let mut rest = error.as_str();
            let mut parts = listed.split('…');
            let starts = parts.next().is_some_and(|start| rest.starts_with(start));
            starts
                && parts.all(|part| match rest.find(part) {
                    Some(at) => {
                        rest = &rest[at + part.len()..];
                        true
                    }
                    None => false,
                })
                && (listed.contains('…') || **listed == error)
        });
        let row = row.unwrap_or_else(|| panic!("{COMMANDS} lacks the error: {error}"));
        met.insert(row.clone());
    };
    meet(&unblocked_by_hand(), "CLIENT UNBLOCK");
    meet(&unblocked_by_a_lost_slot(), "CLUSTER DELSLOTS");
    let mut provoke = |dialog: &mut Dialog, command: &str| meet(&dialog.ask(command), command);

    let (server, mut dialog) = Server::scene();
    let long_id = "x".repeat(1025);
    let long_metadata = format!(r#"{{"a":"{}"}}"#, "x".repeat(16_384));
    let deep_metadata = format!(r#"{{"a":{}{}}}"#, "[".repeat(1000), "]".repeat(1000));
    dialog.acquire("held", "s", 1, "{}");
    for command in [
        "SEAT.ACQUIRE pool s",
        "SEAT.ACQUIRE pool s many",
        "SEAT.ACQUIRE pool  1",
        &format!("SEAT.ACQUIRE pool {long_id} 1"),
        "SEAT.ACQUIRE pool s 1 []",
        &format!("SEAT.ACQUIRE pool s 1 {long_metadata}"),
        &format!("SEAT.ACQUIRE pool s 1 {deep_metadata}"),
        r#"SEAT.ACQUIRE pool s 1 {"heartbeat_count":"1"}"#,
        "SEAT.ACQUIRE pool s 1 {} more",
        "SEAT.HEARTBEAT pool s {} more",
        "SEAT.RELEASE pool s more",
        "SEAT.GET pool s more",
        "SEAT.HEARTBEAT pool s EX",
        "SEAT.HEARTBEAT pool s EX 0",
        "SEAT.HEARTBEAT pool s EX 1 EX 1",
        "SEAT.HEARTBEAT pool s EX 1 PX 1",
        "SEAT.HEARTBEAT pool s TOKEN 0",
        "SEAT.ACQUIRE pool s 1 WEIGHT 0",
        "SEAT.ACQUIRE pool s 1 OWNER ",
        &format!("SEAT.ACQUIRE pool s 1 OWNER {long_id}"),
        "SEAT.ACQUIRE pool s 1 OWNER ann MAX 0",
        "SEAT.ACQUIRE pool s 1 MAX 1",
        "SEAT.ACQUIRE pool s 1 OWNER ann TAKEOVER",
        "SEAT.ACQUIRE pool s 0 QUEUE 0",
        "SEAT.ACQUIRE pool s 0 BLOCK -1",
        "SEAT.CLEANUP pool IDLE -1",
        "SEAT.CLEANUP pool ALL",
        "SEAT.SESSIONS pool ALL",
        "SEAT.SCAN pool first",
        "SEAT.SCAN held 7",
        "SEAT.SCAN pool 0 COUNT 0",
        "SEAT.SCAN pool 0 MATCH *",
        "SEAT.EFFECT pool FREE released s",
    ] {
        provoke(&mut dialog, command);
    }

    let mut admin = Dialog::with(&server);
    admin.expect("SET text x", "+OK");
    provoke(&mut dialog, "SEAT.COUNT text");
    admin.expect("CONFIG SET maxmemory 1", "+OK");
    provoke(&mut dialog, "SEAT.ACQUIRE pool s 1");
    admin.expect("CONFIG SET maxmemory 0", "+OK");
    admin.expect("REPLICAOF 127.0.0.1 1", "+OK");
    provoke(&mut dialog, "SEAT.ACQUIRE pool s 1");

    let (migrating, mut dialog) = crate::migration::with_migration().scene();
    for command in [
        "SADD license:pool:active_sessions s",
        "HSET license:pool:session_metadata s x",
        "SEAT.ACQUIRE seen s 1",
    ] {
        dialog.succeeds(command);
    }
    let rights = "~pool ~license:seen:* +seat.acquire +seat.scard";
    let mut narrow = Dialog::as_worker(&migrating, rights);
    provoke(&mut dialog, "SEAT.HEARTBEAT pool s");
    provoke(&mut dialog, "SEAT.EXPORT pool same same");
    provoke(&mut narrow, "SEAT.ACQUIRE pool t 1");
    provoke(&mut narrow, "SCARD license:seen:active_sessions");

    let lacking = Server::builder().config("rename-command HSET \"\"");
    let (_server, mut dialog) = lacking.scene();
    dialog.acquire("pool", "s", 1, "{}");
    provoke(&mut dialog, "SEAT.EXPORT pool set hash");

    dialog.expect("SEAT.ACQUIRE heavy s 2 WEIGHT 2", "[1, ACQUIRED, 2, 2]");
    provoke(&mut dialog, "SEAT.EXPORT heavy set hash");

    dialog.acquire("figures", "holder", 1, "{}");
    for figure in -7..=0 {
        let join = format!("SEAT.ACQUIRE figures {figure} {figure} QUEUE 60000");
        dialog.begins(&join, "[0, QUEUED, ");
    }
    provoke(&mut dialog, "SEAT.ACQUIRE figures s 1 QUEUE 60000");

    for (arguments, command) in [
        ("max-queue-length 0", "SEAT.ACQUIRE pool s 0 QUEUE 1000"),
        ("allow-effects yes", "SEAT.EFFECT pool FREE lost s"),
        ("allow-effects yes", "SEAT.ACQUIRE pool s 1 WITHTOKEN"),
    ] {
        let (_server, mut dialog) = Server::builder().module_args(arguments).scene();
        // The largest token that there can be, where effects are taken.
        let made_up = "SEAT.EFFECT other GRANT s '1 1 1 - 0 0 1 4503599627370495' {}";
        dialog.ask(made_up);
        provoke(&mut dialog, command);
    }

    assert_eq!(met, listed, "errors met, and errors listed");
}

/// A call that waits for a seat which nobody gets.
const HOPELESS: &str = "SEAT.ACQUIRE pool s 0 BLOCK 0";

/// What CLIENT UNBLOCK with ERROR has a waiter hear.
fn unblocked_by_hand() -> String {
    let (server, mut admin) = Server::scene();
    let mut waiter = Waiter::of(&server, HOPELESS);
    let unblock = format!("CLIENT UNBLOCK {} ERROR", waiter.id());
    admin.expect(&unblock, "1");
    waiter.read()
}

/// What the loss of its key's slot has a waiter hear. The server itself answers it, too, once in a
/// while: then it is tried again.
fn unblocked_by_a_lost_slot() -> String {
    let server = cluster::node().start();
    let mut admin = Dialog::with(&server);
    let slot = cluster::slot(&mut admin);
    loop {
        admin.expect(&format!("CLUSTER ADDSLOTS {slot}"), "+OK");
        eventually("the node serves the slot", || {
            admin.ask("EXISTS pool") == "0"
        });
        let mut waiter = Waiter::of(&server, HOPELESS);
        // The flush has the module serve its queues.
        admin.pipeline(&[&format!("CLUSTER DELSLOTS {slot}"), "FLUSHALL"]);
        let reply = waiter.read();
        if !reply.starts_with("!CLUSTERDOWN") {
            return reply;
        }
    }
}

/// The fields of `INFO seat` and of `SEAT.INFO`, and the settings.
#[test]
fn each_field_and_setting_is_documented() {
    let (server, mut dialog) = Server::scene();
    let page = page(COMMANDS);
    let mut names: BTreeSet<String> = server.info("seat").into_keys().collect();
    assert!(!names.is_empty());
    dialog.acquire("pool", "s", 1, "{}");
    let info: HashMap<String, i64> = dialog.query("SEAT.INFO pool");
    names.extend(info.into_keys());
    let settings: HashMap<String, String> = dialog.query("CONFIG GET seat.*");
    assert_eq!(settings.is_empty(), server.version() < (7, 0, 0));
    names.extend(settings.into_keys());
    for name in names {
        assert!(
            page.text.contains(&format!("| `{name}` |")),
            "{COMMANDS} has no row for {name}"
        );
    }
}

/// The example of the encoding in `docs/design.md` is what a DUMP of that pool contains.
#[test]
fn the_bytes_of_the_design_are_those_of_a_dump() {
    let page = page("docs/design.md");
    let [block] = &page.blocks("hex")[..] else {
        panic!("one block of bytes in {}", page.name)
    };
    let parts: Vec<Vec<u8>> = block.body.split("\n\n").map(leading_hex).collect();
    let [header, session, ticket] = &parts[..] else {
        panic!(
            "{}: a header and two batches, with empty lines between",
            block.at
        )
    };

    let (_server, mut dialog) = Server::builder()
        .module_args("allow-effects yes")
        .config("rdbcompression no")
        .scene();
    let metadata = r#"{"machine":"laptop-17"}"#;
    for effect in [
        &format!("GRANT alice '2 1795959394 1795959394 1 0 0' {metadata}"),
        "JOIN bob '2 7 1795959394000 90000 4102444800000'",
    ] {
        dialog.expect(&format!("SEAT.EFFECT pool {effect}"), "1");
    }
    let dump = dialog.raw(&["DUMP", "pool"]);
    // Between them, Redis's own mark and length of a string.
    let mark = |batch: &[u8]| [5, batch.len() as u8];
    let drawn = [&header[..], &mark(session), session, &mark(ticket), ticket].concat();
    assert!(
        dump.windows(drawn.len()).any(|bytes| bytes == drawn),
        "{}: {} is not in {}",
        block.at,
        drawn.escape_ascii(),
        dump.escape_ascii()
    );
}

/// The bytes at the beginning of each line, up to the remarks.
fn leading_hex(lines: &str) -> Vec<u8> {
    let bytes = |line: &str| -> Vec<u8> {
        line.split(' ')
            .map_while(|word| match word.len() {
                2 => u8::from_str_radix(word, 16).ok(),
                _ => None,
            })
            .collect()
    };
    lines.lines().flat_map(bytes).collect()
}

/// A server takes the effects in the forms that `docs/design.md` lists, in each of their
/// alternatives, and no shorter or longer.
#[test]
fn the_forms_of_effects_are_those_that_a_server_takes() {
    let page = page("docs/design.md");
    let forms: Vec<&str> = page
        .section("## Effects")
        .lines()
        .filter(|line| line.starts_with("SEAT.EFFECT key "))
        .collect();
    assert!(!forms.is_empty());
    let (server, mut dialog) = Server::builder().module_args("allow-effects yes").scene();
    for form in forms {
        let optional = form.matches('[').count();
        for choice in 0..4 {
            let field = |name: &str| -> String {
                let alternatives: Vec<_> = name.split('|').collect();
                sample(alternatives[choice % alternatives.len()]).to_owned()
            };
            let mut effect: Vec<String> = arguments(form)
                .into_iter()
                .map(|argument| argument.split(' ').map(field).collect::<Vec<_>>().join(" "))
                .collect();
            assert_eq!(dialog.ask_args(&effect), "1", "{effect:?}");
            let mut refuses = |effect: &[String]| {
                let reply = dialog.ask_args(effect);
                assert!(reply.starts_with("!ERR"), "{effect:?}: {reply}");
            };
            effect.push("1".to_owned());
            refuses(&effect);
            effect.truncate(effect.len() - 2 - optional);
            refuses(&effect);
        }
    }
    let unmet = &server.info("seat")["seat_ignored_effects"];
    assert_eq!(
        unmet, "10",
        "three of the four ends of the one session, and of its ticket, and four replaced sessions"
    );
}

/// A value for a field of an effect; other words stand for themselves.
fn sample(word: &str) -> &str {
    match word.trim_matches(['[', ']']) {
        "metadata" => "{}",
        "seats" | "acquired_at" | "last_heartbeat" | "count" | "lease_ms" | "arrival"
        | "since_ms" | "length_ms" => "1",
        // Far off, so that nothing is reclaimed meanwhile.
        "deadline_ms" => "9000000000000",
        "weight" | "max" | "token" => "2",
        "owner" => "ann",
        "replaced" => "another",
        word => word,
    }
}

/// `docs/parity.md` and the list that the suite holds have the same entries.
#[test]
fn each_difference_is_documented_and_no_other() {
    let listed: BTreeSet<&str> = include_str!("parity/differences.rs")
        .lines()
        .filter_map(|line| line.trim().strip_prefix("name: \"")?.strip_suffix("\","))
        .collect();
    let page = page("docs/parity.md");
    let documented: BTreeSet<&str> = page
        .section("## Where they differ, on purpose")
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .map(|(name, _)| name)
        .filter(|name| !matches!(*name, "input" | "---"))
        .collect();
    assert_eq!(documented, listed);
}

#[test]
fn links_within_the_repository_lead_somewhere() {
    let mut followed = 0;
    for page in pages() {
        let folder = Path::new(&page.name).parent().expect("a folder");
        let mut rest = page.text.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let (link, after) = after.split_once(')').expect("a link ends");
            rest = after;
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => page.name.clone(),
                path => folder.join(path).to_string_lossy().into_owned(),
            };
            assert!(root().join(&target).exists(), "{}: {link}", page.name);
            if !anchor.is_empty() {
                let target = fs::read_to_string(root().join(&target)).expect("a page");
                let target = Page {
                    name: String::new(),
                    text: target,
                };
                assert!(
                    target.headings().any(|heading| slug(heading) == anchor),
                    "{}: no heading for {link}",
                    page.name
                );
            }
            followed += 1;
        }
    }
    assert!(followed > 0);
}

/// The anchor that a heading gets.
fn slug(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c => c.is_alphanumeric().then_some(c),
        })
        .collect()
}

/// `` `file::test` `` names a test in `tests/`, and one of the crate in `pool/` where it begins
/// with `pool::`.
#[test]
fn the_tests_that_the_pages_name_exist() {
    let mut named = 0;
    for page in pages() {
        for code in page.text.split('`').filter(|code| is_test_path(code)) {
            let (folders, path): (&[&str], _) = match code.strip_prefix("pool::") {
                Some(path) => (&["pool/tests", "pool/src"], path),
                None => (&["tests"], code),
            };
            let (modules, test) = path.rsplit_once("::").expect("a file and a test");
            let files = folders.iter().flat_map(|folder| {
                let whole = modules.replace("::", "/");
                let first = modules.split("::").next().unwrap_or_default().to_owned();
                [whole, first].map(|file| root().join(format!("{folder}/{file}.rs")))
            });
            let is_there = files
                .filter_map(|file| fs::read_to_string(file).ok())
                .any(|source| source.contains(&format!("fn {test}(")));
            assert!(is_there, "{}: there is no test {code}", page.name);
            named += 1;
        }
    }
    assert!(named > 0);
}

#[test]
fn the_readme_states_the_least_rust_and_the_tested_servers() {
    let readme = page(README).text;
    assert!(readme.contains(concat!(
        "Rust ",
        env!("CARGO_PKG_RUST_VERSION"),
        " or newer"
    )));
    let servers = fs::read_to_string(root().join("scripts/servers")).expect("the matrix");
    let names: Vec<_> = servers
        .lines()
        .filter_map(|line| line.strip_prefix("from_wheel ")?.split(' ').next())
        .collect();
    assert!(!names.is_empty());
    for name in names {
        // `valkey-9.1.2` is called Valkey 9.1.2.
        let (kind, version) = name.split_once('-').expect("a kind and a version");
        let shown = format!("{}{} {version}", kind[..1].to_uppercase(), &kind[1..]);
        assert!(readme.contains(&shown), "the README lacks {shown}");
    }
}

fn is_test_path(code: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit())
    };
    code.contains("::") && code.split("::").all(is_name)
}
