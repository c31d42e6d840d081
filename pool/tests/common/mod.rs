//! What the tests of the encoding share: reading a pool, and using it so that an unsound one shows.

use std::collections::BTreeMap;

use seat_pool::{
    Applied, BlockedQueue, DecodeError, Decoder, Effect, Freed, Metadata, Moment, Pool, Queue,
    Request, Session,
};

/// A moment at which some of the tests' tickets are lost.
pub const JOINED_MS: i64 = 1_700_000_000_000;

/// JSON by the parser's own rules, nested as deep as it likes.
pub fn json_value(json: &[u8]) -> serde_json::Result<serde_json::Value> {
    let mut parser = serde_json::Deserializer::from_slice(json);
    parser.disable_recursion_limit();
    let value = serde::Deserialize::deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// Reads a pool from its blobs.
pub fn decode(blobs: &[Vec<u8>]) -> Result<Pool, DecodeError> {
    let (header, batches) = blobs.split_first().ok_or(DecodeError::Malformed)?;
    let mut decoder = Decoder::new(header)?;
    for batch in batches {
        decoder.batch(batch)?;
    }
    decoder.finish()
}

/// Uses a pool as commands would, so that an unsound one shows.
pub fn exercise(pool: &Pool) {
    for session in pool.iter() {
        assert!(pool.contains(session.id()));
        if let Some(json) = session.json() {
            json_value(&json).expect("JSON comes out");
        }
        pool.lease_of(session);
    }
    assert_eq!(pool.iter().count(), pool.len());
    exercise_holders(pool);
    exercise_queue(pool);
    let mut emptied = pool.clone();
    let waiting: Vec<_> = pool
        .all_tickets()
        .map(|ticket| ticket.session().to_vec())
        .collect();
    for session in waiting {
        let left = emptied.apply(&Effect::Leave { session: &session });
        assert_eq!(left, Applied::Done);
        assert!(!emptied.has_ticket(&session));
    }
    assert_eq!(emptied.tickets(), 0);
    let ids: Vec<_> = pool.iter().map(|session| session.id().to_vec()).collect();
    for id in ids {
        let freed = emptied.apply(&Effect::freeing(&id, Freed::Expired));
        assert_eq!(freed, Applied::Done);
    }
    assert!(emptied.is_empty());
}

/// Compares all that a pool sums up with its sessions.
fn exercise_holders(pool: &Pool) {
    let deadlines = pool.iter().filter_map(Session::deadline_ms);
    let near = |deadline_ms: i64| [deadline_ms.saturating_sub(1), deadline_ms];
    let times = deadlines.take(3).flat_map(near);
    for now_ms in times.chain([i64::MIN, 0, JOINED_MS, i64::MAX - 1]) {
        for moment in [Moment::at(now_ms), Moment::with_floor(now_ms, JOINED_MS)] {
            let live: Vec<_> = pool.live(moment).collect();
            assert_eq!(pool.count(moment), live.len());
            let mut used = 0;
            let mut owners = BTreeMap::<_, (u64, u64)>::new();
            for session in &live {
                let holder = pool.holder_of(session);
                assert!(holder.token.unwrap_or(0) <= pool.last_token());
                used += u64::from(holder.weight);
                if let Some(owner) = holder.owner {
                    let (sessions, used) = owners.entry(owner).or_default();
                    *sessions += 1;
                    *used += u64::from(holder.weight);
                }
            }
            assert_eq!(pool.used(moment), used);
            let listed = pool.owners(moment);
            let listed = listed.map(|(owner, sessions, used)| (owner, (sessions, used)));
            assert_eq!(listed.collect::<BTreeMap<_, _>>(), owners);
            assert_eq!(pool.count_owners(moment), owners.len());
            assert_eq!(pool.held(moment, b"nobody's name"), 0);
            for (owner, (sessions, _)) in owners {
                assert_eq!(pool.held(moment, owner), sessions);
                let mut owned: Vec<_> = pool.owned(moment, owner).map(Session::id).collect();
                let is_owned = |s: &&Session| pool.holder_of(s).owner == Some(owner);
                let expected = live.iter().copied().filter(is_owned);
                let mut expected: Vec<_> = expected.map(Session::id).collect();
                owned.sort_unstable();
                expected.sort_unstable();
                assert_eq!(owned, expected);
            }
        }
    }
}

/// Asks all that a queue answers, with a client blocked in the midst of it.
fn exercise_queue(pool: &Pool) {
    assert_eq!(pool.all_tickets().count(), pool.tickets());
    let arrivals: Vec<_> = pool.all_tickets().map(|ticket| ticket.arrival()).collect();
    assert!(arrivals.is_sorted(), "{arrivals:?}");
    assert_eq!(pool.last_arrival(), arrivals.last().copied());
    let mut blocked = BlockedQueue::new();
    let in_the_midst = arrivals.get(arrivals.len() / 2).copied().unwrap_or(1);
    let request = Request {
        metadata: Metadata::NONE,
        lease_ms: None,
        ticket_ms: None,
        since_ms: 0,
        claim: None,
        with_token: false,
    };
    blocked.insert(pool, b"\0blocked", i64::MAX, in_the_midst, (), request);
    for now_ms in [i64::MIN, 0, JOINED_MS, i64::MAX - 1] {
        let moment = Moment::at(now_ms);
        let valid = pool
            .all_tickets()
            .filter(|ticket| ticket.waiting.deadline_ms > now_ms);
        let valid = valid.count();
        assert_eq!(
            pool.lost_tickets(moment, usize::MAX).count(),
            pool.tickets() - valid
        );
        let queue = Queue::new(pool, &blocked, moment, 0);
        assert_eq!(queue.waiting(), valid + 1);
        assert_eq!(queue.list().len(), valid + 1);
        let tickets = pool.all_tickets();
        let valid_tickets = tickets.filter(|ticket| ticket.waiting.deadline_ms > now_ms);
        let weights = valid_tickets.map(|ticket| u64::from(ticket.weight()));
        assert!(queue.kept() <= weights.sum::<u64>());
        for ticket in pool.all_tickets() {
            let session = ticket.session();
            let is_valid = ticket.waiting.deadline_ms > now_ms;
            assert_eq!(pool.ticket(moment, session).is_some(), is_valid);
            let position = queue.position(session);
            assert_eq!(position.is_some(), is_valid);
            assert!(position.is_none_or(|position| (1..=valid + 1).contains(&position)));
            let claim = pool.claim_of(ticket);
            assert_eq!(claim.weight, ticket.weight());
            assert!(claim.max_per_owner.is_none() || claim.owner.is_some());
            ticket.waiting.kept(now_ms, ticket.waiting.length_ms);
        }
    }
    if let Some(deadline_ms) = pool.earliest_deadline_ms(Moment::at(0)) {
        assert!(deadline_ms < i64::MAX);
    }
}
