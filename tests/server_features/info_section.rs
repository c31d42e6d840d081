//! INFO seat.

use crate::support::{Dialog, Server, Waiter, total, total_becomes, totals};

#[test]
fn the_totals_count_what_happened() {
    let (server, mut dialog) = Server::scene();
    let names: Vec<_> = totals(&server)
        .into_iter()
        .map(|(name, value)| {
            assert_eq!(value, "0", "{name}");
            name
        })
        .collect();
    assert_eq!(
        names,
        [
            "seat_acquired",
            "seat_already_active",
            "seat_blocked_clients",
            "seat_denied",
            "seat_expired",
            "seat_exported",
            "seat_feed_entries",
            "seat_feed_errors",
            "seat_grant_hold_ms",
            "seat_granted",
            "seat_heartbeats",
            "seat_ignored_effects",
            "seat_imported",
            "seat_lease_floor_ms",
            "seat_left",
            "seat_owner_limit",
            "seat_queued",
            "seat_released",
            "seat_replaced",
            "seat_revoked",
            "seat_script_calls",
            "seat_script_key_pools",
            "seat_script_key_scan",
            "seat_script_reads",
            "seat_tickets",
        ]
    );
    for (field, commands) in [
        (
            "seat_acquired",
            &[
                "SEAT.ACQUIRE pool a 3",
                "SEAT.ACQUIRE pool b 3",
                "SEAT.ACQUIRE pool c 3",
                "SEAT.ACQUIRE other a 1",
            ][..],
        ),
        (
            "seat_already_active",
            &["SEAT.ACQUIRE pool a 3", "SEAT.ACQUIRE pool a 0"],
        ),
        (
            "seat_denied",
            &[
                "SEAT.ACQUIRE pool d 3",
                "SEAT.ACQUIRE other b 1",
                "SEAT.ACQUIRE none b 0",
            ],
        ),
        (
            "seat_heartbeats",
            &[
                "SEAT.HEARTBEAT pool a",
                "SEAT.HEARTBEAT pool a",
                "SEAT.HEARTBEAT pool b",
            ],
        ),
        (
            "seat_released",
            &["SEAT.RELEASE pool a", "SEAT.RELEASE other a"],
        ),
        ("seat_revoked", &["SEAT.REVOKE pool x b c b"]),
    ] {
        let before = totals(&server);
        for command in commands {
            dialog.succeeds(command);
        }
        let count = if field == "seat_revoked" {
            2
        } else {
            commands.len() as u64
        };
        assert_eq!(total(&server, field), count, "{field}");
        let others = |totals: Vec<(String, String)>| -> Vec<_> {
            totals
                .into_iter()
                .filter(|(name, _)| name != field)
                .collect()
        };
        assert_eq!(others(totals(&server)), others(before), "{field} alone");
    }
    let before = totals(&server);
    for command in [
        "SEAT.RELEASE pool x",
        "SEAT.HEARTBEAT pool x",
        "SEAT.REVOKE pool x",
        "SEAT.COUNT pool",
        "SEAT.ACQUIRE pool x y",
    ] {
        dialog.ask(command);
    }
    assert_eq!(totals(&server), before);
}

#[test]
fn the_totals_are_a_section_of_info_everything() {
    let server = Server::start();
    let text = Dialog::with(&server).bytes(&["INFO", "everything"]);
    let text = String::from_utf8(text).expect("UTF-8");
    assert!(text.contains("\r\nseat_acquired:0\r\n"), "{text}");
    let plain = Dialog::with(&Server::plain()).bytes(&["INFO", "seat"]);
    assert!(!String::from_utf8_lossy(&plain).contains("seat_"));
}

#[test]
fn grants_less_freed_seats_are_the_seats_in_use() {
    let (server, mut dialog) = Server::scene();
    dialog.acquire_all("pool", &["a", "b"], 3);
    dialog.begins("SEAT.ACQUIRE pool c 3 PX 1", "[1, ACQUIRED");
    total_becomes(&server, "seat_expired", 1);
    dialog.acquire("pool", "d", 3, "{}");
    let in_use = |dialog: &mut Dialog| {
        let freed = ["seat_released", "seat_revoked", "seat_expired"];
        let freed: u64 = freed.iter().map(|field| total(&server, field)).sum();
        let left = total(&server, "seat_acquired") - freed;
        assert_eq!(dialog.number("SEAT.COUNT pool"), left as i64);
        left
    };
    assert_eq!(in_use(&mut dialog), 3);
    for (session, options) in [("e", "BLOCK 0"), ("f", "QUEUE 60000 BLOCK 0")] {
        let released = total(&server, "seat_released");
        let command = format!("SEAT.ACQUIRE pool {} 3 {options}", session);
        let waiter = Waiter::of(&server, &command);
        dialog.transaction(&[&waiter.kill(), "SEAT.RELEASE pool a"]);
        total_becomes(&server, "seat_released", released + 2);
        assert_eq!(in_use(&mut dialog), 2);
        dialog.ask(&format!("SEAT.RELEASE pool {}", session));
        dialog.acquire("pool", "a", 3, "{}");
    }
    dialog.expect("SEAT.REVOKE pool b d", "2");
    assert_eq!(in_use(&mut dialog), 1);
}
