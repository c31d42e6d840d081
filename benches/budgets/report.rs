//! The figures as tables, charts and verdicts.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::charts::{self, Series, figure};
use crate::expiry::Expiry;
use crate::feed::{self, Feed};
use crate::instructions::Count;
use crate::load::Load;
use crate::longest::{LOGGED_MICROS, Longest};
use crate::options::{Asked, Options};
use crate::replication::Replication;
use crate::sides::{Operation, Side};
use crate::size::{Pools, SIZES, Size};
use crate::speed::{Case, DEPTHS, Speed};

const PIPELINED: usize = DEPTHS[1];

/// What there is to report.
pub struct Measured {
    pub machine: Vec<(&'static str, String)>,
    pub sides: Vec<Side>,
    pub speed: Option<Speed>,
    pub options: Option<Options>,
    pub feed: Option<Feed>,
    pub size: Option<Size>,
    pub longest: Option<Longest>,
    pub expiry: Option<Expiry>,
    pub expiry_aof: Option<Expiry>,
    /// Of the legacy keys, and of a pool.
    pub load: Option<[Load; 2]>,
    pub replication: Option<Replication>,
    pub instructions: Option<Vec<Count>>,
}

/// A promise, and what came of it.
pub struct Budget {
    what: String,
    bound: Bound,
    measured: f64,
    unit: &'static str,
}

enum Bound {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

impl Budget {
    fn new(what: impl Into<String>, bound: Bound, measured: f64, unit: &'static str) -> Budget {
        Budget {
            what: what.into(),
            bound,
            measured,
            unit,
        }
    }

    pub fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtLeast(limit) => self.measured >= limit,
            Bound::AtMost(limit) => self.measured <= limit,
            Bound::Below(limit) => self.measured < limit,
        }
    }

    fn row(&self) -> Vec<String> {
        let (sign, limit) = match self.bound {
            Bound::AtLeast(limit) => ("≥", limit),
            Bound::AtMost(limit) => ("≤", limit),
            Bound::Below(limit) => ("<", limit),
        };
        let unit = self.unit;
        let verdict = if self.is_met() {
            "met".to_owned()
        } else {
            let by = (self.measured / limit - 1.0).abs() * 100.0;
            format!("**MISSED** by {by:.0} %")
        };
        vec![
            self.what.clone(),
            format!("{sign} {limit}{unit}"),
            format!("{:.2}{unit}", self.measured),
            verdict,
        ]
    }
}

/// The budgets that can be judged by what was measured.
pub fn budgets(measured: &Measured) -> Vec<Budget> {
    let mut budgets = Vec::new();
    if let Some(speed) = &measured.speed {
        budgets.extend(budgets_of_calls(speed));
    }
    if let Some(options) = &measured.options {
        budgets.extend(budgets_of_options(options));
    }
    if let Some(feed) = &measured.feed {
        budgets.push(Budget::new(
            "ACQUIRE in pipelines of 16 with the feed: its throughput in units of that without",
            Bound::AtLeast(0.5),
            feed.ratio(Operation::Acquire),
            "×",
        ));
    }
    if let Some(size) = &measured.size {
        budgets.extend(budgets_of_size(size));
    }
    if let Some(longest) = &measured.longest {
        budgets.push(Budget::new(
            "longest command on one session, or step of SEAT.SCAN, at 1,000,000 sessions",
            Bound::Below(1000.0),
            longest.worst(),
            " µs",
        ));
    }
    for (expiry, with) in [
        (&measured.expiry, "without AOF"),
        (&measured.expiry_aof, "AOF everysec"),
    ] {
        if let Some(expiry) = expiry {
            budgets.push(Budget::new(
                format!(
                    "longest pause when 100,000 leases expire in one instant, beyond that without an expiry, {with}"
                ),
                Bound::AtMost(2.0),
                expiry.added_pause_millis(),
                " ms",
            ));
        }
    }
    if let Some(counts) = &measured.instructions {
        let worst = counts
            .iter()
            .map(|count| count.instructions / count.ceiling);
        budgets.push(Budget::new(
            "instructions of the pool's operations, the one closest to its ceiling",
            Bound::AtMost(1.0),
            worst.fold(0.0, f64::max),
            "×",
        ));
    }
    budgets
}

