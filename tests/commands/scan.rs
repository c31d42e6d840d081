//! SEAT.SCAN: what stays is returned exactly once, whatever comes and goes meanwhile.

use std::collections::HashMap;

use fastrand::Rng;

use crate::support::{Dialog, Server, workload};

/// What a cursor of another value is answered.
const STALE: &str = "!STALECURSOR The pool was loaded or replaced since this cursor was returned, begin again from 0";

/// One step: the next cursor and the items.
fn step(dialog: &mut Dialog, key: &str, cursor: &str, options: &[&str]) -> (String, Vec<String>) {
    let arguments = [&["SEAT.SCAN", key, cursor], options].concat();
    let raw = dialog.raw(&arguments);
    let value = redis::parse_redis_value(&raw)
        .unwrap_or_else(|error| panic!("{error}: {}", raw.escape_ascii()));
    redis::from_redis_value(value).unwrap_or_else(|error| panic!("{error}"))
}

fn fill(dialog: &mut Dialog, prefix: &str, count: usize) {
    for n in 0..count {
        dialog.send(&format!("SEAT.ACQUIRE pool {prefix}{n} 1000000 {{}}"));
    }
    for _ in 0..count {
        let reply = dialog.read();
        assert!(reply.contains("ACQUIRED"), "{reply}");
    }
}

