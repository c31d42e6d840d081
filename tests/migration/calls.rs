//! The scripts' own calls, carried out as commands.

use super::{ACQUIRE, HEARTBEAT, RELEASE, SHAS, load, with_migration};
use crate::support::{Dialog, Server, replicated, total};

const GRANTED: &str = "[1, ACQUIRED, 1, 2]";

fn listed() -> String {
    let [acquire, release, heartbeat] = SHAS;
    format!("acquire-sha {acquire} release-sha {release} heartbeat-sha {heartbeat}")
}

#[test]
fn no_script_needs_to_be_loaded_and_none_runs() {
    let (server, mut dialog) = with_migration().recording().scene();
    let [acquire, release, heartbeat] = SHAS;
    for sha in SHAS {
        dialog.expect(&format!("SCRIPT EXISTS {sha}"), "[0]");
    }
    let sent = replicated(&server, || {
        dialog.expect(&format!("EVALSHA {acquire} 1 p a 2 {{}}"), GRANTED);
        dialog.expect(
            &format!("evalsha {} 1 p a 2 {{}}", acquire.to_uppercase()),
            "[1, ALREADY_ACTIVE, 1]",
        );
        dialog.expect(
            &format!("EvalSha {heartbeat} 1 p a {{}}"),
            "[1, HEARTBEAT_UPDATED, 1]",
        );
        dialog.expect(&format!("EVALSHA {release} 1 p a"), "[1, RELEASED, 0]");
    });
    let kinds: Vec<_> = sent
        .iter()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    assert_eq!(kinds, ["GRANT", "BEAT", "FREE"]);
    assert_eq!(total(&server, "seat_script_calls"), 4);
    assert!(!server.info("commandstats").contains_key("cmdstat_evalsha"));
}

#[test]
fn the_text_itself_is_known_too() {
    let (server, mut dialog) = with_migration().scene();
    assert_eq!(
        dialog.ask_args(&["EVAL", ACQUIRE, "1", "p", "a", "2", "{}"]),
        GRANTED
    );
    assert_eq!(
        dialog.ask_args(&["eval", HEARTBEAT, "1", "p", "a"]),
        "[1, HEARTBEAT_UPDATED, 1]"
    );
    assert_eq!(
        dialog.ask_args(&["EVAL", RELEASE, "1", "p", "a"]),
        "[1, RELEASED, 0]"
    );
    // Another text is another script.
    let other = format!("{ACQUIRE} ");
    assert_eq!(
        dialog.ask_args(&["EVAL", &other, "1", "p", "a", "2", "{}"]),
        GRANTED
    );
    assert_eq!(total(&server, "seat_script_calls"), 3);
}

#[test]
fn they_work_in_pipelines_transactions_and_scripts() {
    let (_server, mut dialog) = with_migration().scene();
    let [acquire, release, heartbeat] = SHAS;
    for session in ["a", "b", "c"] {
        dialog.send(&format!("EVALSHA {acquire} 1 p {session} 2 {{}}"));
    }
    dialog.hears(GRANTED);
    dialog.hears("[1, ACQUIRED, 2, 2]");
    dialog.hears("[0, NO_SEATS_AVAILABLE, 2, 2]");
    assert_eq!(
        dialog.transaction(&[
            &format!("EVALSHA {release} 1 p a"),
            &format!("EVALSHA {acquire} 1 p c 2 {{}}"),
            &format!("EVALSHA {heartbeat} 1 p a {{}}")
        ]),
        "[[1, RELEASED, 1], [1, ACQUIRED, 2, 2], [0, SESSION_NOT_ACTIVE]]"
    );
    let script = format!(
        "local long = {{}} for n = 1, 20 do long[n] = 's' .. n end
         redis.call('SADD', 'long', unpack(long))
         local reply = redis.call('EVALSHA', '{release}', '1', 'p', 'b')
         redis.call('SADD', 'long', unpack(long))
         return {{reply, redis.call('evalsha', '{acquire}', 1, 'p', 'd', 2, '{{}}'), redis.call('SCARD', 'long')}}"
    );
    for _ in 0..3 {
        let reply = dialog.eval(&script, &[]);
        assert!(reply.ends_with("20]"), "{reply}");
    }
    assert_eq!(dialog.sessions("p"), ["c", "d"]);
}

