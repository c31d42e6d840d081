//! From one server version to the next with live data: by files, and by replicas that take over.
//!
//! `SEAT_TRUST_SERVERS` names the versions, a line `name path` each as scripts/servers prints them. Tests begin with the server that
//! they run on and go up from there. Without newer ones another server of the same binary stands in for the next version.

use std::env;
use std::path::PathBuf;

use fastrand::Rng;

use super::failover::{Roles, are_alike, fail_over};
use super::ledger::{Client, Load, audit, judge, pools};
use super::{figure, scale};
use crate::dialog::{Dialog, total};
use crate::support::{Builder, Server, Version, default_binary, eventually, version_of};
use crate::waiters::Waiter;
use crate::workload;

/// The binaries to go through, the one under test first, then newer ones in order; two at least.
fn binaries() -> Vec<PathBuf> {
    let own = default_binary();
    let own_version = version_of(&own);
    let listed = env::var("SEAT_TRUST_SERVERS").unwrap_or_default();
    let paths = listed.lines().map(|line| {
        let (_, path) = line.split_once(' ').expect("a line `name path`");
        PathBuf::from(path)
    });
    let mut newer: Vec<(Version, PathBuf)> = paths
        .map(|path| (version_of(&path), path))
        .filter(|&(version, _)| version > own_version)
        .collect();
    newer.sort();
    let mut binaries = vec![own.clone()];
    binaries.extend(newer.into_iter().map(|(_, path)| path));
    if binaries.len() == 1 {
        binaries.push(own);
    }
    binaries
}

/// A server on which pools of any shape can be made.
fn base() -> Builder {
    Server::builder().module_args("allow-effects yes")
}

fn named((major, minor, patch): Version) -> String {
    format!("{major}.{minor}.{patch}")
}

/// Pools of all sorts, with leases, tickets and odd bytes.
fn fill(server: &Server, seed: u64) {
    let mut dialog = Dialog::with(server);
    workload::run(&mut dialog, &mut Rng::with_seed(seed), scale(200, 2000));
    crate::value::grant_shapes(&mut dialog, "shapes");
    dialog.expect("SEAT.RESIZE shapes 0", "0");
    for n in 0..scale(50, 1000) {
        dialog.ask(&format!("SEAT.ACQUIRE leased s{n} 1000 EX {}", 3600 + n));
        let join = format!(
            "SEAT.ACQUIRE queued s{n} 3 PX 7200000 QUEUE {}",
            600_000 + n
        );
        dialog.ask(&join);
    }
}

