//! What the module costs against what it replaces, and whether that keeps to its budgets.
//!
//! `make bench` runs all of it. A full run writes docs/benchmarks.md, the charts next to it and the
//! README's figures; it fails if a budget is missed. `--quick` and `--only` are for whoever works
//! on one of the figures; they write nothing.

#[path = "../../tests/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the benchmarks need the servers only"
)]
mod support;

mod charts;
mod client;
mod cores;
mod expiry;
mod feed;
mod instructions;
mod load;
mod longest;
mod machine;
mod options;
mod pool_work;
mod replication;
mod report;
mod scale;
mod sides;
mod size;
mod speed;
mod statistics;

use std::process::ExitCode;
use std::time::Instant;

use clap::{Arg, ArgAction, ArgMatches, Command};

use expiry::Expiry;
use feed::Feed;
use load::Load;
use longest::Longest;
use options::Options;
use replication::Replication;
use report::Measured;
use scale::{FULL, QUICK};
use sides::{Host, Side};
use size::{Pools, Size};
use speed::Speed;

const SECTIONS: [&str; 8] = [
    "calls",
    "options",
    "feed",
    "size",
    "longest",
    "expiry",
    "replication",
    "instructions",
];

fn arguments() -> ArgMatches {
    let flag = |name, help| {
        Arg::new(name)
            .long(name)
            .help(help)
            .action(ArgAction::SetTrue)
    };
    Command::new("budgets")
        .about("Measures the module against its budgets")
        .arg(flag("quick", "Fewer rounds, for a first look"))
        .arg(
            Arg::new("only")
                .long("only")
                .help("Measures this alone; may be given several times")
                .value_parser(SECTIONS)
                .action(ArgAction::Append),
        )
        .arg(flag(
            "record",
            "Takes the instruction counts of this run, and five per cent more, as ceilings",
        ))
        // What cargo gives to each benchmark.
        .arg(flag("bench", "").hide(true))
        .arg(Arg::new("perform").long("perform").hide(true))
        .get_matches()
}

fn main() -> ExitCode {
    let arguments = arguments();
    if let Some(operation) = arguments.get_one::<String>("perform") {
        instructions::perform(operation);
        return ExitCode::SUCCESS;
    }
    let start = Instant::now();
    let scale = if arguments.get_flag("quick") {
        QUICK
    } else {
        FULL
    };
    let only: Option<Vec<&String>> = arguments.get_many("only").map(Iterator::collect);
    let wanted = |section: &str| {
        let only = only.as_ref();
        only.is_none_or(|only| only.iter().any(|name| *name == section))
    };

    let counts =
        wanted("instructions").then(|| instructions::measure(arguments.get_flag("record")));
    let host = Host::of(Side::Module);
    let machine = machine::describe(&host);
    let sides = Side::all(host.server.version());
    drop(host);
    cores::pin_client();
    let speed = wanted("calls").then(|| Speed::measure(&scale, &sides));
    let mut size = wanted("size").then(|| Size::measure(&scale));
    let load = size.as_mut().map(|size| {
        [Pools::SCRIPT, Pools::PLAIN].map(|pools| Load::measure(size.take_largest(pools)))
    });
    let mut measured = Measured {
        machine,
        speed,
        options: wanted("options").then(|| Options::measure(&scale)),
        feed: wanted("feed").then(|| Feed::measure(&scale)),
        size,
        load,
        longest: wanted("longest").then(|| Longest::measure(&scale)),
        expiry: wanted("expiry").then(|| Expiry::measure(&scale, false)),
        expiry_aof: wanted("expiry").then(|| Expiry::measure(&scale, true)),
        replication: wanted("replication").then(|| Replication::measure(&sides)),
        instructions: counts.flatten(),
        sides,
    };

    for (name, value) in &measured.machine {
        println!("{name}: {value}");
    }
    for (_, table) in report::tables(&mut measured) {
        println!("\n{table}");
    }
    let budgets = report::budgets(&measured);
    if only.is_none() && !arguments.get_flag("quick") {
        report::publish(&mut measured, &budgets);
    }
    println!("{}", report::budget_table(&budgets));
    println!("measured in {} s", start.elapsed().as_secs());
    if budgets.iter().all(report::Budget::is_met) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
