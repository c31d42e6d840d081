//! Files that are not what was written: a clean refusal to load, or a sound pool; never a crash.

use std::fs;
use std::path::PathBuf;

use super::with_effects;
use crate::data_type::{exercise, grant_shapes};
use crate::support::{Dialog, Server};

/// A stopped server with an RDB file without a checksum, and the bytes of the file.
fn saved() -> (Server, PathBuf, Vec<u8>) {
    let mut server = with_effects()
        .config("save 3600 1")
        .config("rdbchecksum no")
        .config("rdbcompression no")
        .start();
    grant_shapes(&mut Dialog::with(&server), "pool");
    server.shutdown();
    let path = server.dir().join("dump.rdb");
    let bytes = fs::read(&path).expect("an RDB file");
    (server, path, bytes)
}

/// Where the pool stands in the file.
fn position(bytes: &[u8], part: &[u8]) -> usize {
    bytes
        .windows(part.len())
        .position(|window| window == part)
        .expect("the pool in the file")
}

/// Starts on a damaged file. Whatever the outcome, the server must not crash, and a pool that it
/// took must be sound.
fn starts_on(server: &mut Server, path: &PathBuf, bytes: &[u8], context: &str) -> bool {
    fs::write(path, bytes).expect("a damaged file");
    let logged = server.log().len();
    match server.try_restart() {
        Ok(()) => {
            let mut dialog = Dialog::with(server);
            if dialog.ask("SEAT.COUNT pool") != "0" {
                exercise(&mut dialog, "pool", context);
            }
            server.kill9();
            true
        }
        Err(log) => {
            let log = &log[logged..];
            for crash in [
                "BUG REPORT",
                "crashed by signal",
                "panicked",
                "ASSERTION FAILED",
            ] {
                assert!(!log.contains(crash), "{context}:\n{log}");
            }
            let reason = log.contains("loading") || log.contains("Internal error in RDB");
            assert!(reason, "{context}: no reason given:\n{log}");
            false
        }
    }
}

#[test]
fn a_cut_rdb_file_is_refused() {
    let (mut server, path, bytes) = saved();
    let start = position(&bytes, b"plain");
    let end = position(&bytes, b"\0\xff\r\n");
    let inside = (start - 20..end + 20).step_by(23);
    let all: Vec<_> = [5, 12]
        .into_iter()
        .chain(inside)
        .chain([bytes.len() - 9])
        .collect();
    for at in all {
        let context = format!("cut at {at} of {}", bytes.len());
        assert!(
            !starts_on(&mut server, &path, &bytes[..at], &context),
            "{context}: loaded"
        );
    }
    assert!(starts_on(&mut server, &path, &bytes, "whole"));
}

#[test]
fn a_flipped_byte_in_an_rdb_file_is_refused_or_harmless() {
    let (mut server, path, bytes) = saved();
    let start = position(&bytes, b"plain") - 10;
    let end = position(&bytes, b"\0\xff\r\n") + 10;
    let mut refused = 0;
    for at in (start..end).step_by(9) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0xff;
        let taken = starts_on(&mut server, &path, &flipped, &format!("byte {at} flipped"));
        refused += usize::from(!taken);
    }
    assert!(refused > 5, "{refused}");
}

#[test]
fn a_cut_append_only_file_is_loaded_up_to_the_cut() {
    let (mut server, mut dialog) = Server::builder().recording().scene();
    dialog.acquire("pool", "a", 9, "{}");
    let digest = server.digest();
    dialog.acquire("pool", "b", 9, "{}");
    server.kill9();
    let path = server.aof_files().pop().expect("an AOF");
    let bytes = fs::read(&path).expect("an AOF");
    fs::write(&path, &bytes[..bytes.len() - 3]).expect("a cut file");
    server.restart();
    assert_eq!(server.digest(), digest);
}

#[test]
fn a_malformed_effect_in_an_aof_does_not_crash_the_server() {
    let mut server = Server::builder().recording().start();
    Dialog::with(&server).acquire("pool", "a", 9, "{}");
    server.kill9();
    let path = server.aof_files().pop().expect("an AOF");
    let mut bytes = fs::read(&path).expect("an AOF");
    bytes.extend_from_slice(
        b"*5\r\n$11\r\nSEAT.EFFECT\r\n$4\r\npool\r\n$4\r\nFREE\r\n$8\r\nnonsense\r\n$1\r\na\r\n",
    );
    fs::write(&path, &bytes).expect("a damaged file");
    let logged = server.log().len();
    match server.try_restart() {
        Ok(()) => assert_eq!(Dialog::with(&server).sessions("pool"), ["a"]),
        Err(log) => assert!(!log[logged..].contains("BUG REPORT"), "{log}"),
    }
}