#[test]
fn resp3_callers_are_answered_in_kind() {
    let server = with_migration().start();
    let mut dialog = Dialog::in_resp3(&server);
    dialog.expect(&format!("EVALSHA {} 1 p a 2 {{}}", SHAS[0]), GRANTED);
}

#[test]
fn all_three_lists_take_effect_together_or_not_at_all() {
    let [acquire, release, heartbeat] = SHAS;
    for arguments in [
        "".to_owned(),
        format!("acquire-sha {acquire}"),
        format!("acquire-sha {acquire} release-sha {release}"),
        format!("release-sha {release} heartbeat-sha {heartbeat}"),
    ] {
        let (_server, mut dialog) = Server::builder().module_args(&arguments).scene();
        dialog.begins(&format!("EVALSHA {acquire} 1 p a 2 {{}}"), "!NOSCRIPT");
    }
    let (server, mut dialog) = Server::builder().module_args(&listed()).scene();
    dialog.expect(&format!("EVALSHA {acquire} 1 p a 2 {{}}"), GRANTED);
    if server.version() >= (7, 0, 0) {
        dialog.expect(r"CONFIG SET seat.heartbeat-sha ", "+OK");
        dialog.begins(&format!("EVALSHA {acquire} 1 p a 2 {{}}"), "!NOSCRIPT");
        dialog.expect(&format!("CONFIG SET seat.heartbeat-sha {heartbeat}"), "+OK");
        dialog.expect(
            &format!("EVALSHA {acquire} 1 p a 2 {{}}"),
            "[1, ALREADY_ACTIVE, 1]",
        );
    }
}

#[test]
fn calls_that_the_script_would_not_take_alike_stay_the_scripts() {
    let (server, mut dialog) = with_migration().scene();
    let sha = SHAS[0];
    for call in [
        format!("EVALSHA {sha} 2 p q a 2 {{}}"),
        format!("EVALSHA {sha} 0 a 2 {{}}"),
        format!("EVALSHA {}0 1 p a 2 {{}}", &sha[..39]),
        format!("EVALSHA {sha}0 1 p a 2 {{}}"),
    ] {
        dialog.begins(&call, "!NOSCRIPT");
    }
    for call in [format!("EVALSHA {sha}"), "EVALSHA".to_owned()] {
        dialog.begins(&call, "!ERR wrong number");
    }
    dialog.begins(&format!("EVALSHA {sha} 1"), "!ERR Number of keys");
    assert_eq!(total(&server, "seat_script_calls"), 0);
}

#[test]
fn arguments_after_the_scripts_own_are_options() {
    let (_server, mut dialog) = with_migration().scene();
    dialog.expect(
        &format!("EVALSHA {} 1 p a 2 {{}} EX 60", SHAS[0]),
        "[1, ACQUIRED, 1, 2, 60000]",
    );
}

