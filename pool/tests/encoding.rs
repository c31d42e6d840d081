//! The encoding under bad input: whatever the bytes are, a sound pool or an error.

use proptest::prelude::*;
use seat_pool::{DecodeError, Decoder, Effect, Grant, Lease, Pool};

fn pool_of(sessions: usize, metadata: Option<&[u8]>) -> Pool {
    let mut pool = Pool::new(0);
    for number in 0..sessions {
        let id = format!("session-{number}");
        let lease = Lease {
            length_ms: 360_000,
            deadline_ms: 1_700_000_360_000 + number as i64,
        };
        pool.apply(&Effect::Grant(Grant {
            session: id.as_bytes(),
            seats: i64::MIN,
            acquired_at: 1_700_000_000,
            last_heartbeat: u32::MAX,
            heartbeat_count: (number % 2 == 0).then_some(-1),
            lease: (number % 3 == 0).then_some(lease),
            metadata,
        }));
    }
    pool
}

fn decode(blobs: &[Vec<u8>]) -> Result<Pool, DecodeError> {
    let (header, batches) = blobs.split_first().ok_or(DecodeError::Malformed)?;
    let mut decoder = Decoder::new(header)?;
    for batch in batches {
        decoder.batch(batch)?;
    }
    decoder.finish()
}

/// Uses a pool as commands would, so that an unsound one shows.
fn exercise(pool: &Pool) {
    for session in pool.iter() {
        assert!(pool.contains(session.id()));
        if let Some(json) = session.json() {
            serde_json::from_slice::<serde_json::Value>(&json).expect("JSON comes out");
        }
        pool.lease_of(session);
    }
    assert_eq!(pool.iter().count(), pool.len());
    assert!(pool.used(0) <= pool.len());
    let mut emptied = pool.clone();
    let ids: Vec<_> = pool.iter().map(|session| session.id().to_vec()).collect();
    for id in ids {
        assert!(emptied.apply(&Effect::freeing(&id, seat_pool::Freed::Expired)));
    }
    assert!(emptied.is_empty());
}

#[test]
fn each_byte_cut_off_or_flipped_gives_an_error_or_a_sound_pool() {
    for metadata in [None, Some(&br#"{"user":"a"}"#[..])] {
        let blobs: Vec<_> = pool_of(5, metadata).encode().collect();
        exercise(&decode(&blobs).expect("untouched, it decodes"));
        for blob in 0..blobs.len() {
            for byte in 0..blobs[blob].len() {
                let mut cut = blobs.clone();
                cut[blob].truncate(byte);
                assert!(decode(&cut).is_err(), "blob {blob} cut at {byte}");
                for bit in 0..8 {
                    let mut flipped = blobs.clone();
                    flipped[blob][byte] ^= 1 << bit;
                    if let Ok(pool) = decode(&flipped) {
                        exercise(&pool);
                    }
                }
            }
            let mut longer = blobs.clone();
            longer[blob].push(0);
            assert!(decode(&longer).is_err(), "blob {blob} with a byte too many");
        }
        assert!(
            decode(&blobs[..blobs.len() - 1]).is_err(),
            "a batch missing"
        );
    }
}

#[test]
fn a_large_pool_is_written_in_batches_and_read_back() {
    let pool = pool_of(5000, Some(&br#"{"project_root":"/home/user/project"}"#[..]));
    let blobs: Vec<_> = pool.encode().collect();
    assert!(blobs.len() > 4, "{} blobs", blobs.len());
    let again = decode(&blobs).expect("it decodes");
    assert_eq!(again.len(), 5000);
    exercise(&again);
}

#[test]
fn what_no_pool_can_hold_is_refused_by_name() {
    let blobs: Vec<_> = pool_of(2, Some(b"{}")).encode().collect();
    let [header, batch] = &blobs[..] else {
        panic!("one batch for two sessions")
    };
    let with_header = |bytes: &[u8]| decode(&[bytes.to_vec(), batch.clone()]).err();
    let newer = [&[2], &header[1..]].concat();
    assert_eq!(with_header(&newer), Some(DecodeError::UnknownFormat(2)));
    assert_eq!(with_header(&[1, 0, 0, 0]), Some(DecodeError::Empty));
    assert_eq!(
        with_header(&[1, 0, 1, 0]),
        Some(DecodeError::WrongNumberOfRows)
    );
    assert_eq!(
        with_header(&[1, 0, 3, 0]),
        Some(DecodeError::WrongNumberOfRows)
    );
    // The largest count that a header can state costs nothing but the refusal.
    let huge = [&[1, 0][..], &[0xff; 9], &[1, 0]].concat();
    assert_eq!(with_header(&huge), Some(DecodeError::WrongNumberOfRows));

    let header_of = |sessions: u8| vec![1, 0, sessions, 0];
    let row = |id: &[u8], metadata: &[u8], rest: &[u8]| {
        [
            &[id.len() as u8],
            id,
            &[1, metadata.len() as u8],
            metadata,
            rest,
        ]
        .concat()
    };
    let plain = [0, 0, 0, 0];
    let refused = |rows: &[Vec<u8>]| decode(&[header_of(rows.len() as u8), rows.concat()]).err();
    assert_eq!(refused(&[row(b"a", b"{}", &plain)]), None);
    assert_eq!(
        refused(&[row(b"a", b"{}", &plain), row(b"a", b"{}", &plain)]),
        Some(DecodeError::DuplicateSession)
    );
    assert_eq!(
        refused(&[row(b"", b"{}", &plain)]),
        Some(DecodeError::BadSessionId)
    );
    for metadata in [
        "[]",
        "",
        "{",
        " {}",
        r#"{"acquired_at":1}"#,
        r#"{"heartbeat_count":1}"#,
    ] {
        let error = refused(&[row(b"a", metadata.as_bytes(), &plain)]);
        assert_eq!(error, Some(DecodeError::BadMetadata), "{metadata}");
    }
    let no_length = [0, 0, 0, 1, 0, 0];
    assert_eq!(
        refused(&[row(b"a", b"{}", &no_length)]),
        Some(DecodeError::BadLease)
    );
    let last_deadline = [&[0, 0, 0, 1, 1, 0xfe][..], &[0xff; 8], &[1]].concat();
    assert_eq!(
        refused(&[row(b"a", b"{}", &last_deadline)]),
        Some(DecodeError::BadLease)
    );
    let no_count = [&[0, 0, 1, 0xff][..], &[0xff; 8], &[1, 0]].concat();
    assert_eq!(
        refused(&[row(b"a", b"{}", &no_count)]),
        Some(DecodeError::Malformed)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_an_error_or_a_sound_pool(
        sessions in 1..4u8,
        batch in prop::collection::vec(any::<u8>(), 0..80),
        header in prop::option::of(prop::collection::vec(any::<u8>(), 0..12)),
    ) {
        let header = header.unwrap_or_else(|| vec![1, 0, sessions, 0]);
        if let Ok(pool) = decode(&[header, batch]) {
            exercise(&pool);
        }
    }
}
