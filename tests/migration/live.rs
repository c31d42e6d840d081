//! Old callers and new ones at once, and the moment at which the module comes to a server that is
//! at work.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::{ACQUIRE, HEARTBEAT, RELEASE, SHAS, all_settings, load, with_migration};
use crate::overbooking::{Speech, judge, pools};
use crate::support::{Dialog, Server, eventually, total};

const OWN_CALLS: Speech<'static> = Speech::Scripts([SHAS[0], SHAS[2], SHAS[1]]);

#[test]
fn callers_of_scripts_and_of_commands_share_the_seats() {
    let server = with_migration().start();
    let speech = |n: usize| {
        if n.is_multiple_of(2) {
            Speech::Commands
        } else {
            OWN_CALLS
        }
    };
    judge(&server, speech, || {});
    readers_agree(&server);
    assert!(total(&server, "seat_script_calls") > 1000);
}

/// What the legacy keys show is what the commands show.
#[track_caller]
fn readers_agree(server: &Server) {
    let mut dialog = Dialog::with(server);
    for pool in pools() {
        let (set, hash) = (
            format!("license:{pool}:active_sessions"),
            format!("license:{pool}:session_metadata"),
        );
        let sessions = dialog.sessions(&pool);
        let members: BTreeSet<String> = listed(&mut dialog, &["SMEMBERS", &set]);
        assert_eq!(members, sessions.iter().cloned().collect(), "{pool}");
        dialog.expect(&format!("SCARD {set}"), &sessions.len().to_string());
        dialog.expect(&format!("HLEN {hash}"), &sessions.len().to_string());
        for session in sessions {
            let json = dialog.ask(&format!("SEAT.GET {pool} {session}"));
            dialog.expect(&format!("HGET {hash} {session}"), &json);
        }
    }
}

fn listed(dialog: &mut Dialog, command: &[&str]) -> BTreeSet<String> {
    let reply = redis::parse_redis_value(&dialog.raw(command)).expect("a reply");
    redis::from_redis_value(reply).expect("texts")
}

/// A copy of the acquire script that nobody has listed.
fn unlisted() -> String {
    format!("-- the billing service's copy\n{ACQUIRE}")
}

#[derive(Clone, Copy, PartialEq)]
enum First {
    Commands,
    OwnCalls,
}

/// The module comes to a server with thousands of sessions in the legacy keys, on which callers
/// of the scripts are at work. A quarter of those acquire by a script that is not listed; another
/// quarter begins to use the commands as soon as there are such.
fn comes_to_a_server_at_work(first: First) {
    const HELD: usize = 4000;
    let (server, mut dialog) = Server::builder().plain().scene();
    let acquire = load(&mut dialog, ACQUIRE);
    load(&mut dialog, HEARTBEAT);
    load(&mut dialog, RELEASE);
    let other = load(&mut dialog, &unlisted());
    let seats = HELD.to_string();
    for n in 0..HELD {
        let session = format!("held-{n}");
        dialog.ask_args(&[
            "EVALSHA",
            &acquire,
            "1",
            "held",
            &session,
            &seats,
            r#"{"n":1}"#,
        ]);
    }
    let denied = format!("[0, NO_SEATS_AVAILABLE, {HELD}, {HELD}]");
    dialog.expect(
        &format!("EVALSHA {acquire} 1 held another {HELD} {{}}"),
        &denied,
    );

    let is_loaded = AtomicBool::new(false);
    let begun = AtomicU64::new(0);
    let speech = |n: usize| {
        begun.fetch_add(1, SeqCst);
        match n % 4 {
            0 => {
                eventually("the module is loaded", || is_loaded.load(SeqCst));
                Speech::Commands
            }
            1 => Speech::Scripts([&other, SHAS[2], SHAS[1]]),
            _ => OWN_CALLS,
        }
    };
    judge(&server, speech, || {
        eventually("all clients are there", || begun.load(SeqCst) == 64);
        let calls = || {
            let stats = server.info("commandstats");
            let stat = stats.get("cmdstat_evalsha").cloned().unwrap_or_default();
            let calls = stat
                .strip_prefix("calls=")
                .and_then(|rest| rest.split(',').next()?.parse().ok());
            calls.unwrap_or(0_u64)
        };
        let before = calls();
        eventually("callers of the scripts are at work", || {
            calls() > before + 2000
        });
        server.load_module(&all_settings());
        let by_command = format!("SEAT.ACQUIRE held another {HELD}");
        let by_script = format!("EVALSHA {acquire} 1 held another {HELD} {{}}");
        let (one, two) = match first {
            First::Commands => (by_command, by_script),
            First::OwnCalls => (by_script, by_command),
        };
        dialog.expect(&one, &denied);
        dialog.expect(&two, &denied);
        is_loaded.store(true, SeqCst);
    });

    dialog.expect("SEAT.COUNT held", &HELD.to_string());
    let expected: BTreeSet<String> = (0..HELD).map(|n| format!("held-{n}")).collect();
    assert_eq!(listed(&mut dialog, &["SEAT.SESSIONS", "held"]), expected);
    dialog.contains("SEAT.GET held held-7", r#""n":1"#);
    readers_agree(&server);
    assert!(total(&server, "seat_imported") >= HELD as u64);
    assert!(total(&server, "seat_script_calls") > 500);
    dialog.expect("KEYS license:*", "[]");
}

#[test]
fn switched_on_under_load_commands_first_keeps_the_limit() {
    comes_to_a_server_at_work(First::Commands);
}

#[test]
fn switched_on_under_load_own_calls_first_keeps_the_limit() {
    comes_to_a_server_at_work(First::OwnCalls);
}

#[test]
fn rolled_back_and_forward_under_load_keeps_the_limit() {
    let (server, mut dialog) = with_migration().scene();
    if server.version() < (7, 0, 0) {
        // There the settings are the arguments of loadmodule alone, so the way back is a restart.
        dialog.begins("CONFIG SET seat.script-keys no", "!");
        return;
    }
    for text in [ACQUIRE, HEARTBEAT, RELEASE] {
        load(&mut dialog, text);
    }
    judge(
        &server,
        |_| OWN_CALLS,
        || {
            for _ in 0..5 {
                let before = total(&server, "seat_script_calls");
                eventually("the calls are carried out as commands", || {
                    total(&server, "seat_script_calls") > before + 500
                });
                dialog.expect("MULTI", "+OK");
                for setting in ["acquire-sha ", "script-keys no", "script-view no"] {
                    dialog.expect(&format!("CONFIG SET seat.{setting}"), "+QUEUED");
                }
                for pool in pools() {
                    let keys =
                        format!("license:{pool}:active_sessions license:{pool}:session_metadata");
                    dialog.expect(&format!("SEAT.EXPORT {pool} {keys}"), "+QUEUED");
                }
                let reply = dialog.ask("EXEC");
                assert!(!reply.contains('!'), "{reply}");
                let scripts = || {
                    let stats = server.info("commandstats");
                    stats.get("cmdstat_evalsha").cloned().unwrap_or_default()
                };
                let before = scripts();
                eventually("the scripts run again", || scripts() != before);
                dialog.expect("MULTI", "+OK");
                let acquire = format!("acquire-sha {}", SHAS[0]);
                for setting in [acquire.as_str(), "script-keys yes", "script-view yes"] {
                    dialog.expect(&format!("CONFIG SET seat.{setting}"), "+QUEUED");
                }
                dialog.expect("EXEC", "[+OK, +OK, +OK]");
            }
        },
    );
    readers_agree(&server);
}
