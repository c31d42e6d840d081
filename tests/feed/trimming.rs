//! Trimming: exact, alike everywhere, and a little at a time.

use super::{entries, nothing_failed, with_feed};
use crate::support::{Dialog, Server};

/// Entries by which one append shortens a stream at most.
const BATCH: i64 = 100;

/// Microseconds that no command may take by the feed. On a machine that is busy with other tests
/// the longest of many calls says more of the machine.
const LONGEST_US: f64 = 1000.0;

/// Switches the length that the feed may have, where the server has settings.
#[track_caller]
fn set_maxlen(dialog: &mut Dialog, maxlen: i64) {
    dialog.expect(&format!("CONFIG SET seat.feed-maxlen {maxlen}"), "+OK");
}

#[test]
fn the_oldest_go_one_by_one_from_a_short_stream() {
    let (server, mut dialog) = with_feed().module_args("feed feed feed-maxlen 7").scene();
    for n in 0..20 {
        dialog.acquire("pool", &format!("s{n}"), 100, "{}");
        assert_eq!(dialog.number("XLEN feed"), 7.min(n + 1));
    }
    let seen = entries(&mut dialog);
    let sessions: Vec<_> = seen.iter().map(|entry| entry.field("session")).collect();
    assert_eq!(sessions, ["s13", "s14", "s15", "s16", "s17", "s18", "s19"]);
    nothing_failed(&server);
}

#[test]
fn a_lower_limit_is_reached_step_by_step_everywhere() {
    let (primary, mut dialog) = with_feed().tcp().scene();
    if primary.version() < (7, 0, 0) {
        // Without settings the limit cannot change at run time, but a longer stream can come.
        return lower_by_restart();
    }
    let replica = Server::builder().replica_of(&primary).start();
    dialog.ask_all((0..500).map(|n| format!("SEAT.ACQUIRE pool s{n} 1000")));
    set_maxlen(&mut dialog, 10);
    dialog.expect("XLEN feed", "500");
    let mut expected = 500;
    for n in 0..12 {
        dialog.acquire("pool", &format!("t{n}"), 1000, "{}");
        expected = (expected + 1 - BATCH).max(10);
        assert_eq!(dialog.number("XLEN feed"), expected);
        primary.wait_for_offset(&replica);
        Dialog::with(&replica).expect("XLEN feed", &expected.to_string());
    }
    assert_eq!(expected, 10);
    set_maxlen(&mut dialog, 12);
    dialog.acquire_all("pool", &["u1", "u2", "u3"], 1000);
    dialog.expect("XLEN feed", "12");
    primary.replica_agrees(&replica);
    nothing_failed(&primary);
}

/// The same where the limit is an argument of `loadmodule`.
#[track_caller]
fn lower_by_restart() {
    let (long, mut dialog) = with_feed().recording().scene();
    dialog.ask_all((0..500).map(|n| format!("SEAT.ACQUIRE pool s{n} 1000")));
    let builder = with_feed().module_args("feed feed feed-maxlen 10");
    let (_short, mut dialog) = builder.recording().data_of(&long).scene();
    let mut expected = 500;
    dialog.expect("XLEN feed", "500");
    for n in 0..12 {
        dialog.acquire("pool", &format!("t{n}"), 1000, "{}");
        expected = (expected + 1 - BATCH).max(10);
        assert_eq!(dialog.number("XLEN feed"), expected);
    }
    assert_eq!(expected, 10);
}

/// The mean of a command's calls so far, in microseconds.
#[track_caller]
fn mean_us(server: &Server, command: &str) -> f64 {
    let stats = &server.info("commandstats")[&format!("cmdstat_{command}")];
    let field = stats
        .split(',')
        .find_map(|field| field.strip_prefix("usec_per_call="));
    field.expect("a mean").parse().expect("a number")
}

#[test]
fn among_a_hundred_thousand_entries_no_command_is_long() {
    const ENTRIES: usize = 100_000;
    let builder = with_feed().module_args(&format!("feed feed feed-maxlen {ENTRIES}"));
    let (server, mut dialog) = builder.scene();
    let cycle = |n: usize| {
        [
            format!("SEAT.ACQUIRE pool-{} s{n} 1000 EX 600", n % 100),
            format!("SEAT.RELEASE pool-{} s{n}", n % 100),
        ]
    };
    dialog.ask_all((0..ENTRIES / 2).flat_map(cycle));
    dialog.expect("XLEN feed", &ENTRIES.to_string());
    dialog.expect("CONFIG RESETSTAT", "+OK");
    // Each appends one, and each hundredth trims a hundred.
    let mut longest = Vec::new();
    dialog.expect("CONFIG SET slowlog-log-slower-than 1000", "+OK");
    dialog.expect("CONFIG SET slowlog-max-len 1000", "+OK");
    for round in 0..20 {
        dialog.expect("SLOWLOG RESET", "+OK");
        let from = ENTRIES * (round + 1);
        dialog.ask_all((from..from + 5000).flat_map(cycle));
        let slow: Vec<(i64, i64, i64, Vec<String>, String, String)> =
            dialog.query("SLOWLOG GET -1");
        let slow = slow
            .into_iter()
            .filter(|entry| entry.3[0].starts_with("SEAT."));
        longest.push(slow.count());
        // Other processes hold up a few of ten thousand calls, wherever they are. What the stream
        // itself makes long comes with each hundredth entry, where a node of it begins or goes.
        if longest[round] <= 20 {
            break;
        }
    }
    let kept = ENTRIES as i64 - BATCH..=ENTRIES as i64;
    assert!(kept.contains(&dialog.number("XLEN feed")));
    assert!(
        longest.last().is_some_and(|&least| least <= 20),
        "commands of more than a millisecond: {longest:?}"
    );
    for command in ["seat.acquire", "seat.release"] {
        let mean_us = mean_us(&server, command);
        assert!(mean_us < LONGEST_US / 5.0, "{command}: {mean_us} us");
    }
    if server.version() < (7, 0, 0) {
        return;
    }
    // A limit that is lowered by nearly all holds up nobody either.
    set_maxlen(&mut dialog, 10);
    dialog.expect("CONFIG RESETSTAT", "+OK");
    let from = 10 * ENTRIES;
    dialog.ask_all((from..from + 1000).flat_map(cycle));
    assert_eq!(dialog.number("XLEN feed"), 10);
    for command in ["seat.acquire", "seat.release"] {
        let mean_us = mean_us(&server, command);
        assert!(mean_us < LONGEST_US / 2.0, "{command}: {mean_us} us");
    }
    nothing_failed(&server);
}
