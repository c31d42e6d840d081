//! The encoding under bad input: whatever the bytes are, a sound pool or an error.

mod common;

use proptest::prelude::*;
use seat_pool::{
    BlockedQueue, Claim, DecodeError, Effect, Grant, Holder, Join, Lease, MAX_ARRIVAL, MAX_SECOND,
    Moment, Pool, Queue, Ticket,
};

use common::{JOINED_MS, decode, exercise};

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
            acquired_at: (number % 5 > 0).then_some(1_700_000_000),
            last_heartbeat: (number % 7 > 0).then_some(MAX_SECOND),
            heartbeat_count: (number % 2 == 0).then_some(-1),
            lease: (number % 3 == 0).then_some(lease),
            metadata,
            holder: Holder::PLAIN,
        }));
    }
    pool
}

/// Adds tickets that arrive in the opposite order of their names, every third of which is lost by
/// [`JOINED_MS`].
fn with_tickets(mut pool: Pool, tickets: usize) -> Pool {
    for number in 0..tickets {
        let session = format!("waiter-{number}");
        let since_ms = JOINED_MS - number as i64;
        pool.apply(&Effect::Join(Join {
            session: session.as_bytes(),
            seats: i64::MAX - (number % 5) as i64,
            arrival: MAX_ARRIVAL - 1 - number as u64,
            ticket: Ticket {
                since_ms,
                length_ms: i64::MAX as u64,
                deadline_ms: if number % 3 == 0 {
                    JOINED_MS
                } else {
                    i64::MAX - 1
                },
            },
            claim: Claim::PLAIN,
        }));
    }
    pool
}

fn tickets_of(pool: &Pool) -> Vec<String> {
    let tickets = pool.all_tickets();
    tickets
        .map(|ticket| format!("{:?}", pool.join_of(ticket)))
        .collect()
}

/// Cuts the blob at each byte, flips each of its bits, and adds a byte: whatever is still accepted
/// must be a sound pool.
fn damage_each_byte(blobs: &[Vec<u8>], blob: usize) {
    for byte in 0..blobs[blob].len() {
        let mut cut = blobs.to_vec();
        cut[blob].truncate(byte);
        assert!(decode(&cut).is_err(), "blob {blob} cut at {byte}");
        for bit in 0..8 {
            let mut flipped = blobs.to_vec();
            flipped[blob][byte] ^= 1 << bit;
            if let Ok(pool) = decode(&flipped) {
                exercise(&pool);
            }
        }
    }
    let mut longer = blobs.to_vec();
    longer[blob].push(0);
    assert!(decode(&longer).is_err(), "blob {blob} with a byte too many");
}

#[test]
fn each_byte_of_a_pool_with_tickets_cut_off_or_flipped_gives_an_error_or_a_sound_pool() {
    for pool in [
        with_tickets(pool_of(3, Some(b"{}")), 4),
        with_tickets(Pool::new(2), 4),
    ] {
        let blobs: Vec<_> = pool.encode().collect();
        let again = decode(&blobs).expect("untouched, it decodes");
        assert_eq!(tickets_of(&again), tickets_of(&pool), "the order is kept");
        assert_eq!(again.seats(), pool.seats());
        exercise(&again);
        for blob in 0..blobs.len() {
            damage_each_byte(&blobs, blob);
            let mut missing = blobs.clone();
            missing.remove(blob);
            assert!(decode(&missing).is_err(), "blob {blob} missing");
            let mut twice = blobs.clone();
            twice.insert(blob, blobs[blob].clone());
            assert!(decode(&twice).is_err(), "blob {blob} twice");
        }
    }
}

