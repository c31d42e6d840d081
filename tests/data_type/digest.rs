//! DEBUG DIGEST-VALUE sees each field, and nothing but the fields.

use std::collections::HashMap;

use super::{SHAPES, grant, grant_shapes, open_server};

#[test]
fn each_field_matters() {
    let (server, mut dialog) = open_server();
    let base = [
        "a",
        "9",
        "1700000000",
        "1700000000",
        "5",
        "1000",
        "4000000000000",
        r#"{"k":1}"#,
    ];
    // Each differs from the base in the field of that index.
    let changes = [
        (0, "b"),
        (1, "10"),
        (2, "1700000001"),
        (3, "1700000001"),
        (4, "6"),
        (4, "-"),
        (4, "0"),
        (5, "1001"),
        (6, "4000000000001"),
        (7, r#"{"k":2}"#),
        (7, r#"{"k": 1}"#),
        (7, "{}"),
        (7, "-"),
    ];
    let mut seen: HashMap<String, String> = HashMap::new();
    let mut variants = vec![base];
    for (index, value) in changes {
        let mut variant = base;
        variant[index] = value;
        variants.push(variant);
    }
    let mut unleased = base;
    (unleased[5], unleased[6]) = ("0", "0");
    variants.push(unleased);
    for fields in variants {
        dialog.ask("DEL pool");
        let fields = fields.join(" ");
        grant(&mut dialog, "pool", fields.as_bytes());
        let digest = dialog.digest_of("pool");
        if let Some(other) = seen.insert(digest, fields.clone()) {
            panic!("{fields} and {other} have one digest");
        }
        // The whole data set's digest is made of the values'.
        let whole = server.digest();
        if let Some(other) = seen.insert(whole, fields.clone()) {
            panic!("{fields} and {other} have one digest");
        }
    }
}

#[test]
fn fields_do_not_flow_into_each_other_nor_sessions() {
    let (_server, mut dialog) = open_server();
    let mut seen = HashMap::new();
    for pool in [
        &[["ab", "{}"], ["c", "{}"]],
        &[["a", "{}"], ["bc", "{}"]],
        &[["ab", r#"{"k":1}"#], ["c", "{}"]],
        &[["ab", "{}"], ["c", r#"{"k":1}"#]],
    ] {
        dialog.ask("DEL pool");
        for [id, metadata] in pool {
            let fields = format!("{id} 9 7 8 - 0 0 {metadata}");
            grant(&mut dialog, "pool", fields.as_bytes());
        }
        if let Some(other) = seen.insert(dialog.digest_of("pool"), pool) {
            panic!("{pool:?} and {other:?} have one digest");
        }
    }
}

#[test]
fn how_the_contents_came_about_does_not_matter() {
    let (_server, mut dialog) = open_server();
    grant_shapes(&mut dialog, "pool");
    let digest = dialog.digest_of("pool");
    for start in 0..SHAPES.len() {
        let key = format!("rotated-{start}");
        grant(&mut dialog, &key, b"passing 9 1 1 - 0 0 {}");
        for n in 0..SHAPES.len() {
            grant(&mut dialog, &key, SHAPES[(start + n) % SHAPES.len()]);
        }
        dialog.expect(&format!("SEAT.EFFECT {key} FREE revoked passing"), "1");
        assert_eq!(dialog.digest_of(&key), digest, "{key}");
    }
    grant_shapes(&mut dialog, "backwards");
    dialog.expect("SEAT.EFFECT backwards FREE released plain", "1");
    assert_ne!(dialog.digest_of("backwards"), digest);
    grant(&mut dialog, "backwards", SHAPES[0]);
    assert_eq!(dialog.digest_of("backwards"), digest);
}
