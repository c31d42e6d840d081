//! examples/feed_to_database.py copies the feed into a database, and what docs/feed.md asks of that
//! is answered right.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::blocked_clients::python::python;
use crate::doc_examples::page;
use crate::support::{Dialog, Process, Server, total_becomes};

const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/feed_to_database.py");

/// Prints the rows of a query: the values with a comma between, `-` for none.
const QUERY: &str = r#"
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=60)
values = dict(zip(sys.argv[3::2], sys.argv[4::2]))
for row in database.execute(sys.argv[2], values):
    print(",".join("-" if value is None else str(value) for value in row))
"#;

/// Returns once so many entries are in the database.
const AWAIT: &str = r#"
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=60)
while True:
    try:
        if database.execute("SELECT count(*) FROM seat_entries").fetchone()[0] >= int(sys.argv[2]):
            break
    except sqlite3.OperationalError:
        pass  # There is no table yet.
"#;

/// A feed's copy.
struct Copy {
    file: PathBuf,
    url: String,
}

impl Copy {
    fn of(server: &Server) -> Copy {
        Copy {
            file: server.dir().join("copy.sqlite3"),
            url: format!("unix://{}", server.socket().display()),
        }
    }

    fn worker(&self, options: &[&str]) -> Command {
        let mut worker = Command::new(python());
        worker.args(["-W", "error", WORKER, &self.url, "seat:feed"]);
        worker.arg(&self.file).args(options);
        worker
    }

    /// Copies all that there is.
    #[track_caller]
    fn catch_up(&self) {
        succeeded(
            &self
                .worker(&["--once", "--batch", "3"])
                .output()
                .expect("Python runs"),
        );
    }

    #[track_caller]
    fn query(&self, query: &str, values: &[(&str, &str)]) -> Vec<String> {
        let mut asker = Command::new(python());
        asker.args(["-c", QUERY]).arg(&self.file).arg(query);
        for (name, value) in values {
            asker.args([name, value]);
        }
        let printed = succeeded(&asker.output().expect("Python runs"));
        printed.lines().map(str::to_owned).collect()
    }

    /// Who has seats now, by the database.
    #[track_caller]
    fn holders(&self, pool: &str) -> Vec<String> {
        let query = "SELECT session FROM seat_holds \
                     WHERE pool = :pool AND until_ms IS NULL ORDER BY session";
        self.query(query, &[("pool", pool)])
    }

    /// Who had a seat then, by the query of docs/feed.md.
    #[track_caller]
    fn holders_at(&self, pool: &str, at_ms: i64) -> Vec<String> {
        let page = page("docs/feed.md");
        let [query] = &page.blocks("sql")[..] else {
            panic!("one query in docs/feed.md");
        };
        let at_ms = at_ms.to_string();
        let rows = self.query(&query.body, &[("pool", pool), ("at_ms", &at_ms)]);
        let mut sessions: Vec<_> = rows
            .iter()
            .map(|row| row.split(',').next().expect("a session").to_owned())
            .collect();
        sessions.sort();
        sessions
    }

    #[track_caller]
    fn gaps(&self) -> usize {
        self.query("SELECT * FROM seat_gaps", &[]).len()
    }
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// A moment at which nothing happens, neither what came before nor what comes after.
fn quiet_moment(dialog: &mut Dialog) -> i64 {
    let before = dialog.now_ms();
    dialog.wait_until(before + 1);
    let moment = dialog.now_ms();
    dialog.wait_until(moment + 1);
    moment
}

#[test]
fn a_worker_killed_again_and_again_misses_no_entry_and_writes_none_twice() {
    const ENTRIES: usize = 1200;
    let (server, mut dialog) = Server::builder().module_args("feed seat:feed").scene();
    let copy = Copy::of(&server);
    let mut calls = Vec::new();
    for number in 0..ENTRIES / 2 {
        calls.push(format!("SEAT.ACQUIRE pool{} s{number} 1000", number % 7));
        calls.push(format!("SEAT.RELEASE pool{} s{}", number % 7, number / 2));
    }
    let (now, later) = calls.split_at(calls.len() / 2);
    dialog.ask_all(now.iter().cloned());
    for seen in [1, 60, 130, 200, 270] {
        let mut worker = copy.worker(&["--batch", "2", "--pause", "0.001"]);
        let mut worker = Process::spawn(&mut worker).expect("Python runs");
        let mut wait = Command::new(python());
        wait.args(["-c", AWAIT])
            .arg(&copy.file)
            .arg(seen.to_string());
        succeeded(&wait.output().expect("Python runs"));
        assert!(
            worker.try_wait().expect("its status").is_none(),
            "it works on"
        );
    }
    dialog.ask_all(later.iter().cloned());
    copy.catch_up();

    let entries: Vec<(String, Vec<String>)> = dialog.query("XRANGE seat:feed - +");
    let real: Vec<String> = entries
        .iter()
        .map(|(id, fields)| {
            let field = |name: &str| {
                let at = fields.iter().position(|field| field == name).expect(name);
                &fields[at + 1]
            };
            let [event, session, node] = [field("event"), field("session"), field("node")];
            format!("{id},{event},{session},{node}")
        })
        .collect();
    let copied = "SELECT ms || '-' || seq, event, session, node FROM seat_entries \
                  ORDER BY ms, seq";
    assert_eq!(copy.query(copied, &[]), real);
    assert_eq!(copy.gaps(), 0);
    for pool in 0..7 {
        let pool = format!("pool{pool}");
        assert_eq!(copy.holders(&pool), dialog.sessions(&pool), "{pool}");
    }
}

#[test]
fn a_gap_is_seen_after_trimming_and_after_a_flush_and_the_holders_are_right_again() {
    let arguments = "feed seat:feed feed-maxlen 10";
    let (server, mut dialog) = Server::builder().module_args(arguments).scene();
    let copy = Copy::of(&server);
    dialog.acquire_all("pool", &["a", "b", "c"], 100);
    copy.catch_up();
    assert_eq!(copy.gaps(), 0);
    assert_eq!(copy.holders("pool"), ["a", "b", "c"]);

    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 2]");
    dialog.acquire("other", "x", 1, "{}");
    for number in 0..20 {
        dialog.acquire("pool", &format!("later{number:02}"), 100, "{}");
    }
    dialog.expect("XLEN seat:feed", "10");
    copy.catch_up();
    assert_eq!(copy.gaps(), 1);
    assert_eq!(copy.holders("pool"), dialog.sessions("pool"));
    assert_eq!(copy.holders("other"), ["x"]);
    copy.catch_up();
    assert_eq!(copy.gaps(), 1, "there is none since");

