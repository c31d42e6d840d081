//! Users with less than all rights.

use crate::commands::table::{self, Row, TABLE};
use crate::support::{Dialog, Product, Server};

const CALL: fn(&Row) -> &'static str = |row| row.call;

fn prepared() -> (Server, Dialog) {
    let (server, mut dialog) = Server::scene();
    dialog.acquire_all("pool", &["a", "b"], 9);
    (server, dialog)
}

#[track_caller]
fn allowed(dialog: &mut Dialog, command: &str) {
    dialog.succeeds(command);
}

#[test]
fn a_key_pattern_covers_every_command() {
    let (server, _) = prepared();
    let digest = server.digest();
    let mut outsider = Dialog::as_worker(&server, "~other:* +@all");
    for command in table::public().map(CALL) {
        outsider.forbidden(command);
    }
    outsider.forbidden("SEAT.EFFECT pool FREE released a");
    assert_eq!(server.digest(), digest);
    for command in table::public().map(CALL) {
        allowed(&mut outsider, &command.replace(" pool", " other:pool"));
    }
}

#[test]
fn each_command_is_a_right_of_its_own() {
    let (server, _) = prepared();
    for right in TABLE.iter().map(|row| row.name().to_lowercase()) {
        let mut dialog = Dialog::as_worker(&server, &format!("~* +{right}"));
        for command in table::public().map(CALL) {
            let name = command.split(' ').next().expect("a name");
            if name.eq_ignore_ascii_case(&right) {
                allowed(&mut dialog, command);
            } else {
                dialog.forbidden(command);
            }
        }
    }
}

#[test]
fn a_user_may_have_everything_but_revoke() {
    let (server, _) = prepared();
    let mut dialog = Dialog::as_worker(&server, "~* +@all -seat.revoke");
    dialog.forbidden("SEAT.REVOKE pool a");
    dialog.expect("SEAT.COUNT pool", "2");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
}

#[test]
fn a_reader_of_a_key_cannot_write_it() {
    let (server, mut admin) = prepared();
    if server.version() < (7, 0, 0) {
        admin.begins("ACL SETUSER worker reset on nopass %R~* +@all", "!ERR");
        return;
    }
    let digest = server.digest();
    let mut reader = Dialog::as_worker(&server, "%R~pool* +@all");
    for command in table::readers().map(CALL) {
        allowed(&mut reader, command);
    }
    for command in table::writers().map(CALL) {
        reader.forbidden(command);
    }
    assert_eq!(server.digest(), digest);
    let mut writer = Dialog::as_worker(&server, "%W~pool* +@all");
    for command in table::readers().map(CALL) {
        writer.forbidden(command);
    }
    let mut both = Dialog::as_worker(&server, "%RW~pool* +@all");
    for command in table::public().map(CALL) {
        allowed(&mut both, command);
    }
}

#[test]
fn the_categories_are_those_that_the_server_has() {
    let (server, _) = prepared();
    let in_categories = server.version() >= (7, 2, 0);
    let mut reader = Dialog::as_worker(&server, "~* +@read");
    for command in table::readers().map(CALL) {
        if in_categories {
            allowed(&mut reader, command);
        } else {
            reader.forbidden(command);
        }
    }
    for command in table::writers().map(CALL) {
        reader.forbidden(command);
    }
    for (rights, fast, slow) in [
        ("+@fast", true, false),
        ("+@slow", false, true),
        ("+@all -@slow", true, false),
        ("+@all -@fast", false, true),
    ] {
        let mut dialog = Dialog::as_worker(&server, &format!("~* {rights}"));
        // A category that the server does not know a command to be in neither gives nor takes it.
        let without = rights.starts_with("+@all");
        for row in table::public() {
            let (command, has) = (row.call, if row.is_fast { fast } else { slow });
            if if in_categories { has } else { without } {
                allowed(&mut dialog, command);
            } else {
                dialog.forbidden(command);
            }
        }
    }
    let mut patient = Dialog::as_worker(&server, "~* +@all -@blocking");
    for command in ["SEAT.ACQUIRE pool a 9", "SEAT.ACQUIRE pool x 1 BLOCK 1"] {
        if in_categories {
            patient.forbidden(command);
        } else {
            allowed(&mut patient, command);
        }
    }
    allowed(&mut patient, "SEAT.HEARTBEAT pool a");
    let mut writer = Dialog::as_worker(&server, "~* +@write");
    for command in table::writers().map(CALL) {
        if in_categories {
            allowed(&mut writer, command);
        } else {
            writer.forbidden(command);
        }
    }
}

#[test]
fn the_category_seat_holds_all_commands_where_there_is_one() {
    let (server, mut admin) = prepared();
    let listed = admin.ask("ACL CAT");
    if matches!(server.product(), Product::Redis(version) if version < (7, 4, 0)) {
        assert!(!listed.contains("\"seat\""), "{listed}");
        admin.begins("ACL CAT seat", "!ERR");
        return;
    }
    assert!(listed.contains("\"seat\""), "{listed}");
    // Some list nothing for any category that a module has added, and heed it all the same.
    let lists_nothing = matches!(
        server.product(),
        Product::Redis((7, 4, _)) | Product::Valkey((8, 0, _))
    );
    let commands = admin.ask("ACL CAT seat");
    assert_eq!(commands == "[]", lists_nothing, "{commands}");
    for row in table::public().filter(|_| !lists_nothing) {
        let name = row.name().to_lowercase();
        assert!(
            commands.contains(&format!("\"{name}\"")),
            "{name} not in {commands}"
        );
    }
    let mut dialog = Dialog::as_worker(&server, "~* +@seat");
    for command in table::public().map(CALL) {
        allowed(&mut dialog, command);
    }
    dialog.forbidden("GET x");
}

#[test]
fn what_scripts_and_transactions_call_is_checked_as_well() {
    let (server, mut admin) = prepared();
    let mut dialog = Dialog::as_worker(&server, "~pool +@all -seat.revoke");
    for (key, command) in [("pool", "SEAT.REVOKE"), ("other", "SEAT.RELEASE")] {
        let script = format!("return redis.call('{command}', '{key}', 'a')");
        let reply = dialog.eval(&script, &[]);
        assert!(reply.starts_with('!'), "{reply}");
        dialog.expect("MULTI", "+OK");
        dialog.forbidden(&format!("{command} {key} a"));
        dialog.begins("EXEC", "!EXECABORT");
    }
    admin.expect("SEAT.COUNT pool", "2");
}
