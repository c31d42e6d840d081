//! A primary and two replicas, of which another becomes the primary: as planned, by Sentinel, with
//! or without loss.

use std::collections::HashMap;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use redis::{ConnectionLike, RedisError, Value, cmd};

use super::ledger::{Client, Link, Load, audit, connect, judge, pools};
use super::{figure, scale};
use crate::support::{Dialog, Server, Waiter, eventually, eventually_within, total, workload};

const CLIENTS: usize = 3;

/// Sentinels that a busy machine kept waiting for two seconds trust their clocks no more and do
/// nothing for half a minute.
const WATCH: Duration = Duration::from_secs(120);

/// A primary and its replicas, all at one state.
fn three_nodes() -> Vec<Server> {
    let primary = Server::builder().tcp().start();
    let replica = || Server::builder().replica_of(&primary).start();
    let replicas = [replica(), replica()];
    for replica in &replicas {
        primary.wait_for_offset(replica);
    }
    [primary].into_iter().chain(replicas).collect()
}

/// All but the one of this number.
fn others(nodes: &[Server], primary: usize) -> impl Iterator<Item = &Server> {
    let nodes = nodes.iter().enumerate();
    nodes
        .filter(move |&(number, _)| number != primary)
        .map(|(_, node)| node)
}

/// Whether it says that it is a primary.
fn is_primary(connection: &mut dyn ConnectionLike) -> bool {
    let role: Result<Vec<Value>, _> = cmd("ROLE").query(connection);
    role.is_ok_and(|role| role[0] == Value::BulkString(b"master".to_vec()))
}

/// What a client hears or sees when its primary goes or becomes a replica.
fn reports_a_change(error: &RedisError) -> bool {
    let words = ["READONLY", "UNBLOCKED", "LOADING", "MASTERDOWN"];
    let word = error.code().unwrap_or_default();
    let gone = error.is_io_error() || error.is_connection_dropped();
    words.contains(&word) || (gone && !error.is_timeout())
}

/// Asks all nodes which one is the primary.
#[derive(Clone)]
pub struct Roles(pub Vec<PathBuf>);

impl Link for Roles {
    fn connect(&mut self) -> Option<Box<dyn ConnectionLike + Send>> {
        let mut connections = self.0.iter().filter_map(|socket| connect(socket));
        let primary = connections
            .find_map(|mut connection| is_primary(&mut connection).then_some(connection))?;
        Some(Box::new(primary))
    }

    fn expects(&self, error: &RedisError) -> bool {
        reports_a_change(error)
    }
}

/// Whether all others have applied all that this one has written, and hold the same by their own
/// digests.
pub fn are_alike(nodes: &[Server], primary: usize) -> bool {
    let written = nodes[primary].info("replication")["master_repl_offset"].clone();
    let digest = nodes[primary].digest();
    others(nodes, primary).all(|node| {
        let replication = node.info("replication");
        let link = replication.get("master_link_status");
        link.is_some_and(|link| link == "up")
            && replication["slave_repl_offset"] == written
            && node.digest() == digest
    })
}

#[track_caller]
fn become_alike(nodes: &[Server], primary: usize, context: &str) {
    // Until the last short lease has expired, the primary still takes back seats.
    eventually(&format!("all nodes are alike: {context}"), || {
        are_alike(nodes, primary)
    });
    nothing_ignored(nodes, context);
}

#[track_caller]
fn nothing_ignored(nodes: &[Server], context: &str) {
    for node in nodes {
        assert_eq!(total(node, "seat_ignored_effects"), 0, "{context}");
    }
}

fn role(node: &Server) -> String {
    node.info("replication")["role"].clone()
}

/// Has the primary hand over to `to`, and returns once it has.
#[track_caller]
pub fn fail_over(from: &Server, to: &Server) {
    let command = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 20000", to.port());
    Dialog::with(from).expect(&command, "+OK");
    eventually("the roles are changed", || {
        from.info("replication")["master_failover_state"] == "no-failover"
            && role(from) == "slave"
            && role(to) == "master"
    });
}

