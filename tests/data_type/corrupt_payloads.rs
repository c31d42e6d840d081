//! RESTORE of payloads that are not what DUMP gave, with a checksum that says they are.

use super::{exercise, grant_shapes, open_server};
use crate::support::Dialog;

/// A payload ends with the RDB version and a checksum of all before it.
pub const CHECKSUM: usize = 8;
pub const FOOTER: usize = 2 + CHECKSUM;

/// The CRC-64 of Redis: Jones' polynomial, reflected.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u64::from(byte), |crc, _| {
            (crc >> 1) ^ (0x95ac_9329_ac4b_c9b5 * (crc & 1))
        })
    })
}

/// With the checksum that belongs to it.
pub fn signed(mut payload: Vec<u8>) -> Vec<u8> {
    let crc = crc64(&payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

/// Restores a payload, and if the server takes it, the pool must be sound.
fn survives(dialog: &mut Dialog, payload: &[u8], context: &str) -> bool {
    let reply = dialog.restore("bad", payload, &["REPLACE"]);
    if reply == "+OK" {
        // A payload may hold leases that expired long ago, so that no session is live.
        if dialog.ask("SEAT.COUNT bad") != "0" {
            exercise(dialog, "bad", context);
        }
        dialog.ask("DEL bad");
        true
    } else {
        assert!(reply.starts_with("!ERR "), "{context}: {reply}");
        dialog.expect("EXISTS bad", "0");
        false
    }
}

/// The payloads of a pool with all shapes, as written with and without compression.
fn payloads() -> Vec<Vec<u8>> {
    let (_server, mut dialog) = open_server();
    grant_shapes(&mut dialog, "pool");
    ["no", "yes"]
        .iter()
        .map(|compression| {
            dialog.expect(&format!("CONFIG SET rdbcompression {compression}"), "+OK");
            let payload = dialog.bytes(&["DUMP", "pool"]);
            let (signed_part, _) = payload.split_at(payload.len() - CHECKSUM);
            assert_eq!(
                signed(signed_part.to_vec()),
                payload,
                "the checksum is the server's"
            );
            payload
        })
        .collect()
}

#[test]
fn a_flipped_bit_makes_an_error_or_a_sound_pool() {
    let (_server, mut dialog) = open_server();
    for payload in payloads() {
        let body = &payload[..payload.len() - CHECKSUM];
        let mut outcomes = [0, 0];
        // The first byte is the type, that of all modules' values: another one would test the
        // server.
        for at in 1..payload.len() - FOOTER {
            for mask in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
                let mut flipped = body.to_vec();
                flipped[at] ^= mask;
                let context = format!("byte {at} of {} ^ {mask}", body.escape_ascii());
                let taken = survives(&mut dialog, &signed(flipped), &context);
                outcomes[usize::from(taken)] += 1;
            }
        }
        let [refused, taken] = outcomes;
        assert!(
            refused > 100 && taken > 100,
            "{refused} refused, {taken} taken"
        );
    }
    grant_shapes(&mut dialog, "pool");
    exercise(&mut dialog, "pool", "afterwards");
}

#[test]
fn a_payload_cut_anywhere_is_refused() {
    let (_server, mut dialog) = open_server();
    for payload in payloads() {
        let (body, footer) = payload.split_at(payload.len() - FOOTER);
        let version = &footer[..2];
        let taken: Vec<usize> = (0..body.len())
            .filter(|&at| {
                let cut = signed([&body[..at], version].concat());
                survives(
                    &mut dialog,
                    &cut,
                    &format!("{} cut at {at}", body.escape_ascii()),
                )
            })
            .collect();
        // The version that follows may pass for the last byte of the value and the mark of its end.
        assert!(
            taken.iter().all(|&at| at + 2 == body.len()),
            "taken though cut at {taken:?}"
        );
        let whole = signed([body, version].concat());
        assert!(survives(&mut dialog, &whole, "uncut"));
    }
}

#[test]
fn a_payload_with_bytes_added_or_removed_does_no_harm() {
    let (_server, mut dialog) = open_server();
    for payload in payloads() {
        let body = &payload[..payload.len() - CHECKSUM];
        for at in 1..payload.len() - FOOTER {
            for inserted in [
                &[0][..],
                &[255],
                &[255; 9],
                &[0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            ] {
                let more = [&body[..at], inserted, &body[at..]].concat();
                survives(
                    &mut dialog,
                    &signed(more),
                    &format!("{inserted:?} more at {at}"),
                );
            }
            let less = [&body[..at], &body[at + 1..]].concat();
            survives(&mut dialog, &signed(less), &format!("a byte less at {at}"));
        }
    }
}

#[test]
fn a_bad_checksum_is_an_error() {
    let (_server, mut dialog) = open_server();
    let mut payload = payloads().remove(0);
    let last = payload.len() - 1;
    payload[last] ^= 1;
    assert!(!survives(&mut dialog, &payload, "a bad checksum"));
}
