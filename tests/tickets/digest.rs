//! DEBUG DIGEST-VALUE sees each field of each ticket, and their order.

use std::collections::HashMap;

use crate::queue::recording;
use crate::support::Dialog;

/// The pool with these tickets: session, arrival, since, length and deadline.
#[track_caller]
fn digest(dialog: &mut Dialog, tickets: &[[&str; 5]]) -> String {
    dialog.ask("DEL pool");
    for [session, arrival, since_ms, length_ms, deadline_ms] in tickets {
        let join = format!(
            "SEAT.EFFECT pool JOIN {session} '1 {arrival} {since_ms} {length_ms} {deadline_ms}'"
        );
        dialog.expect(&join, "1");
    }
    dialog.digest_of("pool")
}

#[test]
fn each_field_and_the_order_matter() {
    let (_server, mut dialog) = recording().scene();
    let first = ["t", "5", "1700000000000", "1000", "4000000000000"];
    let second = ["u", "6", "1700000000000", "1000", "4000000000000"];
    let mut variants = vec![vec![], vec![first], vec![first, second]];
    for (field, value) in [
        (0, "T"),
        (2, "1700000000001"),
        (3, "1001"),
        (4, "4000000000001"),
    ] {
        let mut changed = first;
        changed[field] = value;
        variants.push(vec![changed]);
        variants.push(vec![changed, second]);
    }
    let mut later = first;
    later[1] = "7";
    variants.push(vec![later, second]);
    let mut seen = HashMap::new();
    for variant in variants {
        dialog.ask("DEL pool");
        dialog.expect("SEAT.EFFECT other GRANT a '1 9 9 - 0 0' {}", "1");
        let digest = match variant.is_empty() {
            true => dialog.digest_of("other"),
            false => digest(&mut dialog, &variant),
        };
        if let Some(other) = seen.insert(digest, variant.clone()) {
            panic!("{variant:?} and {other:?} have one digest");
        }
    }
}

#[test]
fn how_the_order_came_about_does_not_matter() {
    let (_server, mut dialog) = recording().scene();
    let first = ["t", "5", "1700000000000", "1000", "4000000000000"];
    let second = ["u", "6", "1700000000000", "1000", "4000000000000"];
    let in_order = digest(&mut dialog, &[first, second]);
    assert_eq!(digest(&mut dialog, &[second, first]), in_order);
    assert_eq!(digest(&mut dialog, &[first, second, first]), in_order);
}