#[test]
fn a_planned_failover_loses_nothing() {
    let seed = workload::seed();
    let nodes = three_nodes();
    let link = Roles(nodes.iter().map(Server::socket).collect());
    let pools = pools(["lasting", "brief", "queued", "owned"]);
    let mut clients = Client::several(CLIENTS, &pools, seed);
    let failovers = scale(2, 20);
    let mut calls = 0;
    for failover in 0..failovers {
        let (old, new) = (failover % nodes.len(), (failover + 1) % nodes.len());
        let context = format!("SEAT_TEST_SEED={seed}, failover {failover}");
        let load = Load::start(clients, &link);
        load.goes_on(200);
        fail_over(&nodes[old], &nodes[new]);
        load.goes_on(200);
        let third = &nodes[(failover + 2) % nodes.len()];
        let command = format!("REPLICAOF 127.0.0.1 {}", nodes[new].port());
        Dialog::with(third).expect(&command, "+OK");
        load.goes_on(200);
        calls += load.answered();
        clients = load.stop();
        audit(&mut nodes[new].client(), &mut clients, &context);
        become_alike(&nodes, new, &context);
    }
    let tenures = judge(&clients, &format!("SEAT_TEST_SEED={seed}"));
    figure(&format!(
        "planned failovers without loss: {failovers} ({calls} calls, {tenures} tenures)"
    ));
}

/// Asks a Sentinel for the primary, and takes an answer for settled once both replicas have it.
#[derive(Clone)]
struct Watched {
    sentinels: Vec<PathBuf>,
    nodes: Vec<(u16, PathBuf)>,
}

impl Watched {
    /// The number of the node that all Sentinels name, and none of them is about to replace.
    fn primary(&self) -> Option<usize> {
        let ask = |socket: &PathBuf| {
            let master = master_of(&mut connect(socket)?);
            (master["flags"] == "master").then(|| master["port"].clone())
        };
        let mut answers = self.sentinels.iter().map(ask);
        let port = answers.next()??;
        if answers.any(|other| other.as_ref() != Some(&port)) {
            return None;
        }
        let named = |(known, _): &(u16, _)| known.to_string() == port;
        self.nodes.iter().position(named)
    }

    #[track_caller]
    fn agree_on_another_than(&self, old: Option<usize>) -> usize {
        let mut primary = None;
        eventually_within(WATCH, "the Sentinels agree on another primary", || {
            primary = self.primary();
            primary.is_some() && primary != old
        });
        primary.expect("a primary")
    }
}

/// What a Sentinel says of the primary.
fn master_of(sentinel: &mut dyn ConnectionLike) -> HashMap<String, String> {
    let mut question = cmd("SENTINEL");
    question.arg("MASTER").arg("seats");
    question.query(sentinel).expect("a primary")
}

impl Link for Watched {
    fn connect(&mut self) -> Option<Box<dyn ConnectionLike + Send>> {
        let mut connection = connect(&self.nodes[self.primary()?].1)?;
        is_primary(&mut connection).then(|| Box::new(connection) as _)
    }

    fn confirmed(&mut self, connection: &mut dyn ConnectionLike) -> bool {
        let replicas = self.nodes.len() - 1;
        // 6.2 counts from before a grant by BLOCK unless something comes between.
        if cmd("PING").exec(connection).is_err() {
            return false;
        }
        let mut wait = cmd("WAIT");
        wait.arg(replicas).arg(300);
        wait.query::<usize>(connection)
            .is_ok_and(|reached| reached >= replicas)
    }

    fn expects(&self, error: &RedisError) -> bool {
        reports_a_change(error)
    }
}

/// Sentinels that watch these nodes and know of each other and of the replicas.
fn sentinels(nodes: &[Server], count: usize) -> Vec<Server> {
    let quorum = count / 2 + 1;
    let sentinel = || {
        let monitor = format!("127.0.0.1 {} {quorum}", nodes[0].port());
        Server::builder()
            .sentinel()
            .config(&format!("sentinel monitor seats {monitor}"))
            // Less would have a busy machine taken for a dead server.
            .config("sentinel down-after-milliseconds seats 3000")
            .config("sentinel failover-timeout seats 8000")
            .config("sentinel parallel-syncs seats 2")
            .start()
    };
    let sentinels: Vec<_> = (0..count).map(|_| sentinel()).collect();
    for sentinel in &sentinels {
        eventually("the Sentinel knows them all", || {
            let master = master_of(&mut sentinel.client());
            master["num-slaves"] == (nodes.len() - 1).to_string()
                && master["num-other-sentinels"] == (count - 1).to_string()
        });
    }
    sentinels
}

