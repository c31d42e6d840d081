//! What the module looks at for itself does not count as used: LRU, LFU, `keyspace_hits` and
//! `keyspace_misses` are those of a server without it. What clients read and change by SEAT
//! commands does.

use crate::commands::table::{self, Kind};
use crate::support::cluster;
use crate::support::{Builder, Dialog, Server, Waiter, eventually, total};

/// OBJECT FREQ counts each use of a key by one, from five on. From 7.0 on, to ask for it is a
/// lookup.
fn counting() -> Builder {
    exact(Server::builder())
}

fn exact(builder: Builder) -> Builder {
    builder
        .config("maxmemory-policy allkeys-lfu")
        .config("lfu-log-factor 0")
        .config("lfu-decay-time 0")
}

#[track_caller]
fn freq(dialog: &mut Dialog, key: &str) -> i64 {
    dialog.number(&format!("OBJECT FREQ {key}"))
}

/// `keyspace_hits` and `keyspace_misses`.
fn lookups(server: &Server) -> [String; 2] {
    let stats = server.info("stats");
    ["keyspace_hits", "keyspace_misses"].map(|field| stats[field].clone())
}

/// Keys of some types, the last a pool with a lease.
const KINDS: [&str; 4] = ["text", "set", "list", "pool"];

fn fill(dialog: &mut Dialog) {
    dialog.expect("SET text x", "+OK");
    dialog.expect("SADD set x", "1");
    dialog.expect("RPUSH list x", "1");
    dialog.expect(
        "SEAT.ACQUIRE pool a 9 EX 5000",
        "[1, ACQUIRED, 1, 9, 5000000]",
    );
}

/// Restores each of [`KINDS`] as it was dumped, used as long ago or as often as `usage` says.
fn restore(dialog: &mut Dialog, usage: [&str; 2]) {
    for key in KINDS {
        let dump = dialog.bytes(&["DUMP", key]);
        let [name, value] = usage.map(str::as_bytes);
        let restore: [&[u8]; 7] = [
            b"RESTORE",
            key.as_bytes(),
            b"0",
            &dump,
            b"REPLACE",
            name,
            value,
        ];
        assert_eq!(dialog.ask_args(&restore), "+OK", "{key}");
    }
}

#[track_caller]
fn are_idle(dialog: &mut Dialog, seconds: i64) {
    for key in KINDS {
        let idle = dialog.number(&format!("OBJECT IDLETIME {key}"));
        assert!((seconds..seconds + 600).contains(&idle), "{key}: {idle}");
    }
}

#[test]
fn a_restored_key_is_idle_for_as_long_as_restore_says() {
    let (_server, mut dialog) = Server::scene();
    fill(&mut dialog);
    restore(&mut dialog, ["IDLETIME", "5000"]);
    are_idle(&mut dialog, 5000);
}

#[test]
fn a_restored_key_is_used_as_often_as_restore_says() {
    let (_server, mut dialog) = counting().scene();
    fill(&mut dialog);
    restore(&mut dialog, ["FREQ", "77"]);
    for key in KINDS {
        assert_eq!(freq(&mut dialog, key), 77, "{key}");
    }
}

#[test]
fn a_loaded_key_is_idle_for_as_long_as_it_was() {
    let (mut server, mut dialog) = Server::builder()
        .config("maxmemory-policy allkeys-lru")
        .scene();
    fill(&mut dialog);
    restore(&mut dialog, ["IDLETIME", "5000"]);
    dialog.expect("DEBUG RELOAD", "+OK");
    are_idle(&mut dialog, 5000);
    dialog.expect("SAVE", "+OK");
    server.restart();
    are_idle(&mut Dialog::with(&server), 5000);
}

