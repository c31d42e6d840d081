//! Nodes of clusters: one alone, two between which slots move, and three that share all slots.

use std::ops::Range;
use std::process::{Command, Output, Stdio};

use super::{Builder, Dialog, Server, eventually};

const SLOTS: u32 = 16384;

/// The first slot of each master, and the end.
pub const SHARES: [u32; 4] = [0, 5461, 10922, SLOTS];

/// A node of a cluster, which has no slots yet.
pub fn node() -> Builder {
    Server::builder()
        .tcp()
        .config("cluster-enabled yes")
        .config("cluster-require-full-coverage no")
}

/// The node's own id.
pub fn id_of(server: &Server) -> String {
    Dialog::with(server)
        .ask("CLUSTER MYID")
        .trim_matches('"')
        .to_owned()
}

/// A node that has all slots.
pub fn alone() -> Server {
    alone_with("")
}

/// The same with arguments for the module.
pub fn alone_with(arguments: &str) -> Server {
    alone_from(node().module_args(arguments))
}

/// The same from a [`node`] with more settings.
pub fn alone_from(node: Builder) -> Server {
    let (server, mut dialog) = node.scene();
    add_slots(&mut dialog, 0..SLOTS);
    eventually("the cluster is up", || {
        dialog.ask("CLUSTER INFO").contains("cluster_state:ok")
    });
    server
}

fn add_slots(dialog: &mut Dialog, slots: Range<u32>) {
    let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
    dialog.expect(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")), "+OK");
}

/// Two nodes that know each other; the first has all slots.
pub fn two_nodes() -> (Server, Server) {
    let (here, there) = (alone(), node().start());
    let mut dialog = Dialog::with(&here);
    dialog.expect(&format!("CLUSTER MEET 127.0.0.1 {}", there.port()), "+OK");
    let (here_id, there_id) = (id_of(&here), id_of(&there));
    let knows = |server: &Server, id: &str| {
        let nodes = Dialog::with(server).ask("CLUSTER NODES");
        let mut lines = nodes.trim_matches('"').split("\\n");
        lines.any(|line| line.starts_with(id) && !line.contains("handshake"))
    };
    eventually("the nodes know each other", || {
        knows(&here, &there_id) && knows(&there, &here_id)
    });
    eventually("both know who has the slots", || {
        Dialog::with(&there)
            .ask("SEAT.COUNT pool")
            .starts_with("!MOVED ")
    });
    (here, there)
}

/// The slot of the key that these tests use.
pub fn slot(dialog: &mut Dialog) -> i64 {
    dialog.number("CLUSTER KEYSLOT pool")
}

/// Redirected by the server, or asked by the module to try again.
#[track_caller]
pub fn is_sent_away(waiter: &mut Dialog) {
    let reply = waiter.read();
    let ways = ["!MOVED ", "!TRYAGAIN", "!CLUSTERDOWN", "!ASK "];
    assert!(ways.iter().any(|way| reply.starts_with(way)), "{reply}");
}

/// Three nodes that share the slots and know each other.
pub fn three_masters() -> Vec<Server> {
    let nodes: Vec<_> = (0..3).map(|_| node().start()).collect();
    for (number, node) in nodes.iter().enumerate() {
        let mut dialog = Dialog::with(node);
        dialog.expect(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1), "+OK");
        add_slots(&mut dialog, SHARES[number]..SHARES[number + 1]);
        let meet = format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port());
        dialog.expect(&meet, "+OK");
    }
    all_agree(&nodes);
    nodes
}

/// redis-cli's word that all nodes serve, and that they agree on who has which slot.
pub fn all_agree(nodes: &[Server]) {
    eventually("the nodes agree", || {
        nodes.iter().all(|node| {
            let info = Dialog::with(node).ask("CLUSTER INFO");
            let state = [
                "cluster_state:ok",
                "cluster_known_nodes:3",
                "cluster_slots_ok:16384",
            ];
            state.iter().all(|state| info.contains(state))
                && cluster_manager(&["check", &address(node)]).status.success()
        })
    });
}

pub fn address(node: &Server) -> String {
    format!("127.0.0.1:{}", node.port())
}

fn cluster_manager(arguments: &[&str]) -> Output {
    Command::new("redis-cli")
        .arg("--cluster")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("redis-cli: {error} (run `make setup`)"))
}

/// Moves the first slots of one node to another.
#[track_caller]
pub fn reshard(from: &Server, to: &Server, slots: u32) {
    let (from_id, to_id, slots) = (id_of(from), id_of(to), slots.to_string());
    let output = cluster_manager(&[
        "reshard",
        &address(from),
        "--cluster-from",
        &from_id,
        "--cluster-to",
        &to_id,
        "--cluster-slots",
        &slots,
        "--cluster-yes",
    ]);
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The first and the last of some slots.
pub type Slots = (u32, u32);

/// Whether this server moves slots in one step. One that does not says that it does not know the
/// command.
pub fn moves_slots_atomically(server: &Server) -> bool {
    let reply = Dialog::with(server).ask("CLUSTER MIGRATESLOTS");
    assert!(reply.starts_with("!ERR "), "{reply}");
    !reply.to_lowercase().contains("unknown subcommand")
}

/// Begins to move ranges of slots from one node to the one of this id.
#[track_caller]
pub fn begin_atomic_migration(from: &Server, to: &str, ranges: &[Slots]) {
    let mut command = String::from("CLUSTER MIGRATESLOTS SLOTSRANGE");
    for (first, last) in ranges {
        command += &format!(" {first} {last}");
    }
    Dialog::with(from).expect(&format!("{command} NODE {to}"), "+OK");
}

/// What the node that the slots leave says of the last migration.
pub fn state_of_migration(from: &Server) -> String {
    let log = Dialog::with(from).ask("CLUSTER GETSLOTMIGRATIONS");
    let (_, rest) = log.split_once(r#""state", ""#).expect("a migration");
    rest.split('"').next().expect("a word").to_owned()
}

/// Moves ranges of slots from one node to another, and returns once both know.
#[track_caller]
pub fn migrate_atomically(from: &Server, to: &Server, ranges: &[Slots]) {
    begin_atomic_migration(from, &id_of(to), ranges);
    eventually("the slots have moved", || {
        let state = state_of_migration(from);
        assert!(
            !["failed", "cancelled"].contains(&state.as_str()),
            "{state}"
        );
        state == "success"
    });
    eventually("the new node knows that the slots are its own", || {
        let mut dialog = Dialog::with(to);
        let nodes = dialog.ask("CLUSTER NODES");
        ranges.iter().all(|(first, _)| has_slot(&nodes, *first))
    });
}

/// Whether the node that lists the nodes has a slot.
fn has_slot(nodes: &str, slot: u32) -> bool {
    slots_of(nodes).any(|(first, last)| (first..=last).contains(&slot))
}

/// The ranges of slots of the node that lists the nodes.
pub fn slots_of(nodes: &str) -> impl Iterator<Item = Slots> {
    let lines = nodes.trim_matches('"').split("\\n");
    let own = lines.filter(|line| line.contains("myself,"));
    own.flat_map(|line| line.split(' ').skip(8))
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((first.parse().ok()?, last.parse().ok()?))
        })
}