#[test]
fn what_wait_confirmed_outlives_a_promotion_by_sentinel() {
    let seed = workload::seed();
    let mut nodes = three_nodes();
    let sentinels = sentinels(&nodes, scale(1, 3));
    let link = Watched {
        sentinels: sentinels.iter().map(Server::socket).collect(),
        nodes: nodes
            .iter()
            .map(|node| (node.port(), node.socket()))
            .collect(),
    };
    let pools = pools(["lasting", "brief", "queued", "owned"]);
    let mut clients = Client::several(CLIENTS, &pools, seed);
    let rounds = scale(1, 6);
    let (mut kills, mut calls) = (0, 0);
    for round in 0..rounds {
        let context = format!("SEAT_TEST_SEED={seed}, round {round}");
        let old = link.agree_on_another_than(None);
        let load = Load::start(clients, &link);
        load.goes_on(150);
        // Sentinel's own way to replace a primary that works does not wait for the replicas, and
        // leaves it a primary for a while.
        let is_planned = round % 3 == 2;
        if is_planned {
            Dialog::with(&sentinels[0]).expect("SENTINEL FAILOVER seats", "+OK");
        } else {
            nodes[old].kill9();
            kills += 1;
        }
        let new = link.agree_on_another_than(Some(old));
        if !is_planned {
            // It comes back without data.
            nodes[old].restart();
        }
        let command = format!("REPLICAOF 127.0.0.1 {}", nodes[new].port());
        let reply = Dialog::with(&nodes[old]).ask(&command);
        assert!(reply.starts_with("+OK"), "{context}: {reply}");
        load.goes_on(150);
        calls += load.answered();
        clients = load.stop();
        // On a busy machine they may have changed the primary once more.
        let mut primary = new;
        eventually_within(WATCH, &format!("all nodes are alike: {context}"), || {
            primary = link.primary().unwrap_or(primary);
            are_alike(&nodes, primary)
        });
        nothing_ignored(&nodes, &context);
        audit(&mut nodes[primary].client(), &mut clients, &context);
    }
    let tenures = judge(&clients, &format!("SEAT_TEST_SEED={seed}"));
    figure(&format!(
        "primaries replaced by Sentinel: {rounds}, {kills} of them killed ({calls} calls confirmed by WAIT, {tenures} tenures)"
    ));
}

#[test]
fn leases_and_tickets_outlive_a_promotion() {
    let nodes = three_nodes();
    let (old, new) = (&nodes[0], &nodes[1]);
    let mut dialog = Dialog::with(old);
    dialog.expect(
        "SEAT.ACQUIRE pool a 1 EX 3600",
        "[1, ACQUIRED, 1, 1, 3600000]",
    );
    let deadline_ms = dialog.pool_info("pool", "next_deadline_ms");
    let queued = "[0, QUEUED, 1, 1, 1]";
    dialog.expect("SEAT.ACQUIRE pool ticket 1 QUEUE 600000", queued);
    let mut blocked = Waiter::of(old, "SEAT.ACQUIRE pool blocked 1 BLOCK 0");
    let mut both = Waiter::of(old, "SEAT.ACQUIRE pool both 1 QUEUE 600000 BLOCK 0");
    assert_eq!(dialog.queue("pool"), ["ticket", "blocked", "both"]);
    // This one ends about when the primary changes.
    dialog.ask("SEAT.ACQUIRE brief b 1 PX 60");
    fail_over(old, new);
    for waiter in [&mut blocked, &mut both] {
        let reply = waiter.read();
        assert!(reply.starts_with("!UNBLOCKED"), "{reply}");
    }
    let mut dialog = Dialog::with(new);
    assert_eq!(dialog.pool_info("pool", "next_deadline_ms"), deadline_ms);
    assert_eq!(dialog.queue("pool"), ["ticket", "both"]);
    eventually("the short lease's seat is taken back", || {
        dialog.ask("EXISTS brief") == "0"
    });
    let mut again = Waiter::of(new, "SEAT.ACQUIRE pool both 1 QUEUE 600000 BLOCK 0");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.expect(
        "SEAT.ACQUIRE pool ticket 1 QUEUE 600000",
        "[1, ACQUIRED, 1, 1]",
    );
    dialog.expect("SEAT.RELEASE pool ticket", "[1, RELEASED, 1]");
    again.is_granted();
    Dialog::with(&nodes[2]).expect(&format!("REPLICAOF 127.0.0.1 {}", new.port()), "+OK");
    become_alike(&nodes, 1, "after the promotion");
}

