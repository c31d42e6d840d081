//! A guard that no busy machine can disturb: how many instructions the pool executes for what the
//! commands ask of it, counted by valgrind and held against recorded ceilings.
//!
//! This program runs itself under valgrind, which counts within the function [`measured`] alone.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::pool_work::{
    BATCH, acquire, acquire_owned, already_active, denied, heartbeat, pool_of, pool_of_owned,
    reclaim, release, session, take_over, twin,
};

/// Sessions that stay in the pool.
const RESIDENTS: u64 = 10_000;

const CALLS: u64 = 4096;

/// What a ceiling leaves to a compiler or a C library of another version.
const MARGIN: f64 = 1.05;

pub const NAMES: [&str; 12] = [
    "acquire",
    "acquire with a lease",
    "acquire with owner and weight",
    "acquire by a takeover",
    "already active",
    "denied",
    "heartbeat",
    "heartbeat with a lease",
    "heartbeat with owner",
    "release",
    "release with a lease",
    "reclaim",
];

/// One operation's figure, for one session.
pub struct Count {
    pub name: &'static str,
    pub instructions: f64,
    pub ceiling: f64,
}

/// Counts all operations; `None` on a machine that valgrind does not exist for.
pub fn measure(record: bool) -> Option<Vec<Count>> {
    if !has_valgrind() {
        if cfg!(target_os = "macos") {
            return None;
        }
        panic!("no valgrind on this machine: run scripts/setup bench");
    }
    eprintln!("instructions of the pool, under valgrind");
    let counts: Vec<f64> = NAMES.iter().map(|name| count(name)).collect();
    if record {
        let ceilings: BTreeMap<_, _> = NAMES
            .iter()
            .zip(&counts)
            .map(|(name, count)| (name, (count * MARGIN).ceil() as u64))
            .collect();
        let text = serde_json::to_string_pretty(&ceilings).expect("JSON");
        fs::write(ceilings_path(), text + "\n").expect("the ceilings can be written");
    }
    let ceilings = fs::read_to_string(ceilings_path()).expect("recorded ceilings");
    let ceilings: BTreeMap<String, f64> = serde_json::from_str(&ceilings).expect("ceilings");
    let counts = NAMES.iter().zip(counts);
    Some(
        counts
            .map(|(&name, instructions)| Count {
                name,
                instructions,
                ceiling: *ceilings
                    .get(name)
                    .unwrap_or_else(|| panic!("no ceiling for {name}")),
            })
            .collect(),
    )
}

fn ceilings_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/budgets/ceilings.json")
}

fn has_valgrind() -> bool {
    let valgrind = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    match valgrind {
        Ok(status) => status.success(),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => panic!("valgrind: {error}"),
    }
}

/// The instructions of one operation for one session.
fn count(name: &str) -> f64 {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let out = dir.path().join("out");
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg("--toggle-collect=*instructions*measured*")
        .arg(env::current_exe().expect("this program"))
        .args(["--perform", name])
        .output()
        .expect("valgrind runs");
    assert!(
        output.status.success(),
        "{name} under valgrind:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let profile = fs::read_to_string(&out).expect("the profile");
    let total = profile
        .lines()
        .find_map(|line| line.strip_prefix("totals: "));
    let total: u64 = total
        .and_then(|total| total.trim().parse().ok())
        .expect("a total in the profile");
    assert!(total > 0, "valgrind has not met the function");
    total as f64 / CALLS as f64
}

/// What runs under valgrind: [`CALLS`] times one operation.
pub fn perform(name: &str) {
    let (operation, leased) = match name.strip_suffix(" with a lease") {
        Some(operation) => (operation, true),
        None => (name, name == "reclaim"),
    };
    let ids = |from: u64, count: u64| (from..from + count).map(session).collect::<Vec<_>>();
    let residents = ids(0, RESIDENTS);
    let guests = ids(RESIDENTS, CALLS);
    let mut pool = match operation {
        "acquire with owner and weight" | "acquire by a takeover" | "heartbeat with owner" => {
            pool_of_owned(&residents)
        }
        _ => pool_of(&residents, leased),
    };
    let (residents, guests) = (&residents[..CALLS as usize], &guests[..]);
    match operation {
        "acquire" => measured(|| {
            guests.iter().for_each(|id| acquire(&mut pool, id, leased));
        }),
        "acquire with owner and weight" => measured(|| {
            guests.iter().for_each(|id| acquire_owned(&mut pool, id));
        }),
        "acquire by a takeover" => {
            let twins: Vec<String> = residents.iter().map(|id| twin(id)).collect();
            measured(|| twins.iter().for_each(|id| take_over(&mut pool, id)));
        }
        "already active" => measured(|| {
            residents
                .iter()
                .for_each(|id| already_active(&mut pool, id));
        }),
        "denied" => measured(|| guests.iter().for_each(|id| denied(&mut pool, id))),
        "heartbeat" | "heartbeat with owner" => {
            measured(|| residents.iter().for_each(|id| heartbeat(&mut pool, id)))
        }
        "release" => measured(|| residents.iter().for_each(|id| release(&mut pool, id))),
        "reclaim" => measured(|| {
            for _ in 0..CALLS / BATCH as u64 {
                reclaim(&mut pool);
            }
        }),
        other => panic!("no operation is called {other}"),
    }
}

/// Valgrind knows it by its name.
#[inline(never)]
fn measured(body: impl FnOnce()) {
    body();
}