#[test]
fn lists_are_held_to_what_they_are() {
    let [acquire, release, heartbeat] = SHAS;
    for (arguments, why) in [
        ("acquire-sha nonsense".to_owned(), "must be SHA1s"),
        (format!("acquire-sha {acquire}0"), "must be SHA1s"),
        (
            format!("acquire-sha {acquire} release-sha {acquire}"),
            "has a SHA1 that acquire-sha has already",
        ),
    ] {
        let log = Server::builder().module_args(&arguments).try_start();
        let log = log.err().unwrap_or_else(|| panic!("{arguments} was taken"));
        assert!(log.contains(why), "{arguments}: {log}");
    }
    let arguments = format!(
        "acquire-sha {acquire},{} release-sha {release} heartbeat-sha {heartbeat}",
        "0".repeat(40)
    );
    let (server, mut dialog) = Server::builder().module_args(&arguments).scene();
    dialog.expect(&format!("EVALSHA {} 1 p a 2 {{}}", "0".repeat(40)), GRANTED);
    if server.version() < (7, 0, 0) {
        return;
    }
    let shown = format!(r#"["seat.acquire-sha", "{acquire},{}"]"#, "0".repeat(40));
    dialog.expect("CONFIG GET seat.acquire-sha", &shown);
    for (value, why) in [
        ("nonsense", "must be SHA1s"),
        (release, "has a SHA1 that release-sha"),
    ] {
        let reply = dialog.ask(&format!("CONFIG SET seat.acquire-sha {value}"));
        assert!(reply.starts_with("!ERR ") && reply.contains(why), "{reply}");
        dialog.expect("CONFIG GET seat.acquire-sha", &shown);
    }
    let spaced = format!("  {} ,{}", "1".repeat(40), acquire.to_uppercase());
    assert_eq!(
        dialog.ask_args(&["CONFIG", "SET", "seat.acquire-sha", &spaced]),
        "+OK"
    );
    dialog.expect(
        "CONFIG GET seat.acquire-sha",
        &format!(r#"["seat.acquire-sha", "{},{acquire}"]"#, "1".repeat(40)),
    );
}

#[test]
fn a_replica_leaves_scripts_alone() {
    let primary = with_migration().tcp().start();
    let replica = with_migration().replica_of(&primary).start();
    let (mut on_primary, mut on_replica) = (Dialog::with(&primary), Dialog::with(&replica));
    on_primary.acquire("p", "a", 1, "{}");
    primary.wait_for_offset(&replica);
    let sha = load(&mut on_replica, ACQUIRE);
    // There the script answers what needs no write, from the pool.
    on_replica.expect(
        &format!("EVALSHA {sha} 1 p a 1 {{}}"),
        "[1, ALREADY_ACTIVE, 1]",
    );
    on_replica.expect(
        &format!("EVALSHA {sha} 1 p b 1 {{}}"),
        "[0, NO_SEATS_AVAILABLE, 1, 1]",
    );
    on_replica.contains(&format!("EVALSHA {sha} 1 p b 2 {{}}"), "READONLY");
    assert_eq!(primary.digest(), replica.digest());
}

#[test]
fn scripts_from_a_primary_without_the_module_stay_scripts() {
    let verbatim = if Server::plain().version() < (7, 0, 0) {
        "lua-replicate-commands no"
    } else {
        // Later servers replicate what a script did, whatever the setting.
        "lua-time-limit 5000"
    };
    let primary = Server::builder().plain().tcp().config(verbatim).start();
    let replica = with_migration().replica_of(&primary).start();
    let mut dialog = Dialog::with(&primary);
    // The acquire script asks for the time, which a script that is replicated as it is may not do
    // before it writes.
    let text = "redis.call('SADD', 'license:' .. KEYS[1] .. ':active_sessions', ARGV[1]) return 1";
    assert_eq!(dialog.ask_args(&["EVAL", text, "1", "p", "a"]), "1");
    let release = load(&mut dialog, RELEASE);
    dialog.expect("SADD license:p:active_sessions b", "1");
    dialog.expect(&format!("EVALSHA {release} 1 p b"), "[1, RELEASED, 1]");
    primary.wait_for_offset(&replica);
    let mut on_replica = Dialog::with(&replica);
    on_replica.expect("EXISTS p", "0");
    on_replica.expect("SMEMBERS license:p:active_sessions", r#"["a"]"#);
    assert_eq!(primary.digest(), replica.digest());
}

#[test]
fn a_call_that_waits_while_the_pool_is_exported_must_retry() {
    let server = with_migration().start();
    if server.version() < (7, 0, 0) {
        // There the settings are those of loadmodule for as long as the server runs.
        return;
    }
    let (mut admin, mut queued) = (Dialog::with(&server), Dialog::with(&server));
    let calls = [
        format!("EVALSHA {} 1 p b 1 {{}}", SHAS[0]),
        format!("EVALSHA {} 1 p a", SHAS[1]),
        format!("EVALSHA {} 1 p a {{}}", SHAS[2]),
    ];
    admin.acquire("p", "a", 1, "{}");
    queued.expect("MULTI", "+OK");
    for call in &calls {
        queued.expect(call, "+QUEUED");
    }
    let given_back = admin.transaction(&[
        "CONFIG SET seat.acquire-sha ",
        "CONFIG SET seat.script-keys no",
        "CONFIG SET seat.script-view no",
        "SEAT.EXPORT p license:p:active_sessions license:p:session_metadata",
    ]);
    assert_eq!(given_back, "[+OK, +OK, +OK, 1]");
    let replies = queued.ask("EXEC");
    assert_eq!(replies.matches("!TRYAGAIN ").count(), 3, "{replies}");
    admin.expect("SMEMBERS license:p:active_sessions", r#"["a"]"#);
    // A command by its own name is what it says.
    admin.expect("SEAT.ACQUIRE q b 1", "[1, ACQUIRED, 1, 1]");
}
