//! What is kept outside the key space follows the data set that is shown, however one comes, goes
//! or comes back: leases expire, tickets are lost, legacy keys are counted, and nothing is
//! overbooked.

use crate::support::{
    Builder, Dialog, Product, Server, default_binary, eventually, total, total_becomes,
};

/// The databases that hold something. What takes time to load is in a later one.
const DATABASES: [u8; 2] = [0, 3];

/// Keys that take time to load, and how many bytes are loaded when it is amid them.
const BALLAST: &str = "DEBUG POPULATE 3000 ballast 10000";
const AMID: u64 = 1_000_000;

/// The primary waits so many microseconds after each key that it sends.
const SLOW: &str = "CONFIG SET rdb-key-save-delay 1000";

fn with_legacy_keys() -> Builder {
    Server::builder().module_args("script-keys yes")
}

/// A primary, some of whose keys take time to load.
fn primary() -> Server {
    let mut builder = with_legacy_keys()
        .config("rdbcompression no")
        .config("repl-diskless-sync yes")
        .config("repl-backlog-size 16kb")
        .tcp();
    if loads_aside() {
        // It does not wait for its replica when it ends.
        builder = builder.config("shutdown-timeout 0");
    }
    let (primary, mut dialog) = builder.scene();
    dialog.at_once(&["SELECT 5", BALLAST]);
    primary
}

fn replica(diskless_load: &str) -> Builder {
    let builder = with_legacy_keys()
        .config("repl-timeout 600")
        .config(&format!("repl-diskless-load {diskless_load}"))
        .tcp();
    if loads_aside() {
        return builder.config("loading-process-events-interval-bytes 65536");
    }
    // It answers once in two megabytes.
    builder
}

/// Whether a replica may show its old data set while it loads the new one.
fn loads_aside() -> bool {
    Product::of(&default_binary()) >= Product::Redis((7, 0, 0))
}

/// Commands after which each of the databases holds, for this name, a session without a lease, one
/// whose lease is over, a ticket that is lost, and a legacy set of two. Only a pause, which ends
/// them, keeps a primary from reclaiming at once.
fn contents(name: &str) -> Vec<String> {
    let in_each = |database| {
        [
            format!("SELECT {database}"),
            format!("SEAT.ACQUIRE {name}-held a 1"),
            format!("SEAT.ACQUIRE {name}-leased a 1 PX 1"),
            format!("SEAT.ACQUIRE {name}-queued a 0 QUEUE 1"),
            format!("SADD license:{name}:active_sessions a b"),
        ]
    };
    let mut commands: Vec<String> = DATABASES.into_iter().flat_map(in_each).collect();
    commands.push("CLIENT PAUSE 600000 WRITE".to_owned());
    commands
}

#[track_caller]
fn fill(dialog: &mut Dialog, name: &str) {
    let commands = contents(name);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let replies = dialog.at_once(&commands);
    let refused = replies.iter().find(|reply| reply.starts_with('!'));
    assert_eq!(refused, None);
}

/// What [`fill`] put there is known, and nothing else is.
#[track_caller]
fn is_known(server: &Server) {
    let sets = DATABASES.len() as u64;
    total_becomes(server, "seat_tickets", sets);
    total_becomes(server, "seat_script_key_scan", 0);
    assert_eq!(total(server, "seat_script_key_pools"), sets);
}

/// On a replica, or a primary whose writers still pause: nothing of what [`fill`] put there was
/// forgotten.
#[track_caller]
fn is_taken_care_of(server: &Server, name: &str) {
    is_known(server);
    promote(server);
    Dialog::with(server).ask("CLIENT UNPAUSE");
    ends_in_time(server, name);
}

/// On a primary: what can end ends by itself, and the rest is counted.
#[track_caller]
fn ends_in_time(server: &Server, name: &str) {
    let mut dialog = Dialog::with(server);
    for database in DATABASES {
        dialog.expect(&format!("SELECT {database}"), "+OK");
        // Nothing of the module touches these.
        let keys = format!("EXISTS {name}-leased {name}-queued");
        eventually("leases and tickets have ended", || dialog.ask(&keys) == "0");
        dialog.expect(
            &format!("SEAT.ACQUIRE {name} c 2"),
            "[0, NO_SEATS_AVAILABLE, 2, 2]",
        );
        dialog.expect(&format!("SEAT.COUNT {name}-held"), "1");
    }
    assert_eq!(total(server, "seat_expired"), DATABASES.len() as u64);
    assert_eq!(total(server, "seat_tickets"), 0);
    assert_eq!(total(server, "seat_script_key_pools"), 0);
}

