//! The encoding under bad input: whatever the bytes are, a sound pool or an error.

mod common;

use std::collections::BTreeSet;

use proptest::prelude::*;
use seat_pool::{
    BlockedQueue, Claim, DecodeError, Effect, Freed, Grant, Holder, Join, Lease, MAX_ARRIVAL,
    MAX_SECOND, MAX_TOKEN, MAX_WEIGHT, Metadata, Moment, Pool, Queue, Ticket,
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
            replaces: None,
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

/// Gives some sessions owners, weights and tokens, and adds tickets with claims.
fn with_holders(mut pool: Pool) -> Pool {
    let holders = [
        (Some(&b"ada"[..]), 1, None),
        (Some(b"ada"), 3, Some(1)),
        (None, MAX_WEIGHT, Some(MAX_TOKEN - 1)),
        (None, 1, Some(77)),
    ];
    for (number, (owner, weight, token)) in holders.into_iter().enumerate() {
        let id = format!("holder-{number}");
        let holder = Holder {
            owner,
            weight,
            token,
        };
        let lease = Lease::starting(JOINED_MS, 500).filter(|_| number % 2 == 1);
        let metadata = Metadata::NONE;
        let grant = Grant::starting(JOINED_MS, id.as_bytes(), 9, &metadata, lease);
        pool.apply(&Effect::Grant(Grant { holder, ..grant }));
    }
    let claims = [
        (None, false, 1),
        (Some(1), false, 2),
        (Some(i64::MAX as u64), true, MAX_WEIGHT),
    ];
    for (number, (max_per_owner, takeover, weight)) in claims.into_iter().enumerate() {
        let id = format!("claimant-{number}");
        pool.apply(&Effect::Join(Join {
            session: id.as_bytes(),
            seats: 5,
            arrival: number as u64,
            ticket: Ticket {
                since_ms: JOINED_MS,
                length_ms: 500,
                deadline_ms: JOINED_MS + 500,
            },
            claim: Claim {
                owner: Some(b"ada"),
                max_per_owner,
                takeover,
                weight,
            },
        }));
    }
    pool
}

fn sessions_of(pool: &Pool) -> BTreeSet<String> {
    let grants = pool.iter().map(|session| pool.grant_of(session));
    grants.map(|grant| format!("{grant:?}")).collect()
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
        with_holders(with_tickets(pool_of(2, Some(b"{}")), 1)),
    ] {
        let blobs: Vec<_> = pool.encode().collect();
        let again = decode(&blobs).expect("untouched, it decodes");
        assert_eq!(tickets_of(&again), tickets_of(&pool), "the order is kept");
        assert_eq!(sessions_of(&again), sessions_of(&pool));
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

/// Why a payload in the format with owners is refused: entries with what follows each.
fn refusal_of(sessions: u8, tickets: u8, parts: &[&[u8]]) -> Option<DecodeError> {
    decode(&[vec![2, 0, sessions, tickets], parts.concat()]).err()
}

#[test]
fn holders_that_no_pool_can_have_are_refused_by_name() {
    let session = b"\x01a\x01\x02{}\x00\x00\x00\x00";
    let refused = |holder: &[u8]| refusal_of(1, 0, &[session, holder]);
    let bad = Some(DecodeError::BadHolder);
    let largest_weight = [0xff, 0xff, 0xff, 0xff, 0x07];
    let largest_token = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x07];
    assert_eq!(refused(&[0, 1, 0]), None);
    assert_eq!(refused(&[0, 0, 0]), bad, "no weight");
    assert_eq!(refused(&[&[0][..], &largest_weight, &[0]].concat()), None);
    let heavier = [0x80, 0x80, 0x80, 0x80, 0x08];
    assert_eq!(refused(&[&[0][..], &heavier, &[0]].concat()), bad);
    assert_eq!(refused(&[0, 1, 1, 0]), bad, "no token");
    assert_eq!(refused(&[&[0, 1, 1][..], &largest_token].concat()), None);
    let larger = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x08];
    assert_eq!(refused(&[&[0, 1, 1][..], &larger].concat()), bad);
    assert_eq!(refused(&[1, 0, 1, 0]), bad, "an owner without a name");
    let longest = [&[1, 0xff, 0xff, 3][..], &[b'o'; 65_535], &[1, 0]].concat();
    assert_eq!(refused(&longest), None);
    let longer = [&[1, 0x80, 0x80, 4][..], &[b'o'; 65_536], &[1, 0]].concat();
    assert_eq!(refused(&longer), bad);
    assert_eq!(refused(&[0, 1]), Some(DecodeError::Malformed));
}