#[test]
fn a_long_queue_is_written_in_batches_and_read_back_in_its_order() {
    let pool = with_tickets(pool_of(10, Some(b"{}")), 5000);
    let blobs: Vec<_> = pool.encode().collect();
    assert!(blobs.len() > 4, "{} blobs", blobs.len());
    let again = decode(&blobs).expect("it decodes");
    assert_eq!(again.tickets(), 5000);
    assert_eq!(tickets_of(&again), tickets_of(&pool));
    let nobody = BlockedQueue::<()>::new();
    let queue = Queue::new(&again, &nobody, Moment::at(JOINED_MS), 0);
    // Two in three are valid, and the last to join came first in the order of arrival.
    assert_eq!(queue.waiting(), 3333);
    assert_eq!(queue.position(b"waiter-4999"), Some(1));
    assert_eq!(queue.position(b"waiter-1"), Some(3333));
}

#[test]
fn tickets_that_no_pool_can_hold_are_refused_by_name() {
    let varint = |mut value: u128| {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    let zigzag = |value: i64| varint(((value << 1) ^ (value >> 63)) as u64 as u128);
    let entry = |session: &[u8], arrival: u128, length_ms: u128, deadline_ms: i64| {
        let length = varint(session.len() as u128);
        let fields = [
            varint(arrival),
            zigzag(-1),
            varint(length_ms),
            zigzag(deadline_ms),
            zigzag(7),
            varint(1),
        ];
        [&length, session, &fields.concat()].concat()
    };
    let refused =
        |entries: &[Vec<u8>]| decode(&[vec![1, 0, 0, entries.len() as u8], entries.concat()]).err();
    let last = u128::from(MAX_ARRIVAL);
    let longest_ms = i64::MAX as u128;
    let sound = entry(b"a", last - 1, longest_ms, i64::MAX - 1);
    assert_eq!(refused(std::slice::from_ref(&sound)), None);
    assert_eq!(refused(&[entry(b"a", 0, 1, i64::MIN)]), None);
    assert_eq!(
        refused(&[sound.clone(), entry(b"a", 1, 1, 1)]),
        Some(DecodeError::BadTicket)
    );
    assert_eq!(
        refused(&[entry(b"", 1, 1, 1)]),
        Some(DecodeError::BadSessionId)
    );
    let longest = vec![b'x'; usize::from(u16::MAX)];
    assert_eq!(refused(&[entry(&longest, 1, 1, 1)]), None);
    let too_long = vec![b'x'; usize::from(u16::MAX) + 1];
    assert_eq!(
        refused(&[entry(&too_long, 1, 1, 1)]),
        Some(DecodeError::BadSessionId)
    );
    assert_eq!(
        refused(&[entry(b"a", last, 1, 1)]),
        Some(DecodeError::BadTicket)
    );
    let heavy = [
        &entry(b"a", 1, 1, 1)[..entry(b"a", 1, 1, 1).len() - 1],
        &[2],
    ]
    .concat();
    assert_eq!(refused(&[heavy]), Some(DecodeError::BadTicket));
    // Effects state a length as a signed number, and what no effect can state no replica would
    // follow.
    assert_eq!(
        refused(&[entry(b"a", 1, longest_ms + 1, 1)]),
        Some(DecodeError::BadTicket)
    );
    assert_eq!(
        refused(&[entry(b"a", u64::MAX as u128, 1, 1)]),
        Some(DecodeError::BadTicket)
    );
    assert_eq!(
        refused(&[entry(b"a", 1 << 64, 1, 1)]),
        Some(DecodeError::Malformed)
    );
    assert_eq!(
        refused(&[entry(b"a", 1, 0, 1)]),
        Some(DecodeError::BadTicket)
    );
    assert_eq!(
        refused(&[entry(b"a", 1, 1, i64::MAX)]),
        Some(DecodeError::BadTicket)
    );
    // More or fewer than the header announced, up to the largest count that it can state.
    let with_header = |header: &[u8]| decode(&[header.to_vec(), sound.clone()]).err();
    assert_eq!(
        with_header(&[1, 0, 0, 2]),
        Some(DecodeError::WrongNumberOfEntries)
    );
    let huge = [&[1, 0, 0][..], &[0xff; 9], &[1]].concat();
    assert_eq!(with_header(&huge), Some(DecodeError::WrongNumberOfEntries));
    let two = [sound.clone(), entry(b"b", 1, 1, 1)].concat();
    let surplus = decode(&[vec![1, 0, 0, 1], two]).err();
    assert_eq!(surplus, Some(DecodeError::WrongNumberOfEntries));
}

#[test]
fn two_tickets_of_one_arrival_are_read_as_a_queue_of_two() {
    // Only a made-up payload has them; which of the two is first does not matter.
    let entries = b"\x01a\x05\x00\x01\x02\x08\x01\x01b\x05\x00\x01\x02\x08\x01";
    let pool = decode(&[vec![1, 0, 0, 2], entries.to_vec()]).expect("it decodes");
    exercise(&pool);
    let nobody = BlockedQueue::<()>::new();
    assert_eq!(Queue::new(&pool, &nobody, Moment::at(0), 0).waiting(), 2);
}

#[test]
fn each_byte_cut_off_or_flipped_gives_an_error_or_a_sound_pool() {
    for metadata in [None, Some(&br#"{"user":"a"}"#[..])] {
        let blobs: Vec<_> = pool_of(5, metadata).encode().collect();
        exercise(&decode(&blobs).expect("untouched, it decodes"));
        for blob in 0..blobs.len() {
            damage_each_byte(&blobs, blob);
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
        Some(DecodeError::WrongNumberOfEntries)
    );
    assert_eq!(
        with_header(&[1, 0, 3, 0]),
        Some(DecodeError::WrongNumberOfEntries)
    );
    // The largest count that a header can state costs nothing but the refusal.
    let huge = [&[1, 0][..], &[0xff; 9], &[1, 0]].concat();
    assert_eq!(with_header(&huge), Some(DecodeError::WrongNumberOfEntries));

    let header_of = |sessions: u8| vec![1, 0, sessions, 0];
    let entry = |id: &[u8], metadata: &[u8], rest: &[u8]| {
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
    let refused =
        |entries: &[Vec<u8>]| decode(&[header_of(entries.len() as u8), entries.concat()]).err();
    assert_eq!(refused(&[entry(b"a", b"{}", &plain)]), None);
    assert_eq!(
        refused(&[entry(b"a", b"{}", &plain), entry(b"a", b"{}", &plain)]),
        Some(DecodeError::DuplicateSession)
    );
    assert_eq!(
        refused(&[entry(b"", b"{}", &plain)]),
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
        let error = refused(&[entry(b"a", metadata.as_bytes(), &plain)]);
        assert_eq!(error, Some(DecodeError::BadMetadata), "{metadata}");
    }
    let too_long = [&[0, 0, 0, 1][..], &[0x80; 9], &[1, 0]].concat();
    assert_eq!(
        refused(&[entry(b"a", b"{}", &too_long)]),
        Some(DecodeError::BadLease)
    );
    let no_length = [0, 0, 0, 1, 0, 0];
    assert_eq!(
        refused(&[entry(b"a", b"{}", &no_length)]),
        Some(DecodeError::BadLease)
    );
    let last_deadline = [&[0, 0, 0, 1, 1, 0xfe][..], &[0xff; 8], &[1]].concat();
    assert_eq!(
        refused(&[entry(b"a", b"{}", &last_deadline)]),
        Some(DecodeError::BadLease)
    );
    let no_count = [&[0, 0, 1, 0xff][..], &[0xff; 8], &[1, 0]].concat();
    assert_eq!(
        refused(&[entry(b"a", b"{}", &no_count)]),
        Some(DecodeError::Malformed)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_an_error_or_a_sound_pool(
        sessions in 0..4u8,
        tickets in 0..4u8,
        batch in prop::collection::vec(any::<u8>(), 0..80),
        header in prop::option::of(prop::collection::vec(any::<u8>(), 0..12)),
    ) {
        let header = header.unwrap_or_else(|| vec![1, 0, sessions, tickets]);
        if let Ok(pool) = decode(&[header, batch]) {
            exercise(&pool);
        }
    }
}
