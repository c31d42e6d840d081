//! Settings, and what the log says about them.

use std::fs;

use crate::support::{Dialog, Server};

/// Whether the server has `CONFIG` settings of modules.
fn has_settings(server: &Server) -> bool {
    server.version() >= (7, 0, 0)
}

/// All settings with their values, sorted.
fn settings(dialog: &mut Dialog) -> Vec<String> {
    let reply = dialog.ask("CONFIG GET seat.*");
    let words: Vec<_> = reply.split('"').skip(1).step_by(2).collect();
    let mut pairs: Vec<_> = words.chunks(2).map(|pair| pair.join(" ")).collect();
    pairs.sort();
    pairs
}

const ABC: &str = "SEAT.ACQUIRE pool abc 100 {}";
const ABCD: &str = "SEAT.ACQUIRE pool abcd 100 {}";
const TOO_LONG: &str = "!ERR session must be at most 3 bytes";

/// These settings and those of what is off by default, sorted.
fn with_features_off(others: &[&str]) -> Vec<String> {
    let features = [
        "seat.acquire-sha ",
        "seat.denial-feed ",
        "seat.denial-feed-maxlen 100000",
        "seat.feed ",
        "seat.feed-maxlen 1000000",
        "seat.feed-metadata no",
        "seat.grant-hold 0",
        "seat.heartbeat-sha ",
        "seat.release-sha ",
        "seat.script-keys no",
        "seat.script-view no",
    ];
    let mut all: Vec<String> = others
        .iter()
        .chain(&features)
        .map(|&line| line.to_owned())
        .collect();
    all.sort();
    all
}

#[test]
fn the_defaults() {
    let (server, mut dialog) = Server::builder().shipped_grace().scene();
    let defaults = with_features_off(&[
        "seat.allow-effects no",
        "seat.lease-grace 30000",
        "seat.max-metadata-bytes 16384",
        "seat.max-queue-length 100000",
        "seat.max-queue-ms 86400000",
        "seat.max-session-bytes 1024",
    ]);
    if has_settings(&server) {
        assert_eq!(settings(&mut dialog), defaults);
    } else {
        dialog.expect("CONFIG GET seat.*", "[]");
    }
    let log = server.log();
    for default in defaults {
        let setting = default.strip_prefix("seat.").expect("the module's name");
        assert!(log.contains(setting), "{setting} is not in the log:\n{log}");
    }
}