#[track_caller]
fn nothing_is_known(server: &Server) {
    total_becomes(server, "seat_tickets", 0);
    assert_eq!(total(server, "seat_script_key_pools"), 0);
}

#[track_caller]
fn promote(server: &Server) {
    Dialog::with(server).expect("REPLICAOF NO ONE", "+OK");
}

#[track_caller]
fn follow(server: &Server, primary: &Server) {
    let command = format!("REPLICAOF 127.0.0.1 {}", primary.port());
    Dialog::with(server).expect(&command, "+OK");
}

/// Waits until the server is amid its primary's data set: what [`fill`] put there is loaded, and
/// the ballast is coming.
#[track_caller]
fn is_amid_the_load(server: &Server) {
    eventually("the load is amid the ballast", || {
        let persistence = server.info("persistence");
        let loaded = persistence.get("loading_loaded_bytes");
        loaded.is_some_and(|loaded| loaded.parse::<u64>().expect("a number") > AMID)
    });
}

#[track_caller]
fn has_stopped_loading(server: &Server) {
    eventually("nothing is loaded any more", || {
        let persistence = server.info("persistence");
        let is = |field: &str| persistence.get(field).is_some_and(|value| value == "1");
        !is("loading") && !is("async_loading")
    });
}

#[track_caller]
fn has_synchronised(server: &Server, primary: &Server) {
    primary.wait_for_offset(server);
    has_stopped_loading(server);
}

/// Loaded by name from what the old server left, with an AOF or an RDB.
#[test]
fn after_a_restart_and_a_reload() {
    for (builder, reload) in [
        (with_legacy_keys().config("save 3600 1"), None),
        (
            with_legacy_keys().config("save 3600 1"),
            Some("DEBUG RELOAD"),
        ),
        (with_legacy_keys().recording(), None),
        (with_legacy_keys().recording(), Some("DEBUG LOADAOF")),
        (with_legacy_keys().config("appendonly yes"), None),
    ] {
        let mut server = builder.start();
        fill(&mut Dialog::with(&server), "old");
        is_known(&server);
        if let Some(reload) = reload {
            Dialog::with(&server).expect(reload, "+OK");
            is_taken_care_of(&server, "old");
        } else {
            // No pause keeps the new process from reclaiming at once.
            server.restart();
            ends_in_time(&server, "old");
        }
    }
}

#[test]
fn after_swapdb_there_and_back_and_to_another() {
    let (server, mut dialog) = with_legacy_keys().scene();
    let mut commands = contents("old");
    let pause = commands.pop().expect("the pause");
    commands.extend(["SWAPDB 0 3", "SWAPDB 0 1", "SWAPDB 1 2", "SWAPDB 0 2"].map(str::to_owned));
    commands.push(pause);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    dialog.at_once(&commands);
    is_taken_care_of(&server, "old");
}

#[test]
fn a_flush_forgets_what_it_takes_and_nothing_else() {
    let (server, mut dialog) = with_legacy_keys().scene();
    fill(&mut dialog, "old");
    is_known(&server);
    dialog.ask("CLIENT UNPAUSE");
    dialog.at_once(&["SELECT 3", "FLUSHDB"]);
    assert_eq!(total(&server, "seat_script_key_pools"), 1);
    dialog.ask("FLUSHALL");
    nothing_is_known(&server);
    fill(&mut dialog, "new");
    is_known(&server);
}

#[test]
fn after_restore_of_each_value_where_another_data_set_was() {
    let from = with_legacy_keys().start();
    let server = with_legacy_keys().start();
    let (mut there, mut here) = (Dialog::with(&from), Dialog::with(&server));
    fill(&mut there, "old");
    fill(&mut here, "new");
    here.ask("CLIENT UNPAUSE");
    here.ask("FLUSHALL");
    for database in DATABASES {
        let select = format!("SELECT {database}");
        there.ask(&select);
        here.ask(&select);
        for key in [
            "old-held",
            "old-leased",
            "old-queued",
            "license:old:active_sessions",
        ] {
            let payload = there.bytes(&["DUMP", key]);
            assert_eq!(here.restore(key, &payload, &[]), "+OK", "{key}");
        }
    }
    let mut dialog = Dialog::with(&server);
    for database in DATABASES {
        dialog.expect(&format!("SELECT {database}"), "+OK");
        eventually("leases and tickets have ended", || {
            dialog.ask("EXISTS old-leased old-queued") == "0"
        });
        dialog.expect("SEAT.ACQUIRE old c 2", "[0, NO_SEATS_AVAILABLE, 2, 2]");
    }
    nothing_is_known(&server);
}

