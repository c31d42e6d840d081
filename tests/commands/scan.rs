//! SEAT.SCAN: what stays is returned exactly once, whatever comes and goes meanwhile.

use std::collections::HashMap;

use fastrand::Rng;

use crate::dialog::Dialog;
use crate::support::Server;
use crate::workload;

/// One step: the next cursor and the items.
fn step(dialog: &mut Dialog, cursor: &str, options: &[&str]) -> (String, Vec<String>) {
    let arguments = [&["SEAT.SCAN", "pool", cursor], options].concat();
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
    let server = Server::start();
    let mut dialog = Dialog::with(&server);
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
    let server = Server::start();
    let mut dialog = Dialog::with(&server);
    fill(&mut dialog, "s", 5000);
    let (mut cursor, mut seen, mut steps) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let (next, items) = step(&mut dialog, &cursor, &[]);
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
    let (next, items) = step(&mut dialog, "0", &["COUNT", "1000000"]);
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
            let (next, items) = step(&mut dialog, &cursor, options);
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
                        let reply = dialog.ask(&format!("SEAT.HEARTBEAT pool stays{id}"));
                        assert!(reply.contains("UPDATED"), "{reply}");
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
    let server = Server::start();
    let mut dialog = Dialog::with(&server);
    fill(&mut dialog, "s", 5000);
    for n in (0..5000).filter(|n| n % 500 != 499) {
        dialog.send(&format!("SEAT.RELEASE pool s{n}"));
    }
    for _ in 0..4990 {
        assert!(dialog.read().contains("RELEASED"));
    }
    let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
    for _ in 0..5000 {
        let (next, items) = step(&mut dialog, &cursor, &["COUNT", "1"]);
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
    let server = Server::start();
    let mut dialog = Dialog::with(&server);
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
    // A number that no SCAN returned is no error, as with Redis's own, and leads to an end.
    for cursor in ["9223372036854775807", "4294967296", "1000000"] {
        let (next, items) = step(&mut dialog, cursor, &[]);
        assert_eq!((next.as_str(), items.len()), ("0", 0), "{cursor}");
    }
}
