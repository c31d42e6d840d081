//! The machine that the figures are of.

use std::fs;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use crate::cores::are_apart;
use crate::sides::Host;

/// What the figures depend on, as names and values.
pub fn describe(host: &Host) -> Vec<(&'static str, String)> {
    let (major, minor, patch) = host.server.version();
    let allocator = &host.server.info("memory")["mem_allocator"];
    let pinned = if are_apart() {
        "pinned to one core each"
    } else {
        "not pinned"
    };
    vec![
        (
            "processor",
            format!("{}, {} cores", processor(), core_count()),
        ),
        ("system", stated_by("uname", &["-srm"])),
        (
            "server",
            format!("Redis {major}.{minor}.{patch}, {allocator}"),
        ),
        (
            "a fetch from memory",
            format!(
                "{:.0} ns, in a walk at random through {WALKED_MB} MB",
                fetch_nanos()
            ),
        ),
        ("compiler", stated_by("rustc", &["--version"])),
        ("commit", commit()),
        ("date", stated_by("date", &["-u", "+%F"])),
        ("other load at the start", load()),
        ("server and client", format!("unix socket, {pinned}")),
    ]
}

/// As much as a pool of a million sessions takes, about.
const WALKED_MB: usize = 256;

/// How long the processor waits for what no cache holds and nothing foresees, each time for the
/// place of the next.
fn fetch_nanos() -> f64 {
    #[derive(Clone)]
    #[repr(align(64))]
    struct Line {
        next: usize,
    }

    let mut order: Vec<usize> = (0..WALKED_MB * (1 << 20) / size_of::<Line>()).collect();
    fastrand::shuffle(&mut order);
    let mut lines = vec![Line { next: 0 }; order.len()];
    for (&from, &to) in order.iter().zip(order.iter().cycle().skip(1)) {
        lines[from].next = to;
    }
    let start = Instant::now();
    let last = (0..order.len()).fold(0, |at, _| lines[at].next);
    let elapsed = start.elapsed();
    black_box(last);
    elapsed.as_nanos() as f64 / order.len() as f64
}

/// What a program prints.
fn stated_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.ok().filter(|output| output.status.success());
    output.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

fn processor() -> String {
    let linux = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    linux.unwrap_or_else(|| stated_by("sysctl", &["-n", "machdep.cpu.brand_string"]))
}

fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn commit() -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    let commit = stated_by("git", &["-C", root, "rev-parse", "--short=12", "HEAD"]);
    // What a run itself writes does not count.
    let sources = [
        "src",
        "pool",
        "Cargo.toml",
        "Cargo.lock",
        "benches",
        "redis.conf",
    ];
    let arguments = [&["-C", root, "status", "--porcelain", "--"], &sources[..]].concat();
    match &*stated_by("git", &arguments) {
        "" | "unknown" => commit,
        _ => format!("{commit} with changes"),
    }
}

/// Processes that wanted a core in the last minute.
fn load() -> String {
    let linux = fs::read_to_string("/proc/loadavg").ok();
    let minute = linux.and_then(|text| Some(text.split(' ').next()?.to_owned()));
    minute.unwrap_or_else(|| "unknown".to_owned())
}
