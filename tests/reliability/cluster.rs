//! Three masters, and pools that move from one to another while they are in use.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use redis::cluster::{ClusterClient, ClusterClientBuilder, ClusterConnection};
use redis::{ConnectionLike, RedisError, Value, cmd};

use super::ledger::{Client, Link, Load, audit, judge, pools};
use super::{figure, scale};
use crate::blocked_clients::python::python;
use crate::support::cluster::{self, SHARES, address, all_agree, reshard, three_masters};
use crate::support::{Dialog, Server, total, total_becomes, workload};

const CLIENTS: usize = 3;

/// How many of a master's first slots the pools of these tests are in.
const WIDTH: u32 = 48;

/// The same in one step, as Valkey from 9 on can.
#[track_caller]
fn reshard_atomically(from: &Server, to: &Server, slots: u32) {
    let own = Dialog::with(from).ask("CLUSTER NODES");
    let mut left = slots;
    let mut ranges = Vec::new();
    for (first, last) in cluster::slots_of(&own) {
        let count = left.min(last - first + 1);
        if count > 0 {
            ranges.push((first, first + count - 1));
        }
        left -= count;
    }
    cluster::migrate_atomically(from, to, &ranges);
}

/// Names without a hash tag, of which as many as asked for are in the first slots of each master.
fn names(node: &Server, each: usize) -> Vec<String> {
    let mut dialog = Dialog::with(node);
    let mut found = vec![Vec::new(); SHARES.len() - 1];
    for n in 0.. {
        let name = format!("license:{n}");
        let slot = dialog.number(&format!("CLUSTER KEYSLOT {name}")) as u32;
        let master = SHARES.partition_point(|&first| first <= slot) - 1;
        if slot < SHARES[master] + WIDTH && found[master].len() < each {
            found[master].push(name);
        }
        if found.iter().all(|names| names.len() == each) {
            break;
        }
    }
    found.concat()
}

fn client_of(nodes: &[Server]) -> ClusterClient {
    let urls = nodes
        .iter()
        .map(|node| format!("redis://{}", address(node)));
    ClusterClientBuilder::new(urls)
        .connection_timeout(Duration::from_secs(10))
        .response_timeout(Duration::from_secs(60))
        .build()
        .expect("a cluster client")
}

fn connected(client: &ClusterClient) -> ClusterConnection {
    client.get_connection().expect("a connection to a cluster")
}

/// redis-rs, which follows redirections by itself.
#[derive(Clone)]
struct Routed(ClusterClient);

impl Link for Routed {
    fn connect(&mut self) -> Option<Box<dyn ConnectionLike + Send>> {
        Some(Box::new(connected(&self.0)))
    }

    fn expects(&self, _: &RedisError) -> bool {
        false
    }
}

/// How many nodes have something in the slot of this name.
fn homes(nodes: &[Server], name: &str) -> usize {
    let has_it = |node: &&Server| {
        let mut dialog = Dialog::with(node);
        let slot = dialog.number(&format!("CLUSTER KEYSLOT {name}"));
        dialog.number(&format!("CLUSTER COUNTKEYSINSLOT {slot}")) > 0
    };
    nodes.iter().filter(has_it).count()
}

#[test]
fn pools_move_while_they_are_in_use_and_nothing_is_lost() {
    nothing_is_lost(&three_masters(), reshard);
}

#[test]
fn pools_move_atomically_in_use_and_nothing_is_lost() {
    let nodes = three_masters();
    if cluster::moves_slots_atomically(&nodes[0]) {
        nothing_is_lost(&nodes, reshard_atomically);
    }
}

fn nothing_is_lost(nodes: &[Server], reshard: fn(&Server, &Server, u32)) {
    let seed = workload::seed();
    let names = names(&nodes[0], 3);
    let link = Routed(client_of(nodes));
    let mut clients = Client::several(CLIENTS, &pools(names.clone()), seed);
    let moves = scale(1, 15);
    let (mut calls, mut slots) = (0, 0);
    for step in 0..moves {
        let context = format!("SEAT_TEST_SEED={seed}, move {step}");
        let (from, to) = (&nodes[step % 3], &nodes[(step + 1) % 3]);
        let load = Load::start(clients, &link);
        load.goes_on(300);
        // By the third move the pools of all masters have moved.
        let width = WIDTH * (step as u32 % 3 + 1);
        reshard(from, to, width);
        slots += width;
        load.goes_on(300);
        calls += load.answered();
        clients = load.stop();
        all_agree(nodes);
        audit(&mut connected(&link.0), &mut clients, &context);
        for name in &names {
            assert!(homes(nodes, name) <= 1, "{context}: {name}");
        }
        for node in nodes {
            assert_eq!(total(node, "seat_ignored_effects"), 0, "{context}");
        }
    }
    let tenures = judge(&clients, &format!("SEAT_TEST_SEED={seed}"));
    figure(&format!(
        "slots moved under load: {slots} ({calls} calls, {tenures} tenures)"
    ));
}

#[test]
fn blocked_clients_follow_their_pool_to_another_node() {
    blocked_clients_follow(&three_masters(), reshard);
}

#[test]
fn blocked_clients_follow_a_pool_that_moves_atomically() {
    let nodes = three_masters();
    if cluster::moves_slots_atomically(&nodes[0]) {
        blocked_clients_follow(&nodes, reshard_atomically);
    }
}

fn blocked_clients_follow(nodes: &[Server], reshard: fn(&Server, &Server, u32)) {
    let (here, there) = (&nodes[0], &nodes[1]);
    let name = names(here, 1).swap_remove(0);
    let mut dialog = Dialog::with(here);
    dialog.acquire(&name, "a", 1, "{}");
    let waits = |dialog: &mut Dialog, sessions: &[&str]| dialog.queue_becomes(&name, sessions);

    let mut script = Command::new(python());
    let script = script
        .args(["-W", "error", "-c", include_str!("cluster.py")])
        .env("REDIS_URL", format!("redis://{}", address(&nodes[2])))
        .env("POOL", &name)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error} (run `make setup`)", python().display()));
    waits(&mut dialog, &["python"]);
    let (mut connection, pool) = (connected(&client_of(nodes)), name.clone());
    let rust = thread::spawn(move || {
        let mut acquire = cmd("SEAT.ACQUIRE");
        acquire.arg(pool).arg("rust").arg(1).arg("BLOCK").arg(0);
        acquire.query::<Vec<Value>>(&mut connection)
    });
    waits(&mut dialog, &["python", "rust"]);

    reshard(here, there, WIDTH);
    let mut dialog = Dialog::with(there);
    assert_eq!(dialog.sessions(&name), ["a"]);
    waits(&mut dialog, &["python", "rust"]);
    assert_eq!(total(here, "seat_blocked_clients"), 0);
    total_becomes(there, "seat_blocked_clients", 2);
    dialog.expect(&format!("SEAT.RELEASE {name} a"), "[1, RELEASED, 1]");
    let output = script.wait_with_output().expect("its output");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        printed,
        "[1, 'ACQUIRED', 1, 1]\n[1, 'RELEASED', 1]\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let granted = rust.join().expect("no panic").expect("a grant");
    assert_eq!(granted[1], Value::BulkString(b"ACQUIRED".to_vec()));
    assert_eq!(dialog.sessions(&name), ["rust"]);
    assert_eq!(total(here, "seat_granted"), 0);
}