#[test]
fn keys_that_move_are_used_as_on_a_server_without_the_module() {
    let seen = [counting(), counting().plain()].map(|builder| {
        let (server, mut dialog) = builder.scene();
        let mut seen = Vec::new();
        dialog.expect("SADD a x", "1");
        dialog.expect("COPY a b", "1");
        dialog.expect("COPY a c", "1");
        dialog.expect("RENAME b d", "+OK");
        dialog.expect("RENAMENX c e", "1");
        dialog.expect("MOVE e 3", "1");
        for key in ["a", "d"] {
            seen.push((key, freq(&mut dialog, key)));
        }
        dialog.expect("SELECT 3", "+OK");
        seen.push(("e", freq(&mut dialog, "e")));
        (seen, lookups(&server))
    });
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn a_pool_that_moves_is_used_as_often_as_another_key() {
    let (_server, mut dialog) = counting().scene();
    fill(&mut dialog);
    let seen = ["set", "pool"].map(|key| {
        dialog.expect(&format!("COPY {key} {key}1"), "1");
        dialog.expect(&format!("COPY {key} {key}2"), "1");
        dialog.expect(&format!("RENAME {key}1 {key}3"), "+OK");
        dialog.expect(&format!("MOVE {key}2 3"), "1");
        let here = ["", "3"].map(|end| freq(&mut dialog, &format!("{key}{end}")));
        dialog.expect("SELECT 3", "+OK");
        let there = freq(&mut dialog, &format!("{key}2"));
        dialog.expect("SELECT 0", "+OK");
        (here, there)
    });
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn lookups_are_those_of_a_server_without_the_module() {
    let arguments = "script-keys yes script-view yes";
    let builders = [
        Server::builder().module_args(arguments),
        Server::builder().plain(),
    ];
    let seen = builders.map(|builder| {
        let (mut server, mut dialog) = builder.scene();
        for n in 0..200 {
            dialog.expect(&format!("SET text{n} x"), "+OK");
        }
        dialog.expect("SADD license:acme:active_sessions a b", "2");
        dialog.expect("HSET license:acme:session_metadata a {}", "1");
        let mut seen = vec![lookups(&server)];
        for command in [
            "SMEMBERS license:acme:active_sessions",
            "HGET license:acme:session_metadata a",
            "SISMEMBER license:none:active_sessions a",
            "COPY text1 copy",
            "RENAME license:acme:session_metadata license:other:session_metadata",
            "MOVE license:other:session_metadata 1",
            "DEL license:acme:active_sessions",
            "DEBUG RELOAD",
        ] {
            dialog.ask(command);
            seen.push(lookups(&server));
        }
        dialog.expect("SAVE", "+OK");
        server.restart();
        // The walk through all keys is over by then, where there is one.
        let mut dialog = Dialog::with(&server);
        eventually("all keys were looked through", || {
            !dialog.ask("INFO seat").contains("script_key_scan:1")
        });
        seen.push(lookups(&server));
        seen
    });
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn under_allkeys_lru_the_hot_keys_stay_after_a_restart() {
    const COLD: usize = 900;
    const HOT: usize = 300;
    const LENGTH: usize = 1000;
    let (mut server, mut dialog) = Server::builder()
        .config("maxmemory-policy allkeys-lru")
        .config("maxmemory-samples 64")
        .scene();
    let text = "x".repeat(LENGTH);
    dialog.expect(&format!("SET cold0 {text}"), "+OK");
    let dump = dialog.bytes(&["DUMP", "cold0"]);
    for n in 0..COLD {
        let key = format!("cold{n}");
        let restore: [&[u8]; 7] = [
            b"RESTORE",
            key.as_bytes(),
            b"0",
            &dump,
            b"REPLACE",
            b"IDLETIME",
            b"900000",
        ];
        assert_eq!(dialog.ask_args(&restore), "+OK");
    }
    for n in 0..HOT {
        dialog.expect(&format!("SET hot{n} {text}"), "+OK");
    }
    dialog.expect("SAVE", "+OK");
    server.restart();
    let mut dialog = Dialog::with(&server);
    let used: usize = server.info("memory")["used_memory"]
        .parse()
        .expect("a number");
    let limit = used - COLD * LENGTH / 2;
    dialog.expect(&format!("CONFIG SET maxmemory {limit}"), "+OK");
    eventually("some keys are evicted", || {
        let evicted = server.info("stats")["evicted_keys"].parse::<usize>();
        evicted.expect("a number") > COLD / 4
    });
    let hot = (0..HOT).filter(|n| dialog.ask(&format!("EXISTS hot{n}")) == "1");
    assert_eq!(hot.count(), HOT);
}

#[test]
fn each_command_of_a_client_is_a_use_of_its_pool() {
    let (server, mut dialog) = counting().scene();
    dialog.acquire("pool", "z", 9, "{}");
    for row in table::readers().filter(|row| row.kind == Kind::Read) {
        let command = row.call;
        let (before, [hits, misses]) = (freq(&mut dialog, "pool"), lookups(&server));
        dialog.ask(command);
        let hits = hits.parse::<u64>().expect("a number") + 1;
        assert_eq!(lookups(&server), [hits.to_string(), misses], "{command}");
        assert_eq!(freq(&mut dialog, "pool"), before + 1, "{command}");
    }
    for command in [
        "SEAT.ACQUIRE pool a 9",
        "SEAT.ACQUIRE pool a 9",
        "SEAT.ACQUIRE pool b 1",
        "SEAT.HEARTBEAT pool a",
        "SEAT.RELEASE pool a",
        "SEAT.REVOKE pool nobody",
        "SEAT.CLEANUP pool",
        "SEAT.RESIZE pool 5",
    ] {
        let (before, looked) = (freq(&mut dialog, "pool"), lookups(&server));
        dialog.ask(command);
        assert_eq!(lookups(&server), looked, "{command}");
        assert_eq!(freq(&mut dialog, "pool"), before + 1, "{command}");
    }
}

/// A lease that ends, a ticket that is lost and a client whose time is over are no uses of their
/// pool.
fn time_is_no_use(server: &Server) {
    let mut dialog = Dialog::with(server);
    dialog.acquire("pool", "a", 9, "{}");
    dialog.ask("SEAT.ACQUIRE pool b 9 PX 20");
    dialog.ask("SEAT.ACQUIRE pool c 1 QUEUE 20");
    let mut waiter = Waiter::of(server, "SEAT.ACQUIRE pool d 1 BLOCK 50");
    let (used, looked) = (freq(&mut dialog, "pool"), lookups(server));
    waiter.hears("[0, NO_SEATS_AVAILABLE, 1, 1]");
    eventually("lease and ticket are gone", || {
        total(server, "seat_expired") == 1 && total(server, "seat_tickets") == 0
    });
    assert_eq!(lookups(server), looked);
    assert_eq!(freq(&mut dialog, "pool"), used);
}

#[test]
fn what_time_alone_does_to_a_pool_is_no_use_of_it() {
    time_is_no_use(&counting().start());
}

#[test]
fn to_ask_whether_this_node_has_the_slot_is_no_use_of_the_pool() {
    time_is_no_use(&cluster::alone_from(exact(cluster::node())));
}

#[test]
fn keys_of_the_scripts_that_stay_are_used_once_for_all_that_look() {
    let (server, mut dialog) = counting().module_args("script-keys yes").scene();
    let name = "license:acme:active_sessions";
    // No pool can hold a session without a name, so the key stays.
    assert_eq!(dialog.ask_args(&["SADD", name, ""]), "1");
    eventually("all keys were looked through", || {
        dialog.ask("INFO seat").contains("script_key_scan:0")
    });
    dialog.ask("SEAT.ACQUIRE acme keeper 5");
    // The pool was made by that grant: what was looked at before was about no pool.
    dialog.ask("SEAT.HEARTBEAT acme keeper");
    let (used, looked) = (freq(&mut dialog, name), lookups(&server));
    for command in [
        "SEAT.ACQUIRE acme a 5",
        "SEAT.HEARTBEAT acme a",
        "SEAT.RELEASE acme a",
        "SEAT.REVOKE acme a",
    ] {
        dialog.ask(command);
        assert_eq!(lookups(&server), looked, "{command}");
    }
    assert_eq!(freq(&mut dialog, name), used);
}

#[test]
fn a_reader_of_legacy_keys_uses_the_pool_and_misses_nothing() {
    let (server, mut dialog) = counting()
        .module_args("script-keys yes script-view yes")
        .scene();
    dialog.acquire("acme", "a", 9, "{}");
    for reader in [
        "SISMEMBER license:acme:active_sessions a",
        "SISMEMBER license:acme:active_sessions b",
        "SMEMBERS license:acme:active_sessions",
        "SCARD license:acme:active_sessions",
        "HGET license:acme:session_metadata a",
        "HGET license:acme:session_metadata b",
        "HGETALL license:acme:session_metadata",
        "HEXISTS license:acme:session_metadata b",
        "HLEN license:acme:session_metadata",
        "HKEYS license:acme:session_metadata",
    ] {
        let (used, [hits, misses]) = (freq(&mut dialog, "acme"), lookups(&server));
        dialog.ask(reader);
        let hits = hits.parse::<u64>().expect("a number") + 1;
        assert_eq!(lookups(&server), [hits.to_string(), misses], "{reader}");
        assert_eq!(freq(&mut dialog, "acme"), used + 1, "{reader}");
    }
}
