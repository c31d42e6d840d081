//! What the tests of the encoding share: reading a pool, and using it so that an unsound one shows.

use seat_pool::{
    Applied, BlockedQueue, DecodeError, Decoder, Effect, Freed, Metadata, Moment, Pool, Queue,
    Request,
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
    assert!(pool.count(Moment::at(0)) <= pool.len());
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
        assert!(queue.kept() <= valid as u64);
        for ticket in pool.all_tickets() {
            let session = ticket.session();
            let is_valid = ticket.waiting.deadline_ms > now_ms;
            assert_eq!(pool.ticket(moment, session).is_some(), is_valid);
            let position = queue.position(session);
            assert_eq!(position.is_some(), is_valid);
            assert!(position.is_none_or(|position| (1..=valid + 1).contains(&position)));
            ticket.waiting.kept(now_ms, ticket.waiting.length_ms);
        }
    }
    if let Some(deadline_ms) = pool.earliest_deadline_ms(Moment::at(0)) {
        assert!(deadline_ms < i64::MAX);
    }
}