#[test]
fn settings_change_at_run_time() {
    let (server, mut dialog) = Server::scene();
    if !has_settings(&server) {
        dialog.begins("CONFIG SET seat.max-session-bytes 3", "!ERR");
        return;
    }
    dialog.acquire("pool", "abcd", 100, "{}");
    dialog.expect("CONFIG SET seat.max-session-bytes 3", "+OK");
    dialog.expect("SEAT.ACQUIRE pool abce 100 {}", TOO_LONG);
    dialog.expect("SEAT.HEARTBEAT pool abcd", "[1, HEARTBEAT_UPDATED, 1]");
    dialog.expect("SEAT.RELEASE pool abcd", "[1, RELEASED, 0]");
    dialog.acquire("pool", "abc", 100, "{}");
    dialog.expect("CONFIG SET seat.max-metadata-bytes 7", "+OK");
    dialog.acquire("pool", "a", 100, r#"{"k":1}"#);
    dialog.expect(
        "SEAT.ACQUIRE pool b 100 {\"k\":12}",
        "!ERR metadata must be at most 7 bytes",
    );
    dialog.expect("CONFIG SET seat.allow-effects yes", "+OK");
    dialog.expect("SEAT.EFFECT pool FREE released a", "1");
    dialog.expect("CONFIG SET seat.allow-effects no", "+OK");
    dialog.begins("SEAT.EFFECT pool FREE released abc", "!ERR");
    assert_eq!(
        settings(&mut dialog),
        with_features_off(&[
            "seat.allow-effects no",
            "seat.lease-grace 0",
            "seat.max-metadata-bytes 7",
            "seat.max-queue-length 100000",
            "seat.max-queue-ms 86400000",
            "seat.max-session-bytes 3"
        ])
    );
    for bad in [
        "seat.max-session-bytes 0",
        "seat.max-session-bytes -1",
        "seat.max-session-bytes x",
        "seat.max-metadata-bytes 0",
        "seat.max-metadata-bytes 99999999999999",
        "seat.allow-effects maybe",
        "seat.nonsense 1",
    ] {
        let before = settings(&mut dialog);
        dialog.begins(&format!("CONFIG SET {bad}"), "!ERR");
        assert_eq!(settings(&mut dialog), before, "{bad}");
    }
}

#[test]
fn what_wider_limits_let_in_is_loaded_under_narrower_ones() {
    let (mut server, mut dialog) = Server::builder()
        .config("save 3600 1")
        .module_args("max-session-bytes 1000 max-metadata-bytes 1000")
        .scene();
    let id = "x".repeat(1000);
    dialog.acquire("pool", &id, 9, &format!(r#"{{"k":"{}"}}"#, "y".repeat(900)));
    let digest = server.digest();
    server.shutdown();
    let narrow = Server::builder()
        .module_args("max-session-bytes 3 max-metadata-bytes 10")
        .data_of(&server)
        .start();
    assert_eq!(narrow.digest(), digest);
    let mut dialog = Dialog::with(&narrow);
    assert_eq!(dialog.sessions("pool"), [id]);
    // The primary may have wider limits.
    let primary = Server::builder().tcp().start();
    let replica = Server::builder()
        .module_args("max-session-bytes 3 max-metadata-bytes 10")
        .replica_of(&primary)
        .start();
    primary.wait_for_offset(&replica);
    Dialog::with(&primary).acquire("pool", "long-name", 9, r#"{"more":"than ten bytes"}"#);
    primary.replica_agrees(&replica);
}

#[test]
fn the_arguments_of_loadmodule_are_the_settings() {
    let (server, mut dialog) = Server::builder()
        .module_args("max-session-bytes 3 MAX-METADATA-BYTES 8 allow-effects YES")
        .scene();
    dialog.contains(ABC, "ACQUIRED");
    dialog.expect(ABCD, TOO_LONG);
    dialog.expect(
        "SEAT.ACQUIRE pool a 9 {\"k\":123}",
        "!ERR metadata must be at most 8 bytes",
    );
    dialog.expect("SEAT.EFFECT pool FREE released abc", "1");
    if has_settings(&server) {
        assert_eq!(
            settings(&mut dialog),
            with_features_off(&[
                "seat.allow-effects yes",
                "seat.lease-grace 0",
                "seat.max-metadata-bytes 8",
                "seat.max-queue-length 100000",
                "seat.max-queue-ms 86400000",
                "seat.max-session-bytes 3"
            ])
        );
    }
    let log = server.log();
    assert!(log.contains("max-session-bytes 3"), "{log}");
}

#[test]
fn a_line_of_the_configuration_wins_over_the_arguments() {
    let builder = Server::builder()
        .module_args("max-session-bytes 99")
        .config("seat.max-session-bytes 3");
    match builder.try_start() {
        Ok(server) => {
            assert!(has_settings(&server));
            let mut dialog = Dialog::with(&server);
            dialog.contains(ABC, "ACQUIRED");
            dialog.expect(ABCD, TOO_LONG);
        }
        Err(log) => {
            assert!(log.contains("seat.max-session-bytes"), "{log}");
            assert!(!has_settings(&Server::start()), "{log}");
        }
    }
}

#[test]
fn config_rewrite_keeps_the_settings() {
    let server = Server::builder()
        .module_args("max-metadata-bytes 50")
        .start();
    if !has_settings(&server) {
        // The arguments of loadmodule are all there is, and they are kept.
        Dialog::with(&server).expect("CONFIG REWRITE", "+OK");
        let text = fs::read_to_string(server.dir().join("redis.conf")).expect("a configuration");
        assert!(text.contains("max-metadata-bytes 50"), "{text}");
        return;
    }
    let mut dialog = Dialog::with(&server);
    dialog.expect("CONFIG SET seat.max-session-bytes 3", "+OK");
    // The module's own default, while the arguments say something else.
    dialog.expect("CONFIG SET seat.max-metadata-bytes 16384", "+OK");
    dialog.expect("CONFIG REWRITE", "+OK");
    let before = settings(&mut dialog);
    let text = fs::read_to_string(server.dir().join("redis.conf")).expect("a configuration");
    let mut builder = Server::builder();
    let kept: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("seat."))
        .collect();
    assert!(kept.contains(&"seat.max-session-bytes 3"), "{text}");
    let loadmodule = text
        .lines()
        .find(|line| line.starts_with("loadmodule"))
        .expect("the module");
    let arguments = loadmodule.split_once(".so").expect("the module's path").1;
    for line in kept {
        builder = builder.config(line);
    }
    let again = builder
        .module_args(arguments.trim().trim_matches('"').trim())
        .start();
    assert_eq!(settings(&mut Dialog::with(&again)), before);
}

#[test]
fn arguments_that_make_no_sense_refuse_to_load_and_say_why() {
    for (arguments, why) in [
        ("nonsense 1", "nonsense"),
        ("max-session-bytes", "max-session-bytes"),
        ("max-session-bytes x", "max-session-bytes"),
        ("max-session-bytes 0", "max-session-bytes"),
        ("max-session-bytes 5.5", "max-session-bytes"),
        ("max-metadata-bytes -1", "max-metadata-bytes"),
        ("lease-grace -1", "lease-grace"),
        ("grant-hold 1.5", "grant-hold"),
        (
            "max-metadata-bytes 99999999999999999999",
            "max-metadata-bytes",
        ),
        ("allow-effects maybe", "allow-effects"),
        ("allow-effects yes nonsense", "nonsense"),
    ] {
        let started = Server::builder().module_args(arguments).try_start();
        let log = started
            .err()
            .unwrap_or_else(|| panic!("{arguments:?} was accepted"));
        let said = log
            .lines()
            .any(|line| line.contains("<seat>") && line.contains(why));
        assert!(said, "{arguments:?} is not explained:\n{log}");
        assert!(!log.contains("BUG REPORT"), "{log}");
    }
}

#[test]
fn the_log_names_versions_and_warns_of_policies_that_evict() {
    let server = Server::start();
    let log = server.log();
    let said = concat!("<seat> seat ", env!("CARGO_PKG_VERSION"), " on ");
    let said = format!("{said}{}: ", server.product());
    assert!(log.lines().any(|line| line.contains(&said)), "{log}");
    assert!(!log.contains("maxmemory-policy"), "{log}");
    for (policy, warned) in [
        ("allkeys-lru", true),
        ("allkeys-lfu", true),
        ("allkeys-random", true),
        ("noeviction", false),
        ("volatile-lru", false),
    ] {
        let server = Server::builder()
            .config(&format!("maxmemory-policy {policy}"))
            .start();
        let log = server.log();
        let warning = log
            .lines()
            .find(|line| line.contains("<seat>") && line.contains("maxmemory-policy"));
        assert_eq!(warning.is_some(), warned, "{policy}:\n{log}");
        if let Some(warning) = warning {
            assert!(
                warning.contains(policy) && warning.contains(" # "),
                "{warning}"
            );
        }
    }
}

#[test]
fn the_log_warns_of_policies_that_evict_a_feed() {
    for (policy, arguments, warned) in [
        ("allkeys-lru", "feed seat:feed", true),
        ("allkeys-random", "denial-feed seat:denied", true),
        ("allkeys-lru", "feed-maxlen 1000", false),
        ("noeviction", "feed seat:feed", false),
    ] {
        let server = Server::builder()
            .config(&format!("maxmemory-policy {policy}"))
            .module_args(arguments)
            .start();
        let log = server.log();
        let warning = format!("maxmemory-policy {policy} may evict a feed");
        assert_eq!(
            log.contains(&warning),
            warned,
            "{policy}, {arguments}:\n{log}"
        );
    }
}

const LISTS: [&str; 3] = ["acquire-sha", "release-sha", "heartbeat-sha"];

/// Which lists the log says are missing, warning by warning.
fn missing_lists(server: &Server) -> Vec<String> {
    let warning = "no script is carried out as a command until all three lists are set; missing: ";
    let log = server.log();
    let warned = log.lines().filter_map(|line| line.split_once(warning));
    warned.map(|(_, missing)| missing.to_owned()).collect()
}

#[test]
fn the_log_names_the_lists_of_scripts_that_are_missing() {
    for set in 0..1 << LISTS.len() {
        let is_set = |index: usize| set & (1 << index) != 0;
        let arguments: Vec<_> = (0..LISTS.len())
            .filter(|&index| is_set(index))
            .map(|index| format!("{} {index:040}", LISTS[index]))
            .collect();
        let missing: Vec<_> = (0..LISTS.len())
            .filter(|&index| !is_set(index))
            .map(|index| format!("seat.{}", LISTS[index]))
            .collect();
        let server = Server::builder().module_args(&arguments.join(" ")).start();
        let mut expected = Vec::new();
        if (1..LISTS.len()).contains(&missing.len()) {
            expected.push(missing.join(" and "));
        }
        assert_eq!(missing_lists(&server), expected, "{arguments:?}");
    }
}

#[test]
fn a_change_that_leaves_a_list_of_scripts_empty_is_warned_of() {
    let (server, mut dialog) = Server::scene();
    if !has_settings(&server) {
        dialog.begins("CONFIG SET seat.acquire-sha x", "!ERR");
        return;
    }
    let sha = |digit: &str| digit.repeat(40);
    let (a, b, c, d) = (sha("a"), sha("b"), sha("c"), sha("d"));
    let mut expected = Vec::new();
    for (change, warning) in [
        ("maxmemory-samples 6".to_owned(), None),
        (
            format!("seat.acquire-sha {a}"),
            Some("seat.release-sha and seat.heartbeat-sha"),
        ),
        (
            format!("seat.acquire-sha {d} seat.release-sha {b}"),
            Some("seat.heartbeat-sha"),
        ),
        ("maxmemory-samples 7".to_owned(), None),
        (format!("seat.heartbeat-sha {c}"), None),
        ("seat.acquire-sha ".to_owned(), Some("seat.acquire-sha")),
        ("seat.release-sha  seat.heartbeat-sha ".to_owned(), None),
        // All of them at once are not incomplete on the way.
        (
            format!("seat.acquire-sha {a} seat.release-sha {b} seat.heartbeat-sha {c}"),
            None,
        ),
    ] {
        // Two spaces, or one at the end, are around an empty value.
        let words: Vec<_> = change.split(' ').collect();
        let command = [&["CONFIG", "SET"], &words[..]].concat();
        assert_eq!(dialog.ask_args(&command), "+OK", "{change}");
        expected.extend(warning.map(str::to_owned));
        assert_eq!(missing_lists(&server), expected, "{change}");
    }
}

#[test]
fn the_module_cannot_be_taken_away_or_loaded_twice() {
    let mut builder = Server::builder();
    if Server::start().version() >= (7, 0, 0) {
        builder = builder.config("enable-module-command yes");
    }
    let (server, mut dialog) = builder.scene();
    dialog.acquire("pool", "a", 9, "{}");
    dialog.begins("MODULE UNLOAD seat", "!ERR");
    let listed = server.log();
    let path = listed
        .split("loaded from ")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    let reply = dialog.ask_args(&["MODULE", "LOAD", path.expect("the module's path")]);
    assert!(reply.starts_with("!ERR"), "{reply}");
    dialog.expect("SEAT.COUNT pool", "1");
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
}