    dialog.expect("FLUSHALL", "+OK");
    copy.catch_up();
    assert_eq!(copy.gaps(), 2);
    assert!(copy.holders("pool").is_empty());
    dialog.acquire("pool", "new", 100, "{}");
    copy.catch_up();
    assert_eq!(copy.gaps(), 2, "there is none since");
    assert_eq!(copy.holders("pool"), ["new"]);
    let entries = copy.query("SELECT count(*) FROM seat_entries", &[]);
    assert_eq!(entries, ["14"], "three, the ten that were left, one");
}

#[test]
fn who_had_a_seat_at_a_moment_is_one_query() {
    let (server, mut dialog) = Server::builder().module_args("feed seat:feed").scene();
    let copy = Copy::of(&server);
    let pools = ["pool", "renamed", "copy", "restored"];
    let steps = [
        ("SEAT.ACQUIRE pool a 3", 1),
        ("SEAT.ACQUIRE pool heavy 3 WEIGHT 2 OWNER ann MAX 1", 1),
        (
            "SEAT.ACQUIRE pool heir 3 WEIGHT 2 OWNER ann MAX 1 TAKEOVER",
            2,
        ),
        ("SEAT.RELEASE pool a", 1),
        ("SEAT.ACQUIRE pool a 3", 1),
        ("SEAT.REVOKE pool a", 1),
        ("SEAT.HEARTBEAT pool heir", 0),
        ("RENAME pool renamed", 1),
        ("COPY renamed copy", 1),
        ("SEAT.ACQUIRE renamed b 9", 1),
        ("SEAT.ACQUIRE pool c 9", 1),
        ("RENAME pool renamed", 2),
        ("DEL copy", 1),
    ];
    let mut moments = Vec::new();
    let mut written = 0;
    for (step, entries) in steps {
        dialog.succeeds(step);
        written += entries;
        // What the server's own commands do is written a moment later.
        total_becomes(&server, "seat_feed_entries", written);
        let moment = quiet_moment(&mut dialog);
        let holders = pools.map(|pool| dialog.sessions(pool));
        moments.push((step, moment, holders));
    }
    dialog.succeeds("SEAT.ACQUIRE leased d 1 PX 50");
    total_becomes(&server, "seat_feed_entries", written + 2);
    copy.catch_up();
    for (step, moment, holders) in moments {
        for (pool, holders) in pools.iter().zip(holders) {
            assert_eq!(
                copy.holders_at(pool, moment),
                holders,
                "{pool} after {step}"
            );
        }
    }
    let deadline = "SELECT deadline_ms FROM seat_entries WHERE event = 'expired'";
    let deadline: i64 = copy.query(deadline, &[])[0].parse().expect("a time");
    assert_eq!(copy.holders_at("leased", deadline - 1), ["d"]);
    assert!(copy.holders_at("leased", deadline).is_empty());
    assert_eq!(copy.gaps(), 0);
}

#[test]
fn what_no_entry_tells_is_looked_up() {
    let mut server = Server::builder()
        .module_args("feed seat:feed")
        .config("appendonly yes")
        .config("appendfsync always")
        .start();
    let mut dialog = Dialog::with(&server);
    let copy = Copy::of(&server);
    dialog.acquire_all("pool", &["a", "b"], 100);
    // As if it had been switched on only now.
    dialog.expect("DEL seat:feed", "1");
    copy.catch_up();
    assert_eq!(copy.holders("pool"), ["a", "b"]);
    dialog.acquire("pool", "later", 100, "{}");
    copy.catch_up();

    let payload = dialog.bytes(&["DUMP", "pool"]);
    dialog.restore("restored", &payload, &[]);
    total_becomes(&server, "seat_feed_entries", 4);
    copy.catch_up();
    assert_eq!(copy.holders("restored"), ["a", "b", "later"]);

    // A crash may forget that the pool was dropped.
    dialog.expect("DEL restored", "1");
    server.kill9();
    server.restart();
    let mut dialog = Dialog::with(&server);
    dialog.acquire("pool", "c", 100, "{}");
    copy.catch_up();
    assert_eq!(copy.holders("pool"), ["a", "b", "c", "later"]);
    assert!(copy.holders("restored").is_empty());
    assert_eq!(copy.gaps(), 0);
}
