//! Ids only rise.

use super::{Entry, Reader, entries, nothing_failed, with_feed};
#[cfg(target_os = "linux")]
use crate::clock::Clock;
use crate::support::{Dialog, Server, now_ms};

#[track_caller]
fn rise(entries: &[Entry]) {
    let ids: Vec<_> = entries.iter().map(Entry::id).collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
}

#[test]
fn they_go_by_the_clock_and_by_one_within_a_millisecond() {
    let (_server, mut dialog) = with_feed().scene();
    let before_ms = now_ms();
    let script = "for i = 1, 200 do redis.call('SEAT.ACQUIRE', 'pool', i, 1000) end";
    dialog.eval(script, &["pool"]);
    let seen = entries(&mut dialog);
    assert_eq!(seen.len(), 200);
    rise(&seen);
    let (ms, _) = seen.last().expect("an entry").id();
    assert!((before_ms..=now_ms()).contains(&i64::try_from(ms).expect("a time")));
}

#[test]
fn above_an_id_that_somebody_added_by_hand() {
    let (server, mut dialog) = with_feed().scene();
    dialog.acquire("pool", "a", 9, "{}");
    dialog.expect(
        "XADD feed 99999999999999-7 by hand",
        r#""99999999999999-7""#,
    );
    dialog.acquire("pool", "b", 9, "{}");
    dialog.acquire("pool", "c", 9, "{}");
    let seen = entries(&mut dialog);
    rise(&seen);
    let last: Vec<&str> = seen[2..].iter().map(|entry| entry.id.as_str()).collect();
    assert_eq!(last, ["99999999999999-8", "99999999999999-9"]);
    // They go on from there in a stream made anew, and in another database.
    dialog.expect("DEL feed", "1");
    dialog.acquire("pool", "d", 9, "{}");
    assert_eq!(entries(&mut dialog)[0].id, "99999999999999-10");
    dialog.expect("SELECT 1", "+OK");
    dialog.acquire("pool", "e", 9, "{}");
    assert_eq!(entries(&mut dialog)[0].id, "99999999999999-11");
    nothing_failed(&server);
}

#[test]
fn above_those_of_a_stream_that_was_removed_within_the_same_unit() {
    let (server, mut dialog) = with_feed().recording().tcp().scene();
    let replica = Server::builder().replica_of(&server).start();
    let mut all = Vec::new();
    for n in 0..50 {
        let script = format!(
            "redis.call('SEAT.ACQUIRE', 'pool', 'a{n}', 1000) \
             redis.call('DEL', 'feed') \
             redis.call('SEAT.ACQUIRE', 'pool', 'b{n}', 1000) \
             redis.call('XADD', 'feed', '*', 'by', 'hand') \
             redis.call('SEAT.ACQUIRE', 'pool', 'c{n}', 1000)"
        );
        if n % 10 == 0 {
            dialog.acquire("pool", &format!("z{n}"), 1000, "{}");
            all.extend(entries(&mut dialog).pop());
        }
        dialog.eval(&script, &["pool", "feed"]);
        let seen = entries(&mut dialog);
        let sessions: Vec<_> = seen.iter().map(|entry| entry.get("session")).collect();
        let (b, c) = (format!("b{n}"), format!("c{n}"));
        assert_eq!(sessions, [Some(b.as_str()), None, Some(&c)]);
        // What was added by hand has a stream's own id, which nobody keeps above the others'.
        all.extend(seen.into_iter().filter(|entry| entry.get("by").is_none()));
    }
    rise(&all);
    server.replica_agrees(&replica);
    nothing_failed(&replica);
    server.reloads_the_same("DEBUG LOADAOF");
    nothing_failed(&server);
}

#[test]
fn a_stream_whose_last_id_is_the_last_of_all_takes_no_more() {
    let (server, mut dialog) = with_feed().scene();
    dialog.succeeds("XADD feed 18446744073709551615-18446744073709551615 by hand");
    dialog.expect("SEAT.ACQUIRE pool a 9", "[1, ACQUIRED, 1, 9]");
    dialog.expect("XLEN feed", "1");
    assert_eq!(crate::support::total(&server, "seat_feed_errors"), 1);
    dialog.expect("DEL feed", "1");
    dialog.expect("SEAT.ACQUIRE pool b 9", "[1, ACQUIRED, 2, 9]");
    dialog.expect("XLEN feed", "1");
    let (ms, _) = entries(&mut dialog)[0].id();
    assert!(ms < 99_999_999_999_999, "what was refused leaves no trace");
}

#[test]
fn a_restart_goes_on_above_what_is_in_the_log() {
    let (mut server, mut dialog) = with_feed().recording().scene();
    dialog.succeeds("XADD feed 99999999999999-7 by hand");
    dialog.acquire("pool", "a", 9, "{}");
    server.restart();
    let mut dialog = Dialog::with(&server);
    // Also without the stream: the log said which ids there were.
    dialog.expect("DEL feed", "1");
    dialog.acquire("pool", "b", 9, "{}");
    assert_eq!(entries(&mut dialog)[0].id, "99999999999999-9");
}

#[cfg(target_os = "linux")]
#[test]
fn a_clock_that_steps_back_takes_no_id_back() {
    let clock = Clock::ahead_by(3600);
    let (server, mut dialog) = clock.of(with_feed()).scene();
    let mut feed = Reader::of(&server, "feed");
    dialog.acquire("pool", "a", 9, "{}");
    clock.step_ahead_to(0, &mut dialog);
    dialog.acquire("pool", "b", 9, "{}");
    dialog.expect("DEL feed", "1");
    dialog.acquire("pool", "c", 9, "{}");
    dialog.expect("DEL pool", "1");
    feed.last = "0-0".to_owned();
    let seen = feed.until("a drop", |new| new.len() == 2);
    rise(&seen);
    let ahead_ms = i64::try_from(seen[0].id().0).expect("a time") - now_ms();
    assert!((3_400_000..=3_600_000).contains(&ahead_ms), "{ahead_ms}");
    nothing_failed(&server);
}

#[cfg(target_os = "linux")]
#[test]
fn a_promoted_node_whose_clock_is_behind_goes_on_above() {
    let (ahead, behind) = (Clock::ahead_by(3600), Clock::ahead_by(0));
    let primary = ahead.of(with_feed()).tcp().start();
    let replica = behind.of(with_feed()).replica_of(&primary).start();
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 9, "{}");
    primary.wait_for_offset(&replica);
    dialog.acquire("pool", "b", 9, "{}");
    dialog.expect("DEL feed", "1");
    primary.wait_for_offset(&replica);
    let mut promoted = Dialog::with(&replica);
    promoted.expect("REPLICAOF NO ONE", "+OK");
    promoted.acquire("pool", "c", 9, "{}");
    promoted.acquire("pool", "d", 9, "{}");
    let seen = entries(&mut promoted);
    rise(&seen);
    let ahead_ms = i64::try_from(seen[0].id().0).expect("a time") - now_ms();
    assert!((3_400_000..=3_600_000).contains(&ahead_ms), "{ahead_ms}");
    nothing_failed(&replica);
}