#[test]
fn wait_reports_a_grant_that_no_replica_has() {
    let mut nodes = three_nodes();
    let mut dialog = Dialog::with(&nodes[0]);
    dialog.acquire("pool", "a", 2, "{}");
    dialog.expect("WAIT 2 20000", "2");
    // Replicas that are cut off and cannot come back.
    for replica in &nodes[1..] {
        replica.signal("STOP");
    }
    dialog.expect("CLIENT KILL TYPE replica", "2");
    dialog.acquire("pool", "b", 2, "{}");
    dialog.expect("WAIT 1 100", "0");
    nodes[0].kill9();
    for replica in &nodes[1..] {
        replica.signal("CONT");
    }
    let mut dialog = Dialog::with(&nodes[1]);
    dialog.expect("REPLICAOF NO ONE", "+OK");
    // So the seat of `b` is given a second time.
    assert_eq!(dialog.sessions("pool"), ["a"]);
    dialog.expect("SEAT.ACQUIRE pool c 2", "[1, ACQUIRED, 2, 2]");
    dialog.expect("SEAT.HEARTBEAT pool b", "[0, SESSION_NOT_ACTIVE]");
}

/// Has the server take writes only with a replica, and waits until it knows of one.
#[track_caller]
fn asks_for_a_replica(primary: &Server) {
    Dialog::with(primary).expect("CONFIG SET min-replicas-to-write 1", "+OK");
    eventually("a replica follows", || {
        primary.info("replication")["min_slaves_good_slaves"] != "0"
    });
}

#[test]
fn with_min_replicas_a_primary_cut_off_soon_stops_granting() {
    let nodes = three_nodes();
    let mut dialog = Dialog::with(&nodes[0]);
    dialog.acquire("pool", "a", 9, "{}");
    dialog.expect("WAIT 2 20000", "2");
    dialog.expect("CONFIG SET min-replicas-max-lag 1", "+OK");
    asks_for_a_replica(&nodes[0]);
    // One replica goes on without the primary, the other is silent.
    nodes[2].signal("STOP");
    let mut promoted = Dialog::with(&nodes[1]);
    promoted.expect("REPLICAOF NO ONE", "+OK");
    eventually("the old primary refuses", || {
        dialog
            .ask("SEAT.ACQUIRE pool b 9")
            .starts_with("!NOREPLICAS")
    });
    for command in [
        "SEAT.ACQUIRE pool x 9",
        "SEAT.RELEASE pool a",
        "SEAT.HEARTBEAT pool a",
    ] {
        dialog.begins(command, "!NOREPLICAS");
    }
    let seen: Vec<_> = dialog.sessions("pool");
    assert!(!seen.contains(&"x".to_owned()), "{seen:?}");
    nodes[2].signal("CONT");
    promoted.expect("SEAT.ACQUIRE pool c 2", "[1, ACQUIRED, 2, 2]");
}

#[test]
fn nor_does_it_let_in_those_who_wait_there() {
    let (primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    asks_for_a_replica(&primary);
    dialog.expect("SEAT.ACQUIRE pool a 1 PX 4000", "[1, ACQUIRED, 1, 1, 4000]");
    let mut waiter = Waiter::of(&primary, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    primary.wait_for_offset(&replica);
    let mut promoted = Dialog::with(&replica);
    promoted.expect("REPLICAOF NO ONE", "+OK");
    eventually("the old primary refuses", || {
        let reply = dialog.ask("SEAT.ACQUIRE pool x 1");
        reply.starts_with("!NOREPLICAS")
    });
    // The seat that the expiry frees is the new primary's to give.
    eventually("the lease has expired", || {
        dialog.ask("SEAT.COUNT pool") == "0" && promoted.ask("EXISTS pool") == "0"
    });
    promoted.acquire("pool", "c", 1, "{}");
    // Many turns of its timer.
    thread::sleep(Duration::from_millis(200));
    assert_eq!(total(&primary, "seat_granted"), 0);
    // With a replica again, those who wait are served.
    let again = Server::builder().replica_of(&primary).start();
    waiter.is_granted();
    primary.replica_agrees(&again);
}
