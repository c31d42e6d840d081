//! A server that must not write for a while: the seats wait, nothing crashes, and primary and
//! replica stay alike.

use crate::support::{Dialog, Server, eventually, total, wait_for_reclaim};

#[test]
fn client_pause_puts_the_reclaim_off() {
    for (pause, end) in [
        ("CLIENT PAUSE 600000 WRITE", Some("CLIENT UNPAUSE")),
        ("CLIENT PAUSE 3000 WRITE", None),
        ("CLIENT PAUSE 300 ALL", None),
    ] {
        let (primary, replica) = Server::with_replica();
        let mut dialog = Dialog::with(&primary);
        let lines: Vec<String> = (0..100)
            .map(|n| format!("SEAT.ACQUIRE pool s{n} 200 PX 100"))
            .chain(["SEAT.ACQUIRE pool stays 200", pause].map(str::to_owned))
            .collect();
        dialog.at_once(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let deadline_ms = {
            // A pause of all clients stops this look, too, until it is over.
            let mut dialog = Dialog::with(&primary);
            dialog.now_ms() + 100
        };
        if pause.ends_with("WRITE") {
            dialog.wait_until(deadline_ms + 150);
            assert_eq!(dialog.ask("SEAT.COUNT pool"), "1", "{pause}");
            assert_eq!(total(&primary, "seat_expired"), 0, "{pause}");
            primary.wait_for_offset(&replica);
            assert_eq!(primary.digest(), replica.digest(), "{pause}");
        }
        if let Some(end) = end {
            dialog.ask(end);
        }
        wait_for_reclaim(&primary, 100);
        primary.wait_for_offset(&replica);
        assert_eq!(primary.digest(), replica.digest(), "{pause}");
        assert_eq!(
            Dialog::with(&replica).ask("SEAT.SESSIONS pool"),
            r#"["stays"]"#,
            "{pause}"
        );
        assert_eq!(total(&replica, "seat_ignored_effects"), 0, "{pause}");
    }
}

#[test]
fn a_failover_with_an_expiry_in_its_midst_loses_nothing() {
    let (primary, replica) = Server::with_replica();
    for (old, new) in [(&primary, &replica), (&replica, &primary)] {
        let expired = [total(old, "seat_expired"), total(new, "seat_expired")];
        let mut dialog = Dialog::with(old);
        dialog.ask("SEAT.ACQUIRE before a 9 EX 3600");
        dialog.ask("SEAT.ACQUIRE during stays 200 EX 3600");
        old.wait_for_offset(new);
        // The failover waits for the replica's word, which does not come before the leases have
        // ended.
        new.signal("STOP");
        let failover = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 20000", new.port());
        let lines: Vec<String> = (0..100)
            .map(|n| format!("SEAT.ACQUIRE during s{n} 200 PX 200"))
            .chain([failover])
            .collect();
        let replies = dialog.pipeline(&lines);
        assert_eq!(replies[100], "+OK");
        let deadline_ms = dialog.now_ms() + 200;
        let state = || old.info("replication")["master_failover_state"].clone();
        dialog.wait_until(deadline_ms + 50);
        assert_eq!(
            state(),
            "waiting-for-sync",
            "the failover was over before the expiry"
        );
        dialog.expect("SEAT.COUNT during", "1");
        new.signal("CONT");
        eventually("the roles are changed", || {
            state() == "no-failover"
                && old.info("replication")["role"] == "slave"
                && new.info("replication")["role"] == "master"
        });
        eventually("the new primary has reclaimed", || {
            Dialog::with(new).ask("SEAT.CLEANUP during") == "[0, 1]"
                && total(new, "seat_expired") == expired[1] + 100
        });
        new.replica_agrees(old);
        assert_eq!(total(old, "seat_expired"), expired[0]);
        for server in [old, new] {
            Dialog::with(server).expect("SEAT.SESSIONS during", r#"["stays"]"#);
            Dialog::with(server).expect("SEAT.SESSIONS before", r#"["a"]"#);
            assert_eq!(total(server, "seat_ignored_effects"), 0);
        }
    }
}

#[test]
fn a_failover_called_off_leaves_reclaim_to_the_old_primary() {
    let (primary, replica) = Server::with_replica();
    replica.signal("STOP");
    let mut dialog = Dialog::with(&primary);
    let replies = dialog.pipeline(&["SEAT.ACQUIRE pool a 9 PX 100", "FAILOVER TIMEOUT 20000"]);
    assert_eq!(replies, ["[1, ACQUIRED, 1, 9, 100]", "+OK"]);
    let deadline_ms = dialog.now_ms() + 100;
    dialog.wait_until(deadline_ms + 50);
    assert_eq!(total(&primary, "seat_expired"), 0);
    dialog.expect("FAILOVER ABORT", "+OK");
    replica.signal("CONT");
    wait_for_reclaim(&primary, 1);
    primary.replica_agrees(&replica);
    Dialog::with(&replica).expect("DBSIZE", "0");
}
