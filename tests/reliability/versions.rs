//! From one server version to the next with live data: by files, and by replicas that take over.
//!
//! `SEAT_TRUST_SERVERS` names the servers, a line `name path` each as scripts/servers prints them.
//! Tests begin with the server that they run on and go up from there, from Redis to Valkey and back
//! where the one reads what the other writes. Without newer ones another server of the same binary
//! stands in for the next version.

use std::env;
use std::iter;
use std::path::{Path, PathBuf};

use fastrand::Rng;

use super::failover::{Roles, are_alike, fail_over};
use super::ledger::{Client, Load, audit, judge, pools};
use super::{figure, scale};
use crate::support::{
    Builder, Dialog, Product, Server, Waiter, default_binary, eventually, total, workload,
};

/// The servers that are listed, in the order of their versions.
fn listed() -> Vec<(Product, PathBuf)> {
    let listed = env::var("SEAT_TRUST_SERVERS").unwrap_or_default();
    let paths = listed.lines().map(|line| {
        let (_, path) = line.split_once(' ').expect("a line `name path`");
        PathBuf::from(path)
    });
    let mut servers: Vec<_> = paths.map(|path| (Product::of(&path), path)).collect();
    servers.sort();
    servers
}

/// Whether one server reads what another writes: a value that was dumped says by which version of
/// the format it was written, as files and what is sent to a replica do.
fn reads(reader: &Path, writer: &Path) -> bool {
    let plain = |binary| Server::builder().plain().binary(binary).start();
    let (writer, reader) = (plain(writer), plain(reader));
    writer.wire().call(&["SET", "text", "x"]);
    let dumped = writer.wire().value(&["DUMP", "text"]);
    let redis::Value::BulkString(dumped) = dumped else {
        panic!("no dump but {dumped:?}");
    };
    let reply = reader
        .wire()
        .call(&[&b"RESTORE"[..], b"text", b"0", &dumped]);
    let refused = reply.starts_with(b"-ERR DUMP payload version ");
    assert!(refused || reply == b"+OK\r\n", "{}", reply.escape_ascii());
    !refused
}

/// Where data can go from the server under test: the newer ones of its own kind, in order, and then
/// those of the other kind that read what it writes. Another one of the same binary if there are
/// none.
fn ways_on() -> Vec<Vec<PathBuf>> {
    let own = default_binary();
    let (mut redis, mut valkey) = (Vec::new(), Vec::new());
    for (product, path) in listed() {
        let goes_on = match (Product::of(&own), product) {
            (Product::Redis(from), Product::Redis(to))
            | (Product::Valkey(from), Product::Valkey(to)) => to > from,
            _ => reads(&path, &own),
        };
        if goes_on {
            match product {
                Product::Redis(_) => redis.push(path),
                Product::Valkey(_) => valkey.push(path),
            }
        }
    }
    let mut ways = vec![redis, valkey];
    ways.retain(|way| !way.is_empty());
    if ways.is_empty() {
        ways.push(vec![own]);
    }
    ways
}

/// All servers to which data can go from the one under test.
fn next_servers() -> Vec<PathBuf> {
    ways_on().concat()
}

#[test]
fn redis_and_valkey_read_each_others_files_as_documented() {
    let own = default_binary();
    let from = Product::of(&own);
    for (to, path) in listed() {
        let is_said = match (from, to) {
            (Product::Redis(from), Product::Valkey(_)) => from < (7, 4, 0),
            (Product::Valkey(from), Product::Redis(to)) => from < (9, 0, 0) && to >= (7, 2, 0),
            (Product::Redis(from), Product::Redis(to))
            | (Product::Valkey(from), Product::Valkey(to))
                if to > from =>
            {
                true
            }
            _ => continue,
        };
        assert_eq!(reads(&path, &own), is_said, "{to} reads {from}");
        let reads = if is_said { "reads" } else { "does not read" };
        figure(&format!("{to} {reads} what {from} writes"));
    }
    assert!(reads(&own, &own), "{from} reads its own");
}

/// A server on which pools of any shape can be made.
fn base() -> Builder {
    Server::builder().module_args("allow-effects yes")
}

/// Pools of all sorts, with leases, tickets and odd bytes.
fn fill(server: &Server, seed: u64) {
    let mut dialog = Dialog::with(server);
    workload::run(&mut dialog, &mut Rng::with_seed(seed), scale(200, 2000));
    crate::data_type::grant_shapes(&mut dialog, "shapes");
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
    dialog.expect("SEAT.RELEASE queued s1", "[1, RELEASED, 2]");
    dialog.expect(
        "SEAT.ACQUIRE queued s4 3 QUEUE 600000",
        "[0, QUEUED, 2, 3, 2]",
    );
    dialog.expect("SEAT.ACQUIRE queued s3 3", "[1, ACQUIRED, 3, 3]");
    let left_ms = dialog.number("SEAT.PTTL leased s9");
    assert!((3_000_000..=3_609_000).contains(&left_ms), "{left_ms}");
    let resize = format!("SEAT.RESIZE leased {}", used + 1);
    dialog.expect(&resize, "1");
    waiter.is_granted();
}

/// What is asked of a file is that it brings the data; a version may write it in its own way.
fn files_are_loaded_by_newer_servers(builder: impl Fn() -> Builder, what: &str) {
    let seed = workload::seed();
    let mut old = builder().start();
    fill(&old, seed);
    let digest = old.digest();
    old.shutdown();
    for binary in &next_servers() {
        let mut new = builder().binary(binary).data_of(&old).start();
        let (from, to) = (old.product(), new.product());
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
    for way in ways_on() {
        upgrade_along(&way);
    }
}

fn upgrade_along(way: &[PathBuf]) {
    let seed = workload::seed();
    let mut primary = base().tcp().start();
    fill(&primary, seed);
    let untouched = |server: &Server| {
        let mut dialog = Dialog::with(server);
        ["leased", "queued", "shapes"].map(|key| dialog.digest_of(key))
    };
    let digests = untouched(&primary);
    let steps = way.iter().map(|binary| Product::of(binary));
    let path: Vec<_> = iter::once(primary.product()).chain(steps).collect();
    let path = path.iter().map(Product::to_string).collect::<Vec<_>>();
    let path = path.join(", ");
    let context = format!("SEAT_TEST_SEED={seed}, {path}");
    let mut clients = Client::several(3, &pools(["lasting", "brief", "in-line", "owned"]), seed);
    let mut calls = 0;
    for binary in way {
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
    let primary = base().tcp().start();
    // What exists before is sent whole, the rest as it happens.
    fill(&primary, seed);
    let replicas: Vec<_> = next_servers()
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
        let (from, to) = (nodes[0].product(), replica.product());
        figure(&format!("{to} held the same as its primary {from}"));
    }
}