/// A replica that had data of its own comes to hold its primary's, and is promoted.
#[test]
fn after_a_full_synchronisation_of_each_kind() {
    for (from_disk, diskless_load) in [
        ("no", "disabled"),
        ("yes", "disabled"),
        ("yes", "on-empty-db"),
        ("yes", "swapdb"),
    ] {
        let mut primary = primary();
        let mut dialog = Dialog::with(&primary);
        dialog.ask(&format!("CONFIG SET repl-diskless-sync {from_disk}"));
        fill(&mut dialog, "new");
        let server = replica(diskless_load).start();
        if diskless_load != "on-empty-db" {
            fill(&mut Dialog::with(&server), "old");
            is_known(&server);
        }
        follow(&server, &primary);
        has_synchronised(&server, &primary);
        primary.shutdown();
        is_taken_care_of(&server, "new");
    }
}

#[test]
fn after_a_partial_synchronisation() {
    let mut primary = primary();
    let server = replica("swapdb").replica_of(&primary).start();
    has_synchronised(&server, &primary);
    let full = primary.info("stats")["sync_full"].clone();
    let mut dialog = Dialog::with(&primary);
    fill(&mut dialog, "old");
    Dialog::with(&server).expect("CLIENT KILL TYPE master", "1");
    eventually("the replica came back", || {
        primary.info("stats")["sync_partial_ok"] == "1"
    });
    has_synchronised(&server, &primary);
    assert_eq!(primary.info("stats")["sync_full"], full);
    primary.shutdown();
    is_taken_care_of(&server, "old");
}

/// A server that held something itself begins to load a primary's data set, and the primary ends.
/// (If it were killed, its child would live on up to 6.2, and hold the connection.)
#[track_caller]
fn after_a_load_that_broke_off(diskless_load: &str, holds_something: bool) -> Server {
    let mut primary = primary();
    let mut dialog = Dialog::with(&primary);
    fill(&mut dialog, "new");
    dialog.ask(SLOW);
    let server = replica(diskless_load).start();
    if holds_something {
        fill(&mut Dialog::with(&server), "old");
        is_known(&server);
    }
    follow(&server, &primary);
    is_amid_the_load(&server);
    primary.shutdown();
    has_stopped_loading(&server);
    server
}

