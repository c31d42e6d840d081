//! What a caller must be allowed in addition to the scripts, and that nothing else is reached.

use super::{METADATA, SESSIONS, SHAS, fill, with_migration};
use crate::support::{Dialog, Server, Traces};

fn server() -> Server {
    with_migration().recording().start()
}

#[test]
fn an_own_call_needs_the_commands_right_and_the_pools_key() {
    let server = server();
    let [acquire, release, heartbeat] = SHAS;
    let calls = [
        (format!("EVALSHA {acquire} 1 p a 2 {{}}"), "seat.acquire"),
        (format!("EVALSHA {heartbeat} 1 p a {{}}"), "seat.heartbeat"),
        (format!("EVALSHA {release} 1 p a"), "seat.release"),
    ];
    for (call, right) in &calls {
        Dialog::as_worker(&server, "~p +evalsha").forbidden(call);
        Dialog::as_worker(&server, &format!("~q +evalsha +{right}")).forbidden(call);
        // What runs is the command, so the right to EVALSHA is not needed.
        let reply = Dialog::as_worker(&server, &format!("~p +{right}")).ask(call);
        assert!(reply.starts_with("[1, "), "{call}: {reply}");
    }
}

#[test]
fn adoption_needs_rights_to_the_legacy_keys() {
    let server = server();
    let mut admin = Dialog::with(&server);
    fill(&mut admin, &["a"]);
    let own_call = format!("EVALSHA {} 1 p b 9 {{}}", SHAS[0]);
    for keys in [
        "~p",
        &format!("~p ~{SESSIONS}"),
        &format!("~p ~{METADATA}"),
        "~p ~license:q*",
    ] {
        let mut dialog = Dialog::as_worker(&server, &format!("{keys} +seat.acquire +seat.release"));
        for command in ["SEAT.ACQUIRE p b 9", "SEAT.RELEASE p a", &own_call] {
            let before = Traces::without_totals(&server);
            dialog.forbidden(command);
            assert_eq!(Traces::without_totals(&server), before, "{command}");
        }
    }
    if server.version() >= (7, 0, 0) {
        let mut reader = Dialog::as_worker(&server, "~p %R~license:* +seat.acquire");
        reader.forbidden("SEAT.ACQUIRE p b 9");
    }
    let mut dialog = Dialog::as_worker(&server, "~p ~license:p:* +seat.acquire");
    dialog.expect("SEAT.ACQUIRE p b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    admin.expect(&format!("EXISTS {SESSIONS} {METADATA}"), "0");
    // Once nothing is left to adopt, the pool's key is enough.
    let mut dialog = Dialog::as_worker(&server, "~p +seat.acquire");
    dialog.expect("SEAT.ACQUIRE p b 2", "[1, ACQUIRED, 2, 2]");
}

#[test]
fn who_may_not_adopt_ends_nothing_that_would_come_back() {
    let server = server();
    let mut admin = Dialog::with(&server);
    admin.acquire("p", "a", 2, "{}");
    admin.expect(&format!("SADD {SESSIONS} a"), "1");
    let mut worker = Dialog::as_worker(&server, "~p +seat.release +seat.revoke +seat.heartbeat");
    for command in ["SEAT.RELEASE p a", "SEAT.REVOKE p a", "SEAT.HEARTBEAT p a"] {
        worker.forbidden(command);
    }
    admin.expect("SEAT.RELEASE p a", "[1, RELEASED, 0]");
    worker.expect("SEAT.RELEASE p a", "[0, SESSION_NOT_FOUND]");
}

#[test]
fn adoption_within_a_script_goes_by_the_user_who_runs_it() {
    let server = server();
    let mut admin = Dialog::with(&server);
    fill(&mut admin, &["a"]);
    let script = "return redis.call('SEAT.ACQUIRE', 'p', 'b', '1')";
    let run = |dialog: &mut Dialog| dialog.eval(script, &["p"]);
    let reply = run(&mut Dialog::as_worker(&server, "~p +eval +seat.acquire"));
    assert!(
        reply.starts_with('!') && reply.contains("permissions"),
        "{reply}"
    );
    admin.expect(&format!("EXISTS {SESSIONS} {METADATA}"), "2");
    if server.version() < (7, 0, 0) {
        // 6.2 does not say for whom a script runs, so it has to be so for everybody.
        let reply = run(&mut admin);
        assert!(reply.contains("permissions"), "{reply}");
        admin.expect("ACL DELUSER worker", "1");
        assert_eq!(run(&mut admin), "[0, NO_SEATS_AVAILABLE, 1, 1]");
    } else {
        let reply = run(&mut Dialog::as_worker(
            &server,
            "~p ~license:p:* +eval +seat.acquire",
        ));
        assert_eq!(reply, "[0, NO_SEATS_AVAILABLE, 1, 1]");
    }
    admin.expect(&format!("EXISTS {SESSIONS} {METADATA}"), "0");
}

#[test]
fn a_reader_needs_both_keys_and_the_right_to_the_views_command() {
    let server = server();
    let mut admin = Dialog::with(&server);
    admin.acquire("p", "a", 9, "{}");
    for (command, right) in [
        (format!("SISMEMBER {SESSIONS} a"), "seat.sismember"),
        (format!("SMEMBERS {SESSIONS}"), "seat.smembers"),
        (format!("SCARD {SESSIONS}"), "seat.scard"),
        (format!("HGET {METADATA} a"), "seat.hget"),
        (format!("HGETALL {METADATA}"), "seat.hgetall"),
        (format!("HEXISTS {METADATA} a"), "seat.hexists"),
        (format!("HLEN {METADATA}"), "seat.hlen"),
        (format!("HKEYS {METADATA}"), "seat.hkeys"),
    ] {
        Dialog::as_worker(&server, &format!("~license:p:* +{right}")).forbidden(&command);
        Dialog::as_worker(&server, &format!("~p +{right}")).forbidden(&command);
        let native = command.split(' ').next().expect("a name").to_lowercase();
        Dialog::as_worker(&server, &format!("~p ~license:p:* +{native}")).forbidden(&command);
        let reply = Dialog::as_worker(&server, &format!("~p ~license:p:* +{right}")).ask(&command);
        assert!(!reply.starts_with('!'), "{command}: {reply}");
        if server.version() >= (7, 0, 0) {
            let reply =
                Dialog::as_worker(&server, &format!("%R~p %R~license:p:* +{right}")).ask(&command);
            assert!(!reply.starts_with('!'), "{command}: {reply}");
        }
    }
    // Where there is no pool, nothing but the key itself is read.
    admin.expect("SADD license:q:active_sessions s", "1");
    let mut dialog = Dialog::as_worker(&server, "~license:* +seat.scard");
    dialog.expect("SCARD license:q:active_sessions", "1");
}

#[test]
fn importing_and_exporting_need_all_three_keys() {
    let server = server();
    let mut admin = Dialog::with(&server);
    admin.expect("SADD set a", "1");
    for keys in ["~p ~set", "~p ~hash", "~set ~hash"] {
        let mut dialog = Dialog::as_worker(&server, &format!("{keys} +seat.import +seat.export"));
        dialog.forbidden("SEAT.IMPORT p set hash");
        dialog.forbidden("SEAT.EXPORT p set hash");
    }
    let mut dialog = Dialog::as_worker(&server, "~p ~set ~hash +seat.import +seat.export");
    dialog.expect("SEAT.IMPORT p set hash", "1");
    dialog.expect("SEAT.EXPORT p set hash", "1");
}

#[test]
fn a_script_reads_no_pool_its_user_may_not_despite_renames() {
    let server = with_migration().config("rename-command HELLO \"\"").start();
    let mut admin = Dialog::with(&server);
    admin.acquire("p", "a", 1, r#"{"token":"x"}"#);
    let script = [
        "EVAL",
        "return redis.call('HGETALL', KEYS[1])",
        "1",
        METADATA,
    ];
    let mut reader = Dialog::as_worker(&server, "~license:p:* +eval +hgetall +seat.hgetall");
    let reply = reader.ask_args(&script);
    assert!(reply.contains("no permissions"), "{reply}");
    let mut reader = Dialog::as_worker(&server, "~p ~license:p:* +eval +hgetall +seat.hgetall");
    // 6.2 does not say for whom a script runs, so there every user must be allowed.
    let reply = reader.ask_args(&script);
    assert!(!reply.contains("no permissions"), "{reply}");
}