#[test]
fn claims_that_no_caller_can_state_are_refused_by_name() {
    let ticket = |weight| [&b"\x01a\x05\x00\x01\x02\x08"[..], &[weight]].concat();
    let refused = |weight, claim: &[u8]| refusal_of(0, 1, &[&ticket(weight), claim]);
    let bad = Some(DecodeError::BadTicket);
    let owner = [1, 1, b'o'];
    let of_owner = |weight, limit: &[u8]| refused(weight, &[&owner[..], limit].concat());
    assert_eq!(refused(1, &[0, 0, 0]), None);
    assert_eq!(refused(0, &[0, 0, 0]), bad, "no weight");
    assert_eq!(of_owner(9, &[1, 1, 1]), None);
    assert_eq!(of_owner(1, &[0, 0]), None);
    assert_eq!(of_owner(1, &[0, 1]), bad, "a takeover without a limit");
    assert_eq!(of_owner(1, &[1, 0, 0]), bad, "a limit of 0");
    assert_eq!(refused(1, &[0, 1, 1, 0]), bad, "a limit for nobody");
    assert_eq!(refused(1, &[1, 0, 0, 0]), bad, "an owner without a name");
    let largest = [&[1][..], &[0xff; 8], &[0x7f, 0]].concat();
    assert_eq!(of_owner(1, &largest), None);
    let larger = [&[1][..], &[0xff; 9], &[1, 0]].concat();
    assert_eq!(of_owner(1, &larger), bad);
    assert_eq!(of_owner(1, &[1, 1, 2]), Some(DecodeError::Malformed));
}

#[test]
fn only_what_needs_the_newer_format_is_written_in_it() {
    let format = |pool: &Pool| pool.encode().next().expect("a header")[0];
    let mut pool = with_tickets(pool_of(3, Some(b"{}")), 2);
    assert_eq!(format(&pool), 1);
    pool.apply(&Effect::Token {
        session: b"session-1",
        token: 1,
    });
    assert_eq!(format(&pool), 2);
    pool.apply(&Effect::freeing(b"session-1", Freed::Expired));
    assert_eq!(format(&pool), 1);
    let plain = pool.clone();
    let ticket = plain.any_ticket(b"waiter-0").expect("a ticket");
    let Effect::Join(join) = plain.join_of(ticket) else {
        panic!("a ticket is of a join");
    };
    let heavy = Claim {
        weight: 2,
        ..Claim::PLAIN
    };
    let owned = Claim {
        owner: Some(b"ada"),
        ..Claim::PLAIN
    };
    for claim in [heavy, owned] {
        pool.apply(&Effect::Join(Join { claim, ..join }));
        assert_eq!(format(&pool), 2, "{claim:?}");
        pool.apply(&Effect::Join(join));
        assert_eq!(format(&pool), 1);
    }
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
    for format in [0, 3, 255] {
        let other = [&[format], &header[1..]].concat();
        assert_eq!(
            with_header(&other),
            Some(DecodeError::UnknownFormat(format))
        );
    }
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
        format in 1..3u8,
        sessions in 0..4u8,
        tickets in 0..4u8,
        batch in prop::collection::vec(any::<u8>(), 0..80),
        header in prop::option::of(prop::collection::vec(any::<u8>(), 0..12)),
    ) {
        let header = header.unwrap_or_else(|| vec![format, 0, sessions, tickets]);
        if let Ok(pool) = decode(&[header, batch]) {
            exercise(&pool);
        }
    }
}