fn budgets_of_calls(speed: &Speed) -> Vec<Budget> {
    let judged = |side, operation| Case {
        aof: false,
        side,
        operation,
        depth: PIPELINED,
    };
    let pipelined = |side, aof| Case {
        aof,
        side,
        operation: Operation::Acquire,
        depth: PIPELINED,
    };
    let less_than_the_script = |operation: Operation, times| {
        Budget::new(
            format!(
                "{}: how often its server time fits into the script's",
                operation.name()
            ),
            Bound::AtLeast(times),
            speed.times_less(
                judged(Side::Module, operation),
                judged(Side::Script, operation),
            ),
            "×",
        )
    };
    vec![
        less_than_the_script(Operation::Acquire, 8.0),
        less_than_the_script(Operation::Heartbeat, 12.0),
        less_than_the_script(Operation::Release, 4.0),
        less_than_the_script(Operation::Denied, 4.0),
        less_than_the_script(Operation::Active, 4.0),
        Budget::new(
            "ACQUIRE in pipelines of 16: its throughput in units of that of SET",
            Bound::AtLeast(0.85),
            speed.throughput_ratio(pipelined(Side::Module, false), pipelined(Side::Set, false)),
            "×",
        ),
        Budget::new(
            "the same with AOF everysec, in units of that of the script",
            Bound::AtLeast(5.0),
            speed.throughput_ratio(pipelined(Side::Module, true), pipelined(Side::Script, true)),
            "×",
        ),
    ]
}

fn budgets_of_options(options: &Options) -> impl Iterator<Item = Budget> {
    let judged = [Asked::Weight, Asked::OwnerMax, Asked::Takeover];
    judged.into_iter().map(|asked| {
        let what = format!(
            "ACQUIRE {}: its server time in units of a plain grant's",
            asked.name()
        );
        Budget::new(what, Bound::AtMost(1.5), options.ratio(asked), "×")
    })
}

fn budgets_of_size(size: &Size) -> Vec<Budget> {
    let memory = SIZES.map(|sessions| {
        size.bytes_each(Pools::PLAIN, sessions) / size.bytes_each(Pools::SCRIPT, sessions)
    });
    let growth = [Pools::PLAIN, Pools::LEASED].into_iter().flat_map(|pools| {
        Operation::ALL
            .into_iter()
            .map(move |operation| size.growth(pools, operation))
    });
    vec![
        Budget::new(
            "memory for a session in units of the legacy keys, the worst of all sizes",
            Bound::AtMost(0.65),
            memory.into_iter().fold(0.0, f64::max),
            "×",
        ),
        Budget::new(
            "1,000 → 1,000,000 sessions: growth of a call's cost, the worst of all operations",
            Bound::Below(2.0),
            growth.fold(0.0, f64::max),
            "×",
        ),
    ]
}

pub fn budget_table(budgets: &[Budget]) -> String {
    let rows = budgets.iter().map(Budget::row);
    table(&["what", "budget", "measured", ""], rows)
}

/// A table in Markdown that is also one in a terminal.
fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let header = header.iter().map(|name| (*name).to_owned()).collect();
    let rows: Vec<Vec<String>> = [header].into_iter().chain(rows).collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0).max(3)
    };
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let padding = width(column) - cell.chars().count();
            let space = " ".repeat(padding);
            if column == 0 {
                write!(text, "| {cell}{space} ").expect("memory");
            } else {
                write!(text, "| {space}{cell} ").expect("memory");
            }
        }
        text += "|\n";
        if number == 0 {
            for column in 0..row.len() {
                let dashes = "-".repeat(width(column) - 1);
                let mark = if column == 0 { "-" } else { ":" };
                write!(text, "| {dashes}{mark} ").expect("memory");
            }
            text += "|\n";
        }
    }
    text
}

