//! The commands inside MULTI and scripts.

use crate::support::Server;

#[test]
fn a_transaction_answers_each_of_its_commands() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect_at_once(&[
        ("SEAT.ACQUIRE pool a 1 {}", "[1, ACQUIRED, 1, 1]"),
        ("SEAT.ACQUIRE pool b 1 {}", "[0, NO_SEATS_AVAILABLE, 1, 1]"),
        (
            "SEAT.ACQUIRE pool c 2 nonsense",
            "!ERR metadata must be a JSON object (RFC 8259, UTF-8)",
        ),
        ("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]"),
        ("SEAT.SESSIONS pool", r#"["a"]"#),
        ("SEAT.RELEASE pool a", "[1, RELEASED, 0]"),
        ("SEAT.ACQUIRE pool b 1 {}", "[1, ACQUIRED, 1, 1]"),
        ("SEAT.INFO missing", "nil"),
    ]);
    assert_eq!(dialog.sessions("pool"), ["b"]);
}

#[test]
fn a_discarded_transaction_leaves_no_seat_taken() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("MULTI", "+OK");
    dialog.expect("SEAT.ACQUIRE pool a 1 {}", "+QUEUED");
    dialog.expect("DISCARD", "+OK");
    dialog.expect("EXISTS pool", "0");
    dialog.expect("MULTI", "+OK");
    dialog.expect("SEAT.ACQUIRE pool a 1 {}", "+QUEUED");
    dialog.begins("NOSUCH", "!");
    dialog.begins("EXEC", "!EXECABORT");
    dialog.expect("EXISTS pool", "0");
}

#[test]
fn scripts_see_the_same_replies() {
    let (_server, mut dialog) = Server::scene();
    let script = "local got = {}
        for _, id in ipairs(ARGV) do got[#got + 1] = redis.call('SEAT.ACQUIRE', KEYS[1], id, 2) end
        got[#got + 1] = redis.call('SEAT.GET', KEYS[1], 'nobody')
        got[#got + 1] = redis.call('SEAT.RELEASE', KEYS[1], ARGV[1])
        return got";
    assert_eq!(
        dialog.ask_args(&["EVAL", script, "1", "pool", "a", "b", "c", "a"]),
        "[[1, ACQUIRED, 1, 2], [1, ACQUIRED, 2, 2], [0, NO_SEATS_AVAILABLE, 2, 2], [1, ALREADY_ACTIVE, 2], nil, [1, RELEASED, 1]]"
    );
    let script = "return redis.pcall('SEAT.ACQUIRE', KEYS[1], 'x', 'y')";
    let reply = dialog.eval(script, &["pool"]);
    assert!(
        reply.starts_with("!ERR seats must be a 64-bit integer"),
        "{reply}"
    );
    dialog.expect("SEAT.COUNT pool", "1");
    let script = "return #redis.call('SEAT.INFO', KEYS[1])";
    assert_eq!(dialog.eval(script, &["pool"]), "24");
    let script = "return #redis.call('SEAT.SESSIONS', KEYS[1], 'WITHMETADATA')";
    assert_eq!(dialog.eval(script, &["pool"]), "2");
}

#[test]
fn a_read_only_script_reads_and_no_more() {
    let (server, mut dialog) = Server::full_pool();
    let count = [
        "EVAL_RO",
        "return redis.call('SEAT.COUNT', KEYS[1])",
        "1",
        "pool",
    ];
    let release = [
        "EVAL_RO",
        "return redis.call('SEAT.RELEASE', KEYS[1], 'a')",
        "1",
        "pool",
    ];
    if server.version() >= (7, 0, 0) {
        assert_eq!(dialog.ask_args(&count), "1");
    } else {
        assert!(dialog.ask_args(&count).starts_with("!ERR unknown command"));
    }
    assert!(dialog.ask_args(&release).starts_with("!ERR"));
    dialog.expect("SEAT.COUNT pool", "1");
}
