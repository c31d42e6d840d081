//! The key goes, or another value takes its name.

use super::two_waiters;
use crate::support::{Builder, Dialog, Server, Waiter, eventually, nobody_is_blocked, total};

const GRANTED: &str = "[1, ACQUIRED, 1, 1]";
const WRONGTYPE: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn those_at_a_key_that_goes_are_served_in_order_under_a_new_pool() {
    for going in [
        "DEL pool",
        "UNLINK pool",
        "GETDEL text|DEL pool",
        "FLUSHDB",
        "FLUSHDB ASYNC",
        "FLUSHALL",
        "FLUSHALL SYNC",
        "FLUSHALL ASYNC",
        "PEXPIRE pool 1",
        "EXPIRE pool -1",
        "PEXPIREAT pool 1",
        "RENAME pool away",
        "RENAMENX pool away",
        "MOVE pool 7",
        "SWAPDB 0 7",
        "SWAPDB 7 0",
        "SET pool text|DEL pool",
        "RENAME text pool|DEL pool",
    ] {
        for in_transaction in [false, true] {
            let (server, mut dialog) = Server::full_pool();
            dialog.expect("SET text x", "+OK");
            let [mut first, mut second] = two_waiters(&server);
            let commands: Vec<&str> = going.split('|').collect();
            if in_transaction || commands.len() > 1 {
                let replies = dialog.transaction(&commands);
                assert!(!replies.contains('!'), "{going}: {replies}");
            } else {
                let reply = dialog.ask(going);
                assert!(!reply.contains('!'), "{going}: {reply}");
            }
            first.hears(GRANTED);
            assert_eq!(dialog.queue("pool"), ["c"], "{going}");
            assert_eq!(dialog.sessions("pool"), ["b"], "{going}");
            dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
            second.hears(GRANTED);
            dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
            dialog.one_seat_is_free("pool");
            nobody_is_blocked(&server);
            // What was moved away is as it was.
            for way in ["RENAME", "MOVE", "SWAPDB"] {
                if going.starts_with(way) && !going.contains("text") {
                    let away = if way == "RENAME" { "away" } else { "pool" };
                    if way != "RENAME" {
                        dialog.expect("SELECT 7", "+OK");
                    }
                    assert_eq!(dialog.sessions(away), ["a"], "{going}");
                    assert_eq!(dialog.queue(away), [""; 0], "{going}");
                }
            }
        }
    }
}

#[test]
fn a_script_that_deletes_the_key_serves_those_who_wait_too() {
    for script in [
        "return redis.call('DEL', KEYS[1])",
        "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], 'x') return redis.call('DEL', KEYS[1])",
        "redis.call('SEAT.RELEASE', KEYS[1], 'a') return redis.call('DEL', KEYS[1])",
    ] {
        let (server, mut dialog) = Server::full_pool();
        let [mut first, mut second] = two_waiters(&server);
        dialog.eval(script, &["pool"]);
        first.is_granted();
        second_or_queue(&mut dialog, &mut second, script.contains("RELEASE"));
        dialog.one_seat_is_free("pool");
        nobody_is_blocked(&server);
    }
}

/// `b` was granted a seat; if its pool was deleted after that, `c` has followed it under a new one.
fn second_or_queue(dialog: &mut Dialog, second: &mut Waiter, deleted_after: bool) {
    if !deleted_after {
        dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
    }
    second.hears(GRANTED);
    assert_eq!(dialog.sessions("pool"), ["c"]);
    dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
}

const SENT_AWAY: &str = "!TRYAGAIN This node no longer serves this pool; retry";

/// The pool is full, `b` and `c` are blocked there, `d` with a ticket; there is a second server
/// without keys.
fn two_servers() -> (Server, Dialog, [Waiter; 3], Server, Dialog) {
    let (here, mut dialog) = Server::builder().tcp().full_pool();
    let there = Server::builder().tcp().start();
    let [first, second] = two_waiters(&here);
    let third = Waiter::of(&here, "SEAT.ACQUIRE pool d 1 QUEUE 60000 BLOCK 0");
    dialog.queue_becomes("pool", &["b", "c", "d"]);
    let other = Dialog::with(&there);
    (here, dialog, [first, second, third], there, other)
}

fn migrate(there: &Server, options: &str) -> String {
    format!("MIGRATE 127.0.0.1 {} {options}", there.port())
}