#[test]
fn scan_of_a_quiet_pool_lists_it_and_ends() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SEAT.SCAN pool 0", r#"["0", []]"#);
    dialog.expect("SEAT.SCAN pool 0 WITHMETADATA", r#"["0", []]"#);
    dialog.expect("SEAT.SCAN pool 7", r#"["0", []]"#);
    dialog.acquire("pool", "a", 9, r#"{"k":1}"#);
    let json = dialog.ask("SEAT.GET pool a");
    dialog.expect("SEAT.SCAN pool 0", r#"["0", ["a"]]"#);
    dialog.expect("SEAT.SCAN pool 0 count 1", r#"["0", ["a"]]"#);
    dialog.expect(
        "SEAT.SCAN pool 0 COUNT 9223372036854775807",
        r#"["0", ["a"]]"#,
    );
    let pairs = format!(r#"["0", ["a", {json}]]"#);
    dialog.expect("SEAT.SCAN pool 0 withMETADATA", &pairs);
    dialog.expect("SEAT.SCAN pool 0 WITHMETADATA cOUNT 5", &pairs);
    dialog.expect("SEAT.SCAN pool 0 COUNT 5 WITHMETADATA", &pairs);
    // The items are a flat list of pairs in RESP3, too: they are not a map, since ids may repeat.
    let mut modern = Dialog::in_resp3(&server);
    modern.expect("SEAT.SCAN pool 0 WITHMETADATA", &pairs);
}

#[test]
fn a_step_is_as_long_as_its_count_says() {
    let (_server, mut dialog) = Server::scene();
    fill(&mut dialog, "s", 5000);
    let (mut cursor, mut seen, mut steps) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let (next, items) = step(&mut dialog, "pool", &cursor, &[]);
        assert!(
            items.len() <= 20,
            "{} items for the default COUNT of 10",
            items.len()
        );
        seen.extend(items);
        cursor = next;
        steps += 1;
        assert!(steps <= 5000, "no end in sight");
        if cursor == "0" {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5000);
    let (next, items) = step(&mut dialog, "pool", "0", &["COUNT", "1000000"]);
    assert_eq!((next.as_str(), items.len()), ("0", 5000));
}

#[test]
fn what_stays_is_returned_exactly_once_while_others_come_and_go() {
    let seed = workload::seed();
    let mut random = Rng::with_seed(seed);
    let server = Server::start();
    for round in 0..40 {
        let mut dialog = Dialog::with(&server);
        dialog.expect("FLUSHALL", "+OK");
        let mut others: Vec<String> = Vec::new();
        let mut ever: HashMap<String, usize> = HashMap::new();
        let stay = random.usize(..400);
        let leave = random.usize(..400);
        // Who stays and who goes are mixed in the order of arrival.
        let mut arrivals: Vec<String> = (0..stay).map(|n| format!("stays{n}")).collect();
        arrivals.extend((0..leave).map(|n| format!("goes{n}")));
        random.shuffle(&mut arrivals);
        for id in &arrivals {
            dialog.acquire("pool", id, 1_000_000, "{}");
            ever.insert(id.clone(), 0);
            if id.starts_with("goes") {
                others.push(id.clone());
            }
        }
        let (mut cursor, mut steps, mut newcomers) = ("0".to_owned(), 0, 0);
        loop {
            let count = random.usize(1..=60).to_string();
            let with_metadata = random.bool();
            let options: &[&str] = if with_metadata {
                &["COUNT", &count, "WITHMETADATA"]
            } else {
                &["COUNT", &count]
            };
            let (next, items) = step(&mut dialog, "pool", &cursor, options);
            for id in items.iter().step_by(1 + usize::from(with_metadata)) {
                let times = ever.get_mut(id);
                *times.unwrap_or_else(|| {
                    panic!("seed {seed}, round {round}: never granted: {id}")
                }) += 1;
            }
            cursor = next;
            steps += 1;
            assert!(steps <= 5000, "seed {seed}, round {round}: no end in sight");
            if cursor == "0" {
                break;
            }
            for _ in 0..random.usize(..30) {
                match random.u8(..5) {
                    0 | 1 if newcomers < 600 => {
                        let id = format!("comes{newcomers}");
                        newcomers += 1;
                        dialog.acquire("pool", &id, 1_000_000, r#"{"k":1}"#);
                        ever.insert(id.clone(), 0);
                        others.push(id);
                    }
                    2 | 3 if !others.is_empty() => {
                        let id = others.swap_remove(random.usize(..others.len()));
                        assert!(
                            dialog
                                .ask(&format!("SEAT.RELEASE pool {id}"))
                                .contains("RELEASED")
                        );
                    }
                    _ if stay > 0 => {
                        let id = random.usize(..stay);
                        dialog.contains(&format!("SEAT.HEARTBEAT pool stays{id}"), "UPDATED");
                    }
                    _ => {}
                }
            }
        }
        for n in 0..stay {
            let times = ever[&format!("stays{n}")];
            assert_eq!(
                times, 1,
                "seed {seed}, round {round}: stays{n} was returned {times} times"
            );
        }
    }
}

#[test]
fn a_sparse_pool_is_scanned_to_its_end() {
    let (_server, mut dialog) = Server::scene();
    fill(&mut dialog, "s", 5000);
    for n in (0..5000).filter(|n| n % 500 != 499) {
        dialog.send(&format!("SEAT.RELEASE pool s{n}"));
    }
    for _ in 0..4990 {
        assert!(dialog.read().contains("RELEASED"));
    }
    let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
    for _ in 0..5000 {
        let (next, items) = step(&mut dialog, "pool", &cursor, &["COUNT", "1"]);
        seen.extend(items);
        cursor = next;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(cursor, "0", "no end in sight");
    seen.sort();
    let mut stayed = dialog.sessions("pool");
    stayed.sort();
    assert_eq!(seen, stayed);
    assert_eq!(seen.len(), 10);
}

#[test]
fn cursors_and_counts_that_cannot_be_are_refused() {
    let (_server, mut dialog) = Server::scene();
    dialog.acquire("pool", "a", 9, "{}");
    for key in ["pool", "missing"] {
        for cursor in [
            "",
            "x",
            "-1",
            "1.0",
            "0x0",
            "99999999999999999999",
            "+1",
            "0 ",
        ] {
            let reply = dialog.ask_args(&["SEAT.SCAN", key, cursor]);
            assert!(
                reply.starts_with("!ERR invalid cursor"),
                "{cursor:?}: {reply}"
            );
        }
        for count in ["", "0", "-1", "x", "1.5", "99999999999999999999"] {
            let reply = dialog.ask_args(&["SEAT.SCAN", key, "0", "COUNT", count]);
            assert!(reply.starts_with("!ERR "), "COUNT {count:?}: {reply}");
            assert!(reply.contains("COUNT"), "COUNT {count:?}: {reply}");
        }
        for options in [
            &["COUNT"][..],
            &["10"],
            &["WITHMETADATA", "COUNT"],
            &["NOSUCH"],
            &["MATCH", "*"],
            &["WITHMETADATA", ""],
        ] {
            let reply = dialog.ask_args(&[&["SEAT.SCAN", key, "0"], options].concat());
            assert!(reply.starts_with("!ERR "), "{options:?}: {reply}");
        }
    }
    // A number that no SCAN returned begins nowhere. Where no pool is, everything leads to an end.
    for cursor in ["9223372036854775807", "4294967296", "1000000", "1"] {
        dialog.expect(&format!("SEAT.SCAN pool {cursor}"), STALE);
        let (next, items) = step(&mut dialog, "missing", cursor, &[]);
        assert_eq!((next.as_str(), items.len()), ("0", 0), "{cursor}");
    }
}

/// Sessions that stay, behind as many that left before the scan began.
const STAYING: usize = 300;

/// A pool whose first half has left, and the cursor after one step.
fn begun(dialog: &mut Dialog) -> (String, Vec<String>) {
    fill(dialog, "goes", STAYING);
    fill(dialog, "stays", STAYING);
    for n in 0..STAYING {
        dialog.send(&format!("SEAT.RELEASE pool goes{n}"));
    }
    for _ in 0..STAYING {
        assert!(dialog.read().contains("RELEASED"));
    }
    let begun = step(dialog, "pool", "0", &["COUNT", "40"]);
    assert_ne!(begun.0, "0");
    begun
}

/// Goes on to the end, and returns all that was found with what was found before.
fn rest(dialog: &mut Dialog, key: &str, begun: (String, Vec<String>)) -> Vec<String> {
    let (mut cursor, mut seen) = begun;
    while cursor != "0" {
        let (next, items) = step(dialog, key, &cursor, &[]);
        seen.extend(items);
        cursor = next;
    }
    seen.sort();
    seen
}

/// All that stay, each once.
#[track_caller]
fn is_complete(mut seen: Vec<String>) {
    let mut stay: Vec<_> = (0..STAYING).map(|n| format!("stays{n}")).collect();
    seen.sort();
    stay.sort();
    assert_eq!(seen, stay);
}

/// The cursor is refused, and a scan from 0 on is complete, as the documentation says.
#[track_caller]
fn is_to_begin_again(dialog: &mut Dialog, key: &str, cursor: &str) {
    let reply = dialog.ask(&format!("SEAT.SCAN {key} {cursor}"));
    assert_eq!(reply, STALE, "{key} {cursor}");
    let begun = step(dialog, key, "0", &[]);
    is_complete(rest(dialog, key, begun));
}

#[test]
fn a_scan_goes_on_while_its_pool_moves_and_is_saved() {
    let server = Server::builder().config("appendonly yes").start();
    for (commands, key) in [
        (&["RENAME pool other"][..], "other"),
        (&["MOVE pool 5", "SELECT 5"], "pool"),
        (&["SWAPDB 0 5", "SELECT 5"], "pool"),
        (&["COPY pool copy"], "pool"),
        (&["SAVE"], "pool"),
        (&["BGREWRITEAOF"], "pool"),
    ] {
        let mut dialog = Dialog::with(&server);
        let begun = begun(&mut dialog);
        for command in commands {
            let reply = dialog.ask(command);
            assert!(["1", "+"].iter().any(|ok| reply.starts_with(ok)), "{reply}");
        }
        is_complete(rest(&mut dialog, key, begun));
        dialog.expect("FLUSHALL", "+OK");
    }
}

#[test]
fn a_cursor_is_refused_once_the_pool_was_loaded_again() {
    for persistence in [
        &["save 900 1"][..],
        &["appendonly yes", "aof-use-rdb-preamble yes"],
        &["appendonly yes", "aof-use-rdb-preamble no"],
    ] {
        let builder = persistence
            .iter()
            .fold(Server::builder(), |builder, line| builder.config(line));
        let (mut server, mut dialog) = builder.scene();
        let (cursor, _) = begun(&mut dialog);
        dialog.expect("DEBUG RELOAD", "+OK");
        is_to_begin_again(&mut dialog, "pool", &cursor);
        let (cursor, _) = step(&mut dialog, "pool", "0", &[]);
        server.restart();
        is_to_begin_again(&mut Dialog::with(&server), "pool", &cursor);
    }
}

#[test]
fn a_cursor_is_refused_where_another_value_took_the_name() {
    let (_server, mut dialog) = Server::scene();
    let (cursor, _) = begun(&mut dialog);
    let dump = dialog.bytes(&["DUMP", "pool"]);
    assert_eq!(dialog.restore("pool", &dump, &["REPLACE"]), "+OK");
    is_to_begin_again(&mut dialog, "pool", &cursor);

    dialog.expect("COPY pool copy", "1");
    let (cursor, _) = step(&mut dialog, "pool", "0", &[]);
    is_to_begin_again(&mut dialog, "copy", &cursor);
    dialog.expect("COPY copy pool REPLACE", "1");
    is_to_begin_again(&mut dialog, "pool", &cursor);
    let (cursor, _) = step(&mut dialog, "pool", "0", &[]);
    dialog.expect("RENAME copy pool", "+OK");
    is_to_begin_again(&mut dialog, "pool", &cursor);

    // A pool that everybody left is gone, and the next of its name is another.
    let (cursor, _) = step(&mut dialog, "pool", "0", &[]);
    for n in 0..STAYING {
        dialog.expect(
            &format!("SEAT.RELEASE pool stays{n}"),
            &format!("[1, RELEASED, {}]", STAYING - 1 - n),
        );
    }
    dialog.expect(&format!("SEAT.SCAN pool {cursor}"), r#"["0", []]"#);
    fill(&mut dialog, "stays", STAYING);
    is_to_begin_again(&mut dialog, "pool", &cursor);
}

#[test]
fn a_cursor_is_good_on_the_node_that_returned_it() {
    let (primary, mut dialog) = Server::builder().tcp().scene();
    let begun = begun(&mut dialog);
    let replica = Server::builder().replica_of(&primary).start();
    primary.wait_for_offset(&replica);
    let mut reader = Dialog::with(&replica);
    let (cursor, items) = begun;
    is_to_begin_again(&mut reader, "pool", &cursor);

    // It is good there even while the primary's changes arrive.
    let own = step(&mut reader, "pool", "0", &[]);
    dialog.acquire("pool", "comes", 1000, "{}");
    dialog.expect("SEAT.RELEASE pool comes", "[1, RELEASED, 300]");
    primary.wait_for_offset(&replica);
    is_complete(rest(&mut reader, "pool", own));

    // A full synchronisation loads it again, and a promotion does not.
    let (own, _) = step(&mut reader, "pool", "0", &[]);
    reader.expect("REPLICAOF NO ONE", "+OK");
    let promoted = step(&mut reader, "pool", &own, &[]);
    assert_ne!(promoted.0, "0");
    is_to_begin_again(&mut reader, "pool", &cursor);
    reader.expect("SET its own", "+OK");
    reader.expect(&format!("REPLICAOF 127.0.0.1 {}", primary.port()), "+OK");
    primary.wait_for_offset(&replica);
    is_to_begin_again(&mut reader, "pool", &promoted.0);

    is_complete(rest(&mut dialog, "pool", (cursor, items)));
}