/// The queue, the leases and the counts go on from where they were.
#[track_caller]
fn goes_on(server: &Server) {
    let mut dialog = Dialog::with(server);
    dialog.expect("SEAT.COUNT queued", "3");
    dialog.expect("SEAT.POSITION queued s3", "1");
    let used = dialog.number("SEAT.COUNT leased");
    let wait = format!("SEAT.ACQUIRE leased w {used} BLOCK 0");
    let mut waiter = Waiter::of(server, &wait);
    dialog.expect("SEAT.RELEASE queued s1", r#"[1, "RELEASED", 2]"#);
    dialog.expect(
        "SEAT.ACQUIRE queued s4 3 QUEUE 600000",
        r#"[0, "QUEUED", 2, 3, 2]"#,
    );
    dialog.expect("SEAT.ACQUIRE queued s3 3", r#"[1, "ACQUIRED", 3, 3]"#);
    let left_ms = dialog.number("SEAT.PTTL leased s9");
    assert!((3_000_000..=3_609_000).contains(&left_ms), "{left_ms}");
    let resize = format!("SEAT.RESIZE leased {}", used + 1);
    dialog.expect(&resize, "1");
    waiter.is_granted();
}

/// What is asked of a file is that it brings the data; a version may write it in its own way.
fn files_are_loaded_by_newer_servers(builder: impl Fn() -> Builder, what: &str) {
    let seed = workload::seed();
    let binaries = binaries();
    let mut old = builder().binary(&binaries[0]).start();
    fill(&old, seed);
    let digest = old.digest();
    old.shutdown();
    for binary in &binaries[1..] {
        let mut new = builder().binary(binary).data_of(&old).start();
        let (from, to) = (named(old.version()), named(new.version()));
        let context = format!("SEAT_TEST_SEED={seed}, {what} of {from} on {to}");
        assert_eq!(new.digest(), digest, "{context}");
        assert_eq!(total(&new, "seat_ignored_effects"), 0, "{context}");
        // And again from its own file.
        new.restart();
        assert_eq!(new.digest(), digest, "{context}, restarted");
        goes_on(&new);
        figure(&format!("{what} of {from} loaded by {to}"));
    }
}

#[test]
fn an_rdb_file_is_loaded_by_each_newer_server() {
    files_are_loaded_by_newer_servers(|| base().config("save 3600 1"), "RDB");
}

#[test]
fn a_log_is_loaded_by_each_newer_server() {
    files_are_loaded_by_newer_servers(|| base().recording(), "AOF");
}

#[test]
fn a_log_with_an_rdb_at_its_head_is_loaded_by_each_newer_server() {
    let preamble = || {
        let builder = base().recording();
        builder.config("aof-use-rdb-preamble yes")
    };
    files_are_loaded_by_newer_servers(preamble, "AOF with an RDB");
}

#[test]
fn a_rolling_upgrade_under_load_loses_nothing() {
    let seed = workload::seed();
    let binaries = binaries();
    let mut primary = base().binary(&binaries[0]).tcp().start();
    fill(&primary, seed);
    let untouched = |server: &Server| {
        let mut dialog = Dialog::with(server);
        ["leased", "queued", "shapes"].map(|key| dialog.digest_of(key))
    };
    let digests = untouched(&primary);
    let path = binaries.iter().map(|binary| named(version_of(binary)));
    let path = path.collect::<Vec<_>>().join(", ");
    let context = format!("SEAT_TEST_SEED={seed}, {path}");
    let mut clients = Client::several(3, &pools(["lasting", "brief", "in-line"]), seed);
    let mut calls = 0;
    for binary in &binaries[1..] {
        let replica = Server::builder()
            .binary(binary)
            .replica_of(&primary)
            .start();
        let nodes = [primary, replica];
        let link = Roles(nodes.iter().map(Server::socket).collect());
        let load = Load::start(clients, &link);
        load.goes_on(scale(200, 1000));
        nodes[0].wait_for_offset(&nodes[1]);
        fail_over(&nodes[0], &nodes[1]);
        load.goes_on(scale(200, 1000));
        calls += load.answered();
        clients = load.stop();
        audit(&mut nodes[1].client(), &mut clients, &context);
        assert_eq!(untouched(&nodes[1]), digests, "{context}");
        // Before the next step the old server is gone.
        [_, primary] = nodes;
    }
    goes_on(&primary);
    let tenures = judge(&clients, &context);
    figure(&format!(
        "rolling upgrade without loss: {path} ({calls} calls, {tenures} tenures)"
    ));
}

#[test]
fn a_replica_of_each_newer_server_holds_what_its_primary_holds() {
    let seed = workload::seed();
    let binaries = binaries();
    let primary = base().binary(&binaries[0]).tcp().start();
    // What exists before is sent whole, the rest as it happens.
    fill(&primary, seed);
    let replicas: Vec<_> = binaries[1..]
        .iter()
        .map(|binary| {
            let builder = Server::builder().binary(binary);
            builder.replica_of(&primary).start()
        })
        .collect();
    let nodes: Vec<_> = [primary].into_iter().chain(replicas).collect();
    let mut dialog = Dialog::with(&nodes[0]);
    let mut random = Rng::with_seed(seed + 1);
    for round in 0..scale(2, 10) {
        workload::run(&mut dialog, &mut random, 200);
        let context = format!("SEAT_TEST_SEED={seed}, round {round}");
        eventually(&format!("all are alike: {context}"), || {
            are_alike(&nodes, 0)
        });
        for node in &nodes {
            assert_eq!(total(node, "seat_ignored_effects"), 0, "{context}");
        }
    }
    for replica in &nodes[1..] {
        let (from, to) = (named(nodes[0].version()), named(replica.version()));
        figure(&format!("{to} held the same as its primary {from}"));
    }
}