#[test]
fn a_migrating_pool_grants_nothing_and_sends_waiters_away() {
    for options in [
        "pool 0 5000",
        "\"\" 0 5000 KEYS text pool",
        "pool 0 5000 REPLACE",
    ] {
        for way in ["plain", "MULTI", "EVAL"] {
            let (here, mut dialog, mut waiters, there, mut other) = two_servers();
            dialog.expect("SET text x", "+OK");
            let command = migrate(&there, options);
            let words: Vec<_> = command
                .split(' ')
                .map(|word| word.trim_matches('"'))
                .collect();
            match way {
                "plain" => assert_eq!(dialog.ask_args(&words), "+OK"),
                "MULTI" => {
                    // Nobody is served by what follows in the same turn either.
                    dialog.expect("MULTI", "+OK");
                    dialog.ask_args(&words);
                    for command in [
                        "SEAT.RELEASE pool a",
                        "SEAT.CLEANUP pool",
                        "SEAT.COUNT pool",
                    ] {
                        dialog.expect(command, "+QUEUED");
                    }
                    dialog.expect("EXEC", "[+OK, [0, SESSION_NOT_FOUND], [0, 0], 0]");
                }
                _ => {
                    let script = "return redis.call(unpack(ARGV))";
                    let arguments = [&["EVAL", script, "0"], &words[..]].concat();
                    assert_eq!(dialog.ask_args(&arguments), "+OK");
                }
            }
            for waiter in &mut waiters {
                waiter.hears(SENT_AWAY);
            }
            nobody_is_blocked(&here);
            assert_eq!(total(&here, "seat_granted"), 0, "{options} {way}");
            dialog.expect("EXISTS pool", "0");
            assert_eq!(other.sessions("pool"), ["a"], "{options} {way}");
            assert_eq!(other.queue("pool"), ["d"], "{options} {way}");
            // The name is as any other again.
            dialog.acquire("pool", "a", 1, "{}");
            let mut waiter = Waiter::of(&here, "SEAT.ACQUIRE pool b 1 BLOCK 0");
            dialog.expect("DEL pool", "1");
            waiter.hears(GRANTED);
        }
    }
}

#[test]
fn a_copy_that_goes_elsewhere_is_no_departure() {
    let (here, mut dialog, mut waiters, there, mut other) = two_servers();
    dialog.expect(&migrate(&there, "pool 0 5000 COPY"), "+OK");
    assert_eq!(other.sessions("pool"), ["a"]);
    // The target has it already, so it stays here.
    dialog.contains(&migrate(&there, "pool 0 5000"), "BUSYKEY");
    dialog.expect("SAVE", "+OK");
    dialog.bytes(&["DUMP", "pool"]);
    // The timer has run since: the expiry of another pool's lease shows it.
    dialog.expect("SEAT.ACQUIRE other x 1 PX 20", "[1, ACQUIRED, 1, 1, 20]");
    eventually("the lease has expired", || {
        dialog.number("EXISTS other") == 0
    });
    dialog.expect("DEL pool", "1");
    waiters[0].hears(GRANTED);
    assert_eq!(total(&here, "seat_granted"), 1);
}

#[test]
fn a_new_pool_after_a_migration_serves_those_who_wait() {
    let (here, mut dialog, mut waiters, there, _) = two_servers();
    let migrate = migrate(&there, "pool 0 5000");
    let replies = dialog.transaction(&[&migrate, "SEAT.ACQUIRE pool e 9"]);
    assert_eq!(replies, "[+OK, [1, ACQUIRED, 1, 9]]");
    assert_eq!(dialog.queue("pool"), ["b", "c", "d"]);
    dialog.expect("SEAT.RESIZE pool 9", "3");
    for (waiter, used) in waiters.iter_mut().zip(2..) {
        waiter.hears(&format!("[1, ACQUIRED, {used}, 9]"));
    }
    assert_eq!(dialog.sessions("pool"), ["b", "c", "d", "e"]);
    assert_eq!(total(&here, "seat_granted"), 3);
    dialog.expect("DEL pool", "1");
    nobody_is_blocked(&here);
}

#[test]
fn who_joins_in_the_turn_of_a_migration_has_nobody_served() {
    let (here, mut dialog, mut waiters, there, _) = two_servers();
    let migrate = migrate(&there, "pool 0 5000");
    let join = "SEAT.ACQUIRE pool e 1 QUEUE 60000";
    let replies = dialog.transaction(&[&migrate, join]);
    assert_eq!(replies, "[+OK, [0, QUEUED, 0, 1, 4]]");
    for waiter in &mut waiters {
        waiter.hears(SENT_AWAY);
    }
    assert_eq!(total(&here, "seat_granted"), 0);
    assert_eq!(dialog.queue("pool"), ["e"]);
    dialog.expect(join, "[1, ACQUIRED, 1, 1]");
}