/// The tables of what was measured, by the names that the template has for them.
pub fn tables(measured: &mut Measured) -> Vec<(&'static str, String)> {
    let mut tables = Vec::new();
    if let Some(speed) = &mut measured.speed {
        tables.push(("server-time", server_time(speed)));
        tables.push(("throughput", throughput(speed)));
        tables.push(("latency", latency(speed)));
    }
    if let Some(options) = &measured.options {
        tables.push(("options", grants_with_options(options)));
    }
    if let Some(feed) = &measured.feed {
        tables.push(("feed", throughput_with_feeds(feed)));
    }
    if let Some(size) = &measured.size {
        tables.push(("memory", memory(size)));
        tables.push(("growth", growth(size)));
    }
    if let Some(longest) = &measured.longest {
        tables.push(("longest", longest_commands(longest)));
    }
    let expiries = [("no", &measured.expiry), ("everysec", &measured.expiry_aof)];
    let expiries: Vec<_> = expiries
        .into_iter()
        .filter_map(|(aof, expiry)| {
            let expiry = expiry.as_ref()?;
            Some(vec![
                aof.to_owned(),
                format!("{:.2} ms", expiry.pause_millis()),
                format!("{:.2} ms", expiry.least_pause_millis()),
                format!("{:.2} ms", expiry.quiet_pause_millis()),
                format!("{:.0} ms", expiry.reclaimed_after_millis()),
            ])
        })
        .collect();
    if !expiries.is_empty() {
        let header = [
            "AOF",
            "longest pause",
            "in the best round",
            "without an expiry",
            "all reclaimed after",
        ];
        tables.push(("expiry", table(&header, expiries)));
    }
    if let Some([script, module]) = &measured.load {
        let row = |name: &str, load: &Load| {
            vec![
                name.to_owned(),
                format!("{:.2} s", load.seconds),
                format!("{:.0} MB", load.megabytes),
            ]
        };
        tables.push((
            "load",
            table(
                &["1,000,000 sessions", "loaded in", "file"],
                [row("legacy keys", script), row("pool", module)],
            ),
        ));
    }
    if let Some(replication) = &measured.replication {
        let mut sides = measured.sides.clone();
        sides.retain(|&side| replication.bytes(side, Operation::Acquire).is_some());
        let rows = Operation::ALL.map(|operation| {
            let bytes = sides.iter().map(|side| {
                let bytes = replication.bytes(*side, operation);
                bytes.map_or_else(String::new, |bytes| figure(bytes, 0))
            });
            [operation.name().to_owned()]
                .into_iter()
                .chain(bytes)
                .collect()
        });
        tables.push((
            "replication",
            table(&header_of("bytes for each", &sides), rows),
        ));
    }
    if let Some(counts) = &measured.instructions {
        let rows = counts.iter().map(|count| {
            vec![
                count.name.to_owned(),
                figure(count.instructions, 0),
                figure(count.ceiling, 0),
            ]
        });
        tables.push((
            "instructions",
            table(&["operation", "instructions", "ceiling"], rows),
        ));
    }
    tables
}

fn header_of<'a>(first: &'a str, sides: &[Side]) -> Vec<&'a str> {
    let names = sides.iter().map(|side| side.name());
    [first].into_iter().chain(names).collect()
}