#[test]
fn the_old_data_set_comes_back_when_a_swapdb_load_breaks_off() {
    let server = after_a_load_that_broke_off("swapdb", true);
    is_taken_care_of(&server, "old");
    let mut dialog = Dialog::with(&server);
    dialog.expect("KEYS new*", "[]");
    // What is made from here on is known as ever.
    dialog.expect("SADD license:later:active_sessions a", "1");
    dialog.expect("SEAT.ACQUIRE later b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
}

#[test]
fn nothing_is_known_after_a_first_load_that_breaks_off() {
    let server = after_a_load_that_broke_off("on-empty-db", false);
    nothing_is_known(&server);
    Dialog::with(&server).expect("DBSIZE", "0");
}

/// A replica of a primary whose data set is another one all at once, which it gets whole, in the
/// same history: so it may show the old one meanwhile. It is amid that load.
fn amid_a_reload(settings: &str) -> (Server, Server) {
    let primary = primary();
    let mut dialog = Dialog::with(&primary);
    fill(&mut dialog, "old");
    let server = replica("swapdb")
        .module_args(settings)
        .replica_of(&primary)
        .start();
    has_synchronised(&server, &primary);
    let mut commands: Vec<String> = [
        "CLIENT KILL TYPE replica",
        SLOW,
        "CLIENT UNPAUSE",
        "MULTI",
        "FLUSHALL",
        "SELECT 5",
        BALLAST,
    ]
    .map(str::to_owned)
    .into();
    // More than the backlog holds.
    commands.push(format!("SET padding {}", "x".repeat(40_000)));
    commands.extend(contents("new"));
    commands.push("EXEC".to_owned());
    // At once, so that the primary reclaims nothing of the old data set in between.
    let replies = dialog.pipeline(&commands);
    let exec = replies.last().expect("a reply to EXEC");
    assert!(exec.starts_with("[+OK, "), "{replies:?}");
    is_amid_the_load(&server);
    if loads_aside() {
        assert_eq!(server.info("persistence")["async_loading"], "1");
    }
    (primary, server)
}

/// Readers are answered from the old data set, and the gauges are those of the old one.
#[track_caller]
fn shows_the_old_data_set(server: &Server) {
    let mut dialog = Dialog::with(server);
    if !loads_aside() {
        dialog.begins("SEAT.COUNT old-held", "!LOADING");
        return;
    }
    assert_eq!(dialog.sessions("old-held"), ["a"]);
    dialog.expect("SEAT.COUNT old-leased", "0");
    dialog.expect("SEAT.COUNT new-held", "0");
    dialog.expect("SCARD license:old:active_sessions", "2");
    dialog.expect("EXISTS new-held license:new:active_sessions", "0");
    assert_eq!(total(server, "seat_tickets"), DATABASES.len() as u64);
    assert_eq!(
        total(server, "seat_script_key_pools"),
        DATABASES.len() as u64
    );
    let persistence = server.info("persistence");
    assert_eq!(
        persistence["async_loading"], "1",
        "the load was over too soon"
    );
}

#[test]
fn readers_see_the_old_data_set_until_the_new_one_is_complete() {
    let (mut primary, server) = amid_a_reload("script-keys yes");
    shows_the_old_data_set(&server);
    has_synchronised(&server, &primary);
    Dialog::with(&server).expect("KEYS old*", "[]");
    primary.shutdown();
    is_taken_care_of(&server, "new");
}

#[test]
fn readers_see_the_old_data_set_amid_a_load_that_breaks_off() {
    let (mut primary, server) = amid_a_reload("script-keys yes");
    shows_the_old_data_set(&server);
    primary.shutdown();
    has_stopped_loading(&server);
    Dialog::with(&server).expect("KEYS new*", "[]");
    is_taken_care_of(&server, "old");
}

/// The keys that were loaded before are not known by events.
#[test]
fn legacy_keys_are_found_when_they_are_asked_for_amid_a_load() {
    for breaks_off in [false, true] {
        let (mut primary, server) = amid_a_reload("script-keys no");
        let mut dialog = Dialog::with(&server);
        let reply = dialog.ask("CONFIG SET seat.script-keys yes");
        if !loads_aside() {
            // There the settings of modules are those of the start.
            assert!(
                reply.starts_with("!LOADING") || reply.starts_with("!ERR"),
                "{reply}"
            );
            primary.shutdown();
            return;
        }
        assert_eq!(reply, "+OK");
        if breaks_off {
            primary.shutdown();
            has_stopped_loading(&server);
        } else {
            has_synchronised(&server, &primary);
            primary.shutdown();
        }
        promote(&server);
        let name = if breaks_off { "old" } else { "new" };
        dialog.expect(
            &format!("SEAT.ACQUIRE {name} c 2"),
            "[0, NO_SEATS_AVAILABLE, 2, 2]",
        );
    }
}

#[test]
fn what_a_client_restores_amid_a_load_expires_on_time() {
    let (mut primary, server) = amid_a_reload("");
    if !loads_aside() {
        // It answers LOADING.
        primary.shutdown();
        return;
    }
    let mut dialog = Dialog::with(&server);
    let mut wire = server.wire();
    dialog.ask("CONFIG SET replica-read-only no");
    dialog.ask("SEAT.ACQUIRE restored a 1 PX 500");
    let redis::Value::BulkString(payload) = wire.value(&["DUMP", "restored"]) else {
        panic!("no payload");
    };
    dialog.ask("DEL restored");
    let restore: [&[u8]; 4] = [b"RESTORE", b"restored", b"0", &payload];
    assert_eq!(wire.call(&restore), b"+OK\r\n");
    assert_eq!(server.info("persistence")["async_loading"], "1");
    primary.shutdown();
    has_stopped_loading(&server);
    promote(&server);
    eventually("it is reclaimed", || dialog.ask("EXISTS restored") == "0");
}