#[test]
fn a_wait_that_ends_as_its_pool_migrates_is_no_denial() {
    let (here, mut dialog, _waiters, there, _) = two_servers();
    let mut late = here.accepted();
    here.stands_still(|| {
        late.send("SEAT.ACQUIRE pool e 1 BLOCK 500");
        // When the server looks at the clock again, the time is over and the pool is gone.
        let migrate = migrate(&there, "pool 0 5000");
        dialog.send_all(&["MULTI", "DEBUG SLEEP 0.6", &migrate, "EXEC"]);
    });
    for reply in ["+OK", "+QUEUED", "+QUEUED", "[+OK, +OK]"] {
        dialog.hears(reply);
    }
    late.hears(SENT_AWAY);
}

#[test]
fn each_waiter_at_a_missing_key_states_its_own_limit() {
    let (server, mut dialog) = Server::full_pool();
    let mut first = Waiter::of(&server, r#"SEAT.ACQUIRE pool b 1 {"k":1} PX 60000 BLOCK 0"#);
    let mut second = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    let before = total(&server, "seat_granted");
    dialog.expect("DEL pool", "1");
    first.hears("[1, ACQUIRED, 1, 1, 60000]");
    dialog.begins("SEAT.GET pool b", r#""{"k":1,"acquired_at":"#);
    dialog.expect("SEAT.REVOKE pool b", "1");
    second.hears(GRANTED);
    assert_eq!(total(&server, "seat_granted"), before + 2);
}

/// Puts a pool at `pool` that has been prepared in `other`, or in database 7.
const ARRIVALS: [&str; 7] = [
    "RENAME other pool",
    "DEL pool|RENAMENX other pool",
    "COPY other pool REPLACE",
    "RESTORE",
    "SWAPDB 0 7",
    "SWAPDB 7 0",
    "DEL pool|SELECT 7|MOVE pool 0|SELECT 0",
];

/// Prepares such a pool with `sessions` and the limit 3, and lets it arrive.
fn arrive(dialog: &mut Dialog, how: &str, sessions: &[&str]) {
    let (key, database) = if how.contains('7') {
        ("pool", 7)
    } else {
        ("other", 0)
    };
    dialog.expect(&format!("SELECT {database}"), "+OK");
    for session in sessions {
        dialog.acquire(key, session, 3, "{}");
    }
    dialog.expect("SELECT 0", "+OK");
    if how == "RESTORE" {
        let payload = dialog.bytes(&["DUMP", "other"]);
        let restore: [&[u8]; 5] = [b"RESTORE", b"pool", b"0", &payload, b"REPLACE"];
        assert_eq!(dialog.ask_args(&restore), "+OK");
    } else {
        let replies = dialog.transaction(&how.split('|').collect::<Vec<_>>());
        assert!(!replies.contains('!'), "{how}: {replies}");
    }
}

/// A pool whose three seats are held.
fn full_pool_of_three(builder: Builder) -> (Server, Dialog) {
    let (server, mut dialog) = builder.full_pool();
    dialog.acquire_all("pool", &["a2", "a3"], 3);
    (server, dialog)
}

/// `b` and `c`, blocked in this order for one of the three seats of `pool`.
fn two_waiters_of_three(server: &Server) -> [Waiter; 2] {
    ["b", "c"].map(|session| Waiter::of(server, &format!("SEAT.ACQUIRE pool {session} 3 BLOCK 0")))
}

#[test]
fn those_at_a_name_that_another_pool_takes_are_served_under_that() {
    for how in ARRIVALS {
        let (server, mut dialog) = full_pool_of_three(Server::builder());
        let [mut first, mut second] = two_waiters_of_three(&server);
        arrive(&mut dialog, how, &["x"]);
        first.hears("[1, ACQUIRED, 2, 3]");
        second.hears("[1, ACQUIRED, 3, 3]");
        assert_eq!(dialog.sessions("pool"), ["b", "c", "x"], "{how}");
        assert_eq!(dialog.queue("pool"), [""; 0], "{how}");
        dialog.expect("SEAT.ACQUIRE pool d 3", "[0, NO_SEATS_AVAILABLE, 3, 3]");
    }
}

#[test]
fn those_at_a_name_that_a_full_pool_takes_wait_on() {
    for how in ARRIVALS {
        let (server, mut dialog) = full_pool_of_three(Server::builder());
        let [mut first, mut second] = two_waiters_of_three(&server);
        arrive(&mut dialog, how, &["x", "y", "z"]);
        assert_eq!(dialog.queue("pool"), ["b", "c"], "{how}");
        dialog.expect("SEAT.RELEASE pool y", "[1, RELEASED, 3]");
        first.hears("[1, ACQUIRED, 3, 3]");
        assert_eq!(dialog.queue("pool"), ["c"], "{how}");
        dialog.expect("SEAT.REVOKE pool x z", "2");
        second.is_granted();
        assert_eq!(dialog.sessions("pool"), ["b", "c"], "{how}");
    }
}

#[test]
fn a_waiter_who_holds_a_seat_in_an_arrived_pool_gets_its_lease() {
    for how in ARRIVALS {
        let (server, mut dialog) = full_pool_of_three(Server::builder().recording());
        let mut first = Waiter::of(&server, "SEAT.ACQUIRE pool b 3 {} EX 60 BLOCK 0");
        let mut second = Waiter::of(&server, "SEAT.ACQUIRE pool c 3 BLOCK 0");
        // No seat is free there, and none becomes free.
        arrive(&mut dialog, how, &["b", "y", "z"]);
        first.hears("[1, ALREADY_ACTIVE, 3, 60000]");
        let left_ms = dialog.number("SEAT.PTTL pool b");
        assert!((1..=60_000).contains(&left_ms), "{how}: {left_ms}");
        assert_eq!(dialog.queue("pool"), ["c"], "{how}");
        assert_eq!(total(&server, "seat_already_active"), 1, "{how}");
        dialog.expect("SEAT.RELEASE pool z", "[1, RELEASED, 3]");
        second.hears("[1, ACQUIRED, 3, 3]");
        let digest = server.digest();
        dialog.expect("DEBUG LOADAOF", "+OK");
        assert_eq!(server.digest(), digest, "{how}");
    }
}

#[test]
fn all_waiters_who_hold_seats_in_an_arrived_pool_hear_so() {
    let (server, mut dialog) = Server::full_pool();
    let mut holders: Vec<Waiter> = (0..150)
        .map(|n| {
            dialog.acquire("other", &format!("s{n}"), 150, "{}");
            Waiter::of(&server, &format!("SEAT.ACQUIRE pool s{n} 1 BLOCK 0"))
        })
        .collect();
    let replies = dialog.transaction(&["RENAME other pool", "SEAT.QUEUE pool", "SEAT.INFO pool"]);
    assert!(!replies.contains('!'), "{replies}");
    for holder in &mut holders {
        holder.hears("[1, ALREADY_ACTIVE, 150]");
    }
    assert_eq!(dialog.queue("pool"), [""; 0]);
    nobody_is_blocked(&server);
}

#[test]
fn a_wait_that_ends_before_the_timer_reports_a_held_seat() {
    let (server, mut dialog) = Server::full_pool();
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 {} EX 60 BLOCK 0");
    dialog.acquire("other", "b", 1, "{}");
    let id = waiter.id();
    let unblock = format!("CLIENT UNBLOCK {id} TIMEOUT");
    dialog.transaction(&["RENAME other pool", &unblock]);
    // Nothing may be written then, so there is no lease where one was asked for.
    waiter.hears("[1, ALREADY_ACTIVE, 1, nil]");
    nobody_is_blocked(&server);
    assert_eq!(dialog.queue("pool"), [""; 0]);
    assert_eq!(dialog.sessions("pool"), ["b"]);
}

#[test]
fn a_waiter_whose_session_holds_a_seat_only_amid_a_load_waits_on() {
    let (server, mut dialog) = Server::builder().recording().scene();
    dialog.expect("SEAT.ACQUIRE pool b 1", GRANTED);
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    dialog.expect("SEAT.ACQUIRE pool a 1", GRANTED);
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 {} EX 60 BLOCK 0");
    dialog.expect("DEBUG LOADAOF", "+OK");
    assert_eq!(dialog.queue("pool"), ["b"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    waiter.hears("[1, ACQUIRED, 1, 1, 60000]");
}

#[test]
fn tickets_go_with_the_pool_and_blocked_clients_with_the_name() {
    let (server, mut dialog) = Server::full_pool();
    let mut poll = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 0");
    dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", "[0, QUEUED, 1, 1, 2]");
    dialog.acquire("other", "x", 1, "{}");
    dialog.expect("SEAT.ACQUIRE other u 1 QUEUE 60000", "[0, QUEUED, 1, 1, 1]");
    dialog.expect("RENAMENX other gone", "1");
    dialog.transaction(&["RENAME pool away", "RENAME gone pool"]);
    assert_eq!(dialog.queue("pool"), ["b", "u"]);
    assert_eq!(dialog.pool_info("pool", "waiting"), 2);
    dialog.expect("SEAT.POSITION pool u", "2");
    assert_eq!(dialog.queue("away"), ["b", "t"]);
    assert_eq!(dialog.pool_info("away", "waiting"), 2);
    dialog.expect("SEAT.RELEASE pool x", "[1, RELEASED, 1]");
    poll.hears(GRANTED);
    assert_eq!(dialog.queue("pool"), ["u"]);
}

#[test]
fn those_at_a_key_that_another_type_takes_hear_wrongtype() {
    for overwriting in [
        "SET pool x",
        "SET pool x EX 9",
        "MSET one 1 pool x",
        "RENAME text pool",
        "COPY text pool REPLACE",
        "BITOP NOT pool text",
        "SUNIONSTORE pool set",
        "SORT list BY nosort STORE pool",
        "DEL pool|LPUSH pool x",
        "UNLINK pool|SET pool x",
        "RESTORE",
    ] {
        let (server, mut dialog) = Server::full_pool();
        dialog.expect("SET text x", "+OK");
        dialog.expect("SADD set x", "1");
        dialog.expect("RPUSH list x", "1");
        let [mut first, mut second] = two_waiters(&server);
        let mut poll = Waiter::of(&server, "SEAT.ACQUIRE pool d 1 QUEUE 60000 BLOCK 0");
        let reply = if overwriting == "RESTORE" {
            let payload = dialog.bytes(&["DUMP", "text"]);
            let restore: [&[u8]; 5] = [b"RESTORE", b"pool", b"0", &payload, b"REPLACE"];
            dialog.ask_args(&restore)
        } else {
            dialog.transaction(&overwriting.split('|').collect::<Vec<_>>())
        };
        assert!(!reply.contains('!'), "{overwriting}: {reply}");
        for waiter in [&mut first, &mut second, &mut poll] {
            waiter.hears(WRONGTYPE);
        }
        nobody_is_blocked(&server);
        dialog.expect("SEAT.QUEUE pool", WRONGTYPE);
        dialog.expect("DEL pool", "1");
        dialog.one_seat_is_free("pool");
    }
}

#[test]
fn those_at_an_evicted_key_are_served() {
    let (server, mut dialog) = Server::builder()
        .config("maxmemory-policy allkeys-random")
        .full_pool();
    let [mut first, mut second] = two_waiters(&server);
    dialog.expect("CONFIG SET maxmemory 1", "+OK");
    eventually("the pool is evicted", || {
        server.info("stats")["evicted_keys"] != "0"
    });
    first.hears(GRANTED);
    dialog.expect("CONFIG SET maxmemory 0", "+OK");
    // The pool of the first may have been evicted as well by then.
    dialog.ask("SEAT.RELEASE pool b");
    second.is_granted();
    assert_eq!(dialog.sessions("pool"), ["c"]);
    dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}

#[test]
fn those_who_waited_before_a_reload_wait_on_after_it() {
    let (server, mut dialog) = Server::full_pool();
    let [mut first, _second] = two_waiters(&server);
    dialog.expect("DEBUG RELOAD", "+OK");
    assert_eq!(dialog.queue("pool"), ["b", "c"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    first.hears(GRANTED);
    assert_eq!(dialog.queue("pool"), ["c"]);
}

#[test]
fn many_who_wait_at_a_key_that_goes_are_all_answered() {
    let (server, mut dialog) = Server::full_pool();
    for number in 1..150 {
        dialog.acquire("pool", &format!("a{number}"), 150, "{}");
    }
    let block = |number| Waiter::of(&server, &format!("SEAT.ACQUIRE pool s{number} 150 BLOCK 0"));
    let mut waiters: Vec<_> = (0..200).map(block).collect();
    dialog.acquire("other", "x", 150, "{}");
    dialog.expect("RENAME other pool", "+OK");
    for (at, waiter) in waiters[..149].iter_mut().enumerate() {
        waiter.hears(&format!("[1, ACQUIRED, {}, 150]", at + 2));
    }
    assert_eq!(dialog.queue("pool").len(), 51);
    dialog.expect("SET pool x", "+OK");
    for waiter in &mut waiters[149..] {
        waiter.hears(WRONGTYPE);
    }
    nobody_is_blocked(&server);
}