fn server_time(speed: &Speed) -> String {
    let mut text = String::new();
    for (depth, how) in DEPTHS
        .into_iter()
        .zip(["one call at a time", "in pipelines of 16, 16 connections"])
    {
        let rows = Operation::ALL.map(|operation| {
            let case = |side| Case {
                aof: false,
                side,
                operation,
                depth,
            };
            let figures = speed.sides.iter().map(|&side| {
                if side.offers(operation) {
                    figure(speed.server_micros(case(side)), 2)
                } else {
                    String::new()
                }
            });
            let ratio = speed.times_less(case(Side::Module), case(Side::Script));
            [operation.name().to_owned()]
                .into_iter()
                .chain(figures)
                .chain([format!("{ratio:.1}×")])
                .collect()
        });
        let mut header = header_of(how, &speed.sides);
        header.push("script : module");
        text += &table(&header, rows);
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

fn throughput(speed: &Speed) -> String {
    let mut rows = Vec::new();
    for operation in Operation::ALL {
        for (depth, how) in DEPTHS.into_iter().zip(["", " × 16"]) {
            for (aof, with) in [(false, ""), (true, ", AOF")] {
                let figures = speed.sides.iter().map(|&side| {
                    if !side.offers(operation) {
                        return String::new();
                    }
                    let calls = speed.calls_per_second(Case {
                        aof,
                        side,
                        operation,
                        depth,
                    });
                    figure(calls / 1000.0, 1)
                });
                let name = format!("{}{how}{with}", operation.name());
                rows.push([name].into_iter().chain(figures).collect());
            }
        }
    }
    table(&header_of("thousand calls a second", &speed.sides), rows)
}

fn latency(speed: &mut Speed) -> String {
    let sides = speed.sides.clone();
    let mut rows = Vec::new();
    for operation in Operation::ALL {
        for (aof, with) in [(false, ""), (true, ", AOF")] {
            let figures: Vec<String> = sides
                .iter()
                .map(|&side| {
                    if !side.offers(operation) {
                        return String::new();
                    }
                    let case = Case {
                        aof,
                        side,
                        operation,
                        depth: 1,
                    };
                    let [half, most, nearly_all] =
                        [0.5, 0.99, 0.999].map(|part| speed.latency_micros(case, part));
                    format!("{half:.0} / {most:.0} / {nearly_all:.0}")
                })
                .collect();
            let name = format!("{}{with}", operation.name());
            rows.push([name].into_iter().chain(figures).collect());
        }
    }
    table(&header_of("µs, p50 / p99 / p99.9", &sides), rows)
}

fn grants_with_options(options: &Options) -> String {
    let rows = Asked::ALL.map(|asked| {
        vec![
            asked.name().to_owned(),
            figure(options.server_micros(asked), 2),
            format!("{:.2}×", options.ratio(asked)),
        ]
    });
    table(
        &[
            "in pipelines of 16, 16 connections",
            "µs",
            "in units of a plain grant",
        ],
        rows,
    )
}

fn throughput_with_feeds(feed: &Feed) -> String {
    let rows = feed::WRITTEN.map(|operation| {
        let [without, with] = feed.calls_per_second(operation);
        vec![
            operation.name().to_owned(),
            figure(without, 0),
            figure(with, 0),
            format!("{:.2}×", feed.ratio(operation)),
        ]
    });
    table(
        &[
            "calls a second, × 16",
            "without",
            "with the feeds",
            "in units of that without",
        ],
        rows,
    )
}

fn memory(size: &Size) -> String {
    let rows = SIZES.map(|sessions| {
        let bytes = Pools::ALL.map(|pools| size.bytes_each(pools, sessions));
        let figures = bytes.map(|bytes| figure(bytes, 0));
        [figure(sessions as f64, 0)]
            .into_iter()
            .chain(figures)
            .chain([format!("{:.2}×", bytes[1] / bytes[0])])
            .collect()
    });
    let names = Pools::ALL.map(Pools::name);
    table(
        &[
            "bytes for a session, with so many",
            names[0],
            names[1],
            names[2],
            "module : script",
        ],
        rows,
    )
}

fn growth(size: &Size) -> String {
    let mut rows = Vec::new();
    for operation in Operation::ALL {
        for pools in Pools::ALL {
            let figures = SIZES.map(|sessions| figure(size.micros(pools, operation, sessions), 2));
            let name = format!("{}, {}", operation.name(), pools.name());
            let growth = format!("{:.2}×", size.growth(pools, operation));
            rows.push([name].into_iter().chain(figures).chain([growth]).collect());
        }
    }
    let sizes = SIZES.map(|sessions| figure(sessions as f64, 0));
    let mut header = vec!["µs of the server, by sessions in the pool"];
    header.extend(sizes.iter().map(String::as_str));
    header.push("growth");
    table(&header, rows)
}

fn longest_commands(longest: &Longest) -> String {
    let shown = |micros: f64| {
        if micros <= LOGGED_MICROS {
            format!("at most {LOGGED_MICROS}")
        } else {
            figure(micros, 0)
        }
    };
    let rows = longest.kinds.iter().map(|kind| {
        vec![
            kind.name.to_owned(),
            figure(kind.count as f64, 0),
            shown(kind.longest_micros()),
            shown(kind.longest_of_a_pass()),
        ]
    });
    let header = [
        "command",
        "calls",
        "µs of the longest call",
        "with interruptions",
    ];
    table(&header, rows)
}

/// What `benches/pool.rs` has measured, as criterion left it.
fn pool_times(target: &Path) -> String {
    let groups = [
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
        "reclaim 32",
    ];
    let sizes = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
    let rows = groups.map(|group| {
        let nanos = sizes.map(|size| {
            let path = target.join(format!("criterion/{group}/{size}/new/estimates.json"));
            // A batch is not taken back from a pool that has less.
            if group == "reclaim 32" && size < 32 {
                return String::new();
            }
            let text = fs::read_to_string(&path);
            let text = text
                .unwrap_or_else(|error| panic!("{}: {error}; run `make bench`", path.display()));
            let estimates: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let nanos = estimates["median"]["point_estimate"].as_f64();
            figure(nanos.expect("a median"), 0)
        });
        [group.to_owned()].into_iter().chain(nanos).collect()
    });
    let sizes = sizes.map(|size| figure(f64::from(size), 0));
    let mut header = vec!["ns, by sessions in the pool"];
    header.extend(sizes.iter().map(String::as_str));
    table(&header, rows)
}

/// Writes docs/benchmarks.md, its charts and the README's figures.
pub fn publish(measured: &mut Measured, budgets: &[Budget]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut parts = tables(measured);
    parts.push(("pool", pool_times(&target)));
    parts.push(("budgets", budget_table(budgets)));
    let machine = measured.machine.iter();
    let machine = machine.map(|(name, value)| vec![(*name).to_owned(), value.clone()]);
    parts.push(("machine", table(&["", ""], machine)));
    if measured.instructions.is_none() {
        let note = "Not counted: there is no valgrind for this machine.\n";
        parts.push(("instructions", note.to_owned()));
    }

    let mut page = include_str!("benchmarks.md.in").to_owned();
    for (name, text) in &parts {
        let place = format!("{{{{{name}}}}}\n");
        assert!(
            page.contains(&place),
            "the template has no place for {name}"
        );
        page = page.replace(&place, text);
    }
    assert!(!page.contains("{{"), "the template asks for more:\n{page}");
    write(&root.join("docs/benchmarks.md"), &page);

    let folder = root.join("docs/benchmarks");
    fs::create_dir_all(&folder).expect("a folder for the charts");
    draw(measured, &folder).expect("the charts can be drawn");

    let readme = root.join("README.md");
    let text = fs::read_to_string(&readme).expect("the README");
    let (start, end) = (
        "<!-- figures of make bench -->\n",
        "<!-- end of figures -->\n",
    );
    let (before, rest) = text
        .split_once(start)
        .expect("the README has a place for figures");
    let (_, after) = rest.split_once(end).expect("the place ends");
    let headlines = headlines(measured, budgets);
    write(&readme, &format!("{before}{start}{headlines}{end}{after}"));
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// The README's figures.
fn headlines(measured: &Measured, budgets: &[Budget]) -> String {
    let (Some(speed), Some(size), Some(longest)) =
        (&measured.speed, &measured.size, &measured.longest)
    else {
        unreachable!("only a full run is published")
    };
    let less = |operation| {
        let case = |side| Case {
            aof: false,
            side,
            operation,
            depth: PIPELINED,
        };
        speed.times_less(case(Side::Module), case(Side::Script))
    };
    let pipelined = |aof, other| {
        let case = |side| Case {
            aof,
            side,
            operation: Operation::Acquire,
            depth: PIPELINED,
        };
        speed.throughput_ratio(case(Side::Module), case(other))
    };
    let growth = [Pools::PLAIN, Pools::LEASED].into_iter().flat_map(|pools| {
        Operation::ALL
            .into_iter()
            .map(move |operation| size.growth(pools, operation))
    });
    let named = |name: &str| {
        let found = measured.machine.iter().find(|(other, _)| *other == name);
        found.map_or("", |(_, value)| value)
    };
    format!(
        "{server} on {processor}:\n\n\
         - **Server time:** {acquire:.1} times less than the script for an `ACQUIRE`,\n  \
           {heartbeat:.1} times less for a `HEARTBEAT`, {release:.1} times less for a `RELEASE`.\n\
         - **Throughput** of `ACQUIRE` in pipelines of 16: {script:.1} times that of the script,\n  \
           {set:.2} times that of a plain `SET` of the same payload; with an AOF (`everysec`)\n  \
           {aof:.1} times that of the script.\n\
         - **Memory:** {bytes} bytes for a session in a pool of 100,000, against {script_bytes} in the\n  \
           legacy keys.\n\
         - **Size:** at 1,000,000 sessions a call costs {growth:.1} times what it costs at 1,000, at\n  \
           most; the longest command on one session took {longest:.2} ms.\n\n\
         ![Server time of each call: module, scripts, functions](docs/benchmarks/server-time.svg)\n\n\
         ![Server time by the size of the pool](docs/benchmarks/growth.svg)\n\n\
         All figures, how they were taken, and the budgets they are held to:\n\
         [docs/benchmarks.md](docs/benchmarks.md). Of the {all} budgets {missed} are missed here; the\n\
         page says by how much and why.\n",
        all = budgets.len(),
        missed = budgets.iter().filter(|budget| !budget.is_met()).count(),
        server = named("server"),
        processor = named("processor"),
        acquire = less(Operation::Acquire),
        heartbeat = less(Operation::Heartbeat),
        release = less(Operation::Release),
        script = pipelined(false, Side::Script),
        set = pipelined(false, Side::Set),
        aof = pipelined(true, Side::Script),
        bytes = figure(size.bytes_each(Pools::PLAIN, 100_000), 0),
        script_bytes = figure(size.bytes_each(Pools::SCRIPT, 100_000), 0),
        growth = growth.fold(0.0, f64::max),
        longest = longest.worst() / 1000.0,
    )
}

fn draw(measured: &Measured, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (Some(speed), Some(size)) = (&measured.speed, &measured.size) else {
        unreachable!("only a full run is published")
    };
    let scripts: Vec<Side> = speed
        .sides
        .iter()
        .copied()
        .filter(|side| side.offers(Operation::Release))
        .collect();
    let operations = Operation::ALL.map(Operation::name);
    let times = |depth| -> Vec<Series<'_>> {
        let series = scripts.iter().map(|&side| Series {
            name: side.name(),
            values: Operation::ALL
                .map(|operation| {
                    Some(speed.server_micros(Case {
                        aof: false,
                        side,
                        operation,
                        depth,
                    }))
                })
                .to_vec(),
        });
        series.collect()
    };
    charts::bars(
        &folder.join("server-time.svg"),
        "server time of a call, µs (less is better)",
        &operations,
        &times(PIPELINED),
        1,
    )?;
    let series: Vec<Series<'_>> = speed
        .sides
        .iter()
        .map(|&side| Series {
            name: side.name(),
            values: [false, true]
                .map(|aof| {
                    Some(
                        speed.calls_per_second(Case {
                            aof,
                            side,
                            operation: Operation::Acquire,
                            depth: PIPELINED,
                        }) / 1000.0,
                    )
                })
                .to_vec(),
        })
        .collect();
    charts::bars(
        &folder.join("throughput.svg"),
        "ACQUIRE in pipelines of 16, thousand calls a second (more is better)",
        &["no AOF", "AOF everysec"],
        &series,
        0,
    )?;
    let sizes = SIZES.map(|sessions| format!("{} sessions", figure(sessions as f64, 0)));
    let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
    let series = Pools::ALL.map(|pools| Series {
        name: pools.name(),
        values: SIZES
            .map(|sessions| Some(size.bytes_each(pools, sessions)))
            .to_vec(),
    });
    charts::bars(
        &folder.join("memory.svg"),
        "memory for a session, bytes (less is better)",
        &sizes,
        &series,
        0,
    )?;
    let mut lines = Vec::new();
    for operation in [Operation::Acquire, Operation::Heartbeat] {
        for pools in [Pools::PLAIN, Pools::LEASED, Pools::SCRIPT] {
            lines.push((
                format!("{}, {}", operation.name(), pools.name()),
                operation,
                pools,
            ));
        }
    }
    let series: Vec<Series<'_>> = lines
        .iter()
        .map(|(name, operation, pools)| Series {
            name,
            values: SIZES
                .map(|sessions| Some(size.micros(*pools, *operation, sessions)))
                .to_vec(),
        })
        .collect();
    charts::lines(
        &folder.join("growth.svg"),
        "server time of a call, µs, by the size of the pool (less is better)",
        &SIZES,
        &series,
    )
}
