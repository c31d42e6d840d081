//! The pool against a model that is too simple to be wrong: a list of sessions, searched from end
//! to end.
//!
//! Random histories of all commands, with jumps of the clock in both directions. After each step
//! the pool must answer as the model does; a second pool that only ever saw the effects, and a
//! third that went through the encoding, must be its equals.

use std::collections::BTreeMap;
use std::convert::Infallible;

use proptest::prelude::*;
use seat_pool::{
    AcquireRequest, Acquired, AlreadyActive, Applied, BlockedQueue, Conditions, Decoder, Effect,
    Freed, Granted, HeartbeatOutcome, Host, Import, Lease, Machine, Metadata, Moment, Notice,
    Outcome, Pool, StaleCursor, Waiter,
};

#[derive(Clone, Debug)]
enum Step {
    Acquire {
        id: u8,
        seats: i64,
        lease_ms: Option<u64>,
        metadata: &'static str,
    },
    Heartbeat {
        id: u8,
        lease_ms: Option<u64>,
    },
    Renew {
        id: u8,
        lease_ms: u64,
    },
    Free {
        id: u8,
        why: Freed,
    },
    Import {
        id: u8,
        json: Option<&'static str>,
    },
    ClockMoves {
        by_ms: i64,
    },
    /// Until when no lease expires, from the present moment.
    FloorMoves {
        by_ms: i64,
    },
    Reclaim {
        limit: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = 0..12u8;
    let lease = prop::option::of(1..5000u64);
    let metadata = prop::sample::select(vec![
        "{}",
        r#"{"user":"a","n":[1,2]}"#,
        r#"{"heartbeat_count":41,"x":1}"#,
    ]);
    let stored = prop::sample::select(vec![
        None,
        Some("{}"),
        Some(r#"{"acquired_at":1600000000,"last_heartbeat":1600000060,"heartbeat_count":3}"#),
        Some(r#"{"last_heartbeat":1600000060,"user":"b"}"#),
    ]);
    let why = prop::sample::select(vec![Freed::Released, Freed::Revoked, Freed::Expired]);
    let step = prop_oneof![
        6 => (id.clone(), -1..6i64, lease.clone(), metadata)
            .prop_map(|(id, seats, lease_ms, metadata)| Step::Acquire { id, seats, lease_ms, metadata }),
        4 => (id.clone(), lease).prop_map(|(id, lease_ms)| Step::Heartbeat { id, lease_ms }),
        1 => (id.clone(), 1..5000u64).prop_map(|(id, lease_ms)| Step::Renew { id, lease_ms }),
        3 => (id.clone(), why).prop_map(|(id, why)| Step::Free { id, why }),
        2 => (id, stored).prop_map(|(id, json)| Step::Import { id, json }),
        4 => (-1500..4000i64).prop_map(|by_ms| Step::ClockMoves { by_ms }),
        2 => (-500..4000i64).prop_map(|by_ms| Step::FloorMoves { by_ms }),
        2 => (1..4usize).prop_map(|limit| Step::Reclaim { limit }),
    ];
    prop::collection::vec(step, 1..250)
}

#[derive(Clone, Debug, PartialEq)]
struct ModelSession {
    /// The caller's object as far as it is the caller's, if there is any.
    metadata: Option<&'static str>,
    acquired_at: Option<i64>,
    last_heartbeat: Option<i64>,
    count: Option<i64>,
    lease: Option<Lease>,
}

impl ModelSession {
    fn is_live(&self, moment: Moment) -> bool {
        let Moment {
            now_ms, floor_ms, ..
        } = moment;
        self.lease
            .is_none_or(|lease| now_ms < lease.deadline_ms || now_ms < floor_ms)
    }

    fn json(&self) -> Option<serde_json::Value> {
        let mut json: serde_json::Value = serde_json::from_str(self.metadata?).unwrap();
        for (name, value) in [
            ("acquired_at", self.acquired_at),
            ("last_heartbeat", self.last_heartbeat),
            ("heartbeat_count", self.count),
        ] {
            if let Some(value) = value {
                json[name] = value.into();
            }
        }
        Some(json)
    }
}

/// The pool under test with those that follow it, and the model.
struct World {
    moment: Moment,
    pool: Pool,
    follower: Pool,
    sessions: BTreeMap<Vec<u8>, ModelSession>,
    seats: i64,
    /// What the last effect of the machine came to.
    applied: Option<Applied>,
    blocked: BlockedQueue<Infallible>,
}

/// Nobody waits here.
impl Host for World {
    type Client = Infallible;

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn blocked(&self) -> &BlockedQueue<Infallible> {
        &self.blocked
    }

    fn pool_and_blocked(&mut self) -> (&Pool, &mut BlockedQueue<Infallible>) {
        (&self.pool, &mut self.blocked)
    }

    fn next_arrival(&mut self) -> u64 {
        panic!("nobody joins the queue")
    }

    fn next_token(&mut self) -> u64 {
        panic!("nobody asks for a token")
    }

    fn block_client(&mut self, _session: &[u8]) -> Option<Infallible> {
        panic!("nobody asks to be blocked")
    }

    fn commit(&mut self, effect: &Effect<'_>) {
        let applied = self.apply(effect);
        if let Effect::Free { session, why } = effect {
            // An expired session makes way for a grant.
            assert_eq!((applied, *why), (Applied::Done, Freed::Expired));
            let expired = self.sessions.remove(*session).expect("a known session");
            assert!(!expired.is_live(self.moment), "a live session made way");
            return;
        }
        assert_eq!(self.applied.replace(applied), None, "one effect a call");
    }

    fn confirm(&mut self, _session: &[u8]) {}

    fn wake(&mut self, waiter: Waiter<Infallible>, _outcome: Outcome) {
        match waiter.client {}
    }

    fn notice(&mut self, notice: Notice) {
        panic!("{notice:?} where nobody waits")
    }

    fn schedule(&mut self, at_ms: i64) {
        panic!("{at_ms} where nobody waits")
    }
}

/// Metadata, and memory enough.
struct Sound<'a>(Metadata<'a>);

impl<'a> Conditions<'a> for Sound<'a> {
    type Error = Infallible;

    fn metadata(&self) -> Result<Metadata<'a>, Infallible> {
        Ok(self.0.clone())
    }

    fn memory(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

fn id_bytes(id: u8) -> Vec<u8> {
    [id, 0, 0xff, b'\n'].repeat(usize::from(id) + 1)
}

/// What changing a session comes to, where there is one or not.
fn changing(is_there: bool) -> Applied {
    if is_there {
        Applied::Done
    } else {
        Applied::Missed
    }
}

impl World {
    fn new() -> World {
        World {
            moment: Moment::at(1_700_000_000_000),
            pool: Pool::new(0),
            follower: Pool::new(0),
            sessions: BTreeMap::new(),
            seats: 0,
            applied: None,
            blocked: BlockedQueue::new(),
        }
    }

    fn apply(&mut self, effect: &Effect<'_>) -> Applied {
        let applied = self.pool.apply(effect);
        assert_eq!(self.follower.apply(effect), applied);
        applied
    }

    /// Adds a session, or replaces an expired one of the same id.
    fn commit_session(&mut self, effect: Effect<'_>, id: Vec<u8>, session: ModelSession) {
        let applied = self.apply(&effect);
        self.note_session(applied, id, session);
    }

    fn note_session(&mut self, applied: Applied, id: Vec<u8>, session: ModelSession) {
        let expected = match self.sessions.insert(id, session) {
            Some(_) => Applied::Replaced,
            None => Applied::Done,
        };
        assert_eq!(applied, expected);
    }

    fn used(&self) -> usize {
        let live = self
            .sessions
            .values()
            .filter(|session| session.is_live(self.moment));
        live.count()
    }

    fn live(&self, id: &[u8]) -> Option<&ModelSession> {
        self.sessions
            .get(id)
            .filter(|session| session.is_live(self.moment))
    }

    fn take(&mut self, step: Step) {
        let moment = self.moment;
        let now_ms = moment.now_ms;
        match step {
            Step::Acquire {
                id,
                seats,
                lease_ms,
                metadata,
            } => {
                let id = id_bytes(id);
                let lease = lease_ms.and_then(|length_ms| Lease::starting(now_ms, length_ms));
                let parsed = Metadata::parse(metadata.as_bytes(), 1000).unwrap();
                let count = parsed.heartbeat_count;
                let used = self.used() as u64;
                let expected = if self.live(&id).is_some() {
                    let renewed = lease;
                    Acquired::AlreadyActive(AlreadyActive {
                        used,
                        renewed,
                        token: None,
                    })
                } else if self.used() as i64 >= seats {
                    Acquired::NoSeats { used }
                } else {
                    let used = used + 1;
                    Acquired::Granted(Granted {
                        used,
                        seats,
                        lease,
                        token: None,
                        replaced: None,
                    })
                };
                let request = AcquireRequest {
                    lease,
                    ..AcquireRequest::plain(&id, seats)
                };
                let answer = Machine::new(self, moment).acquire(&request, &Sound(parsed));
                assert_eq!(answer.as_ref(), Ok(&expected));
                let applied = self.applied.take();
                match expected {
                    Acquired::Granted(_) => {}
                    Acquired::AlreadyActive(_) => {
                        assert_eq!(applied, lease.map(|_| Applied::Done));
                        if let Some(session) =
                            self.sessions.get_mut(&id).filter(|_| lease.is_some())
                        {
                            session.lease = lease;
                        }
                        return;
                    }
                    _ => {
                        assert_eq!(applied, None);
                        return;
                    }
                }
                self.seats = seats;
                let seconds = now_ms / 1000;
                let session = ModelSession {
                    metadata: Some(metadata),
                    acquired_at: Some(seconds),
                    last_heartbeat: Some(seconds),
                    count,
                    lease,
                };
                self.note_session(applied.expect("a grant"), id, session);
                assert!(
                    (self.pool.used(moment) as i64) <= seats,
                    "granted above the limit"
                );
                // A floor that rises may have the expired ones be live again.
                assert!(
                    self.pool.len() as i64 <= seats,
                    "expired sessions stand above the limit"
                );
            }
            Step::Heartbeat { id, lease_ms } => {
                let id = id_bytes(id);
                let lease = lease_ms.and_then(|length_ms| Lease::starting(now_ms, length_ms));
                let decision = Machine::new(self, moment).heartbeat(&id, lease, None);
                let applied = self.applied.take();
                let Some(mut session) = self.live(&id).cloned() else {
                    assert_eq!(decision, HeartbeatOutcome::NotActive);
                    return;
                };
                if session.metadata.is_none() {
                    assert_eq!(decision, HeartbeatOutcome::NoMetadata);
                    return;
                }
                let HeartbeatOutcome::Updated(heartbeat) = decision else {
                    panic!("{decision:?} for a live session");
                };
                session.count = Some(session.count.unwrap_or(0) + 1);
                session.last_heartbeat = Some(now_ms / 1000);
                let own = session.lease.map(|lease| Lease {
                    deadline_ms: now_ms + lease.length_ms as i64,
                    ..lease
                });
                session.lease = lease.or(own);
                assert_eq!(Some(heartbeat.heartbeat_count), session.count);
                assert_eq!(applied, Some(Applied::Done));
                self.sessions.insert(id, session);
            }
            Step::Renew { id, lease_ms } => {
                let id = id_bytes(id);
                let lease = Lease::starting(now_ms, lease_ms).unwrap();
                let applied = self.apply(&Effect::Renew {
                    session: &id,
                    lease,
                });
                assert_eq!(applied, changing(self.sessions.contains_key(&id)));
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.lease = Some(lease);
                }
            }
            Step::Free { id, why } => {
                let id = id_bytes(id);
                let applied = self.apply(&Effect::freeing(&id, why));
                assert_eq!(applied, changing(self.sessions.remove(&id).is_some()));
            }
            Step::Import { id, json } => {
                let id = id_bytes(id);
                let import = Import::read(&id, json.map(str::as_bytes)).unwrap();
                let effect = import.effect(&self.pool, moment, self.seats);
                assert_eq!(effect.is_none(), self.live(&id).is_some());
                let Some(effect) = effect else { return };
                let known: serde_json::Value = serde_json::from_str(json.unwrap_or("{}")).unwrap();
                let heard = known["last_heartbeat"].as_i64();
                let session = ModelSession {
                    metadata: json,
                    acquired_at: known["acquired_at"].as_i64(),
                    last_heartbeat: heard.or(json.is_none().then_some(now_ms / 1000)),
                    count: known["heartbeat_count"].as_i64(),
                    lease: None,
                };
                self.commit_session(effect, id.clone(), session);
            }
            Step::ClockMoves { by_ms } => self.moment.now_ms += by_ms,
            Step::FloorMoves { by_ms } => self.moment.floor_ms = now_ms + by_ms,
            Step::Reclaim { limit } => {
                let expired: Vec<Vec<u8>> = self
                    .pool
                    .expired(moment, limit)
                    .map(<[u8]>::to_vec)
                    .collect();
                let all = self
                    .sessions
                    .values()
                    .filter(|session| !session.is_live(moment))
                    .count();
                assert_eq!(expired.len(), all.min(limit));
                for id in expired {
                    let session = self
                        .sessions
                        .remove(&id)
                        .expect("only known sessions are reclaimed");
                    assert!(!session.is_live(moment), "a live session was reclaimed");
                    self.apply(&Effect::freeing(&id, Freed::Expired));
                }
            }
        }
    }

    fn check(&self) {
        let moment = self.moment;
        let now_ms = moment.now_ms;
        assert_eq!(self.pool.used(moment), self.used() as u64, "used");
        assert_eq!(self.pool.len(), self.sessions.len(), "sessions");
        let live = self
            .sessions
            .values()
            .filter(|session| session.is_live(moment));
        let with_metadata = live.filter(|session| session.metadata.is_some()).count();
        assert_eq!(
            self.pool.with_metadata(moment),
            with_metadata,
            "with metadata"
        );
        assert_eq!(self.pool.seats(), self.seats, "seats");
        let deadlines = || {
            let leases = self.sessions.values().filter_map(|session| session.lease);
            leases.map(|lease| lease.deadline_ms.max(moment.floor_ms))
        };
        let leased = deadlines().filter(|&deadline| deadline > now_ms).count();
        assert_eq!(self.pool.leased(moment), leased, "leased");
        let next = deadlines().filter(|&deadline| deadline > now_ms).min();
        assert_eq!(self.pool.next_deadline_ms(moment), next, "next deadline");
        assert_eq!(
            self.pool.earliest_deadline_ms(moment),
            deadlines().min(),
            "earliest deadline"
        );
        for id in (0..12).map(id_bytes) {
            let session = self.pool.get(moment, &id);
            let json = session.map(|session| {
                let json = session.json()?;
                Some(serde_json::from_slice::<serde_json::Value>(&json).expect("JSON comes out"))
            });
            assert_eq!(
                json,
                self.live(&id).map(ModelSession::json),
                "the JSON of {id:?}"
            );
            let lease = session.and_then(|session| self.pool.lease_of(session));
            assert_eq!(
                lease,
                self.live(&id).and_then(|session| session.lease),
                "the lease of {id:?}"
            );
        }
        let mut scanned = Vec::new();
        let mut cursor = 0;
        loop {
            let step = self.pool.scan(moment, cursor, 2, |session| {
                scanned.push(session.id().to_vec())
            });
            cursor = step.expect("the cursor is the pool's own");
            if cursor == 0 {
                break;
            }
            for other in [&self.follower, &self.pool.clone()] {
                let step = other.scan(moment, cursor, 2, |_| panic!("a session of another value"));
                assert_eq!(step, Err(StaleCursor));
            }
        }
        scanned.sort();
        let mut live: Vec<_> = self.pool.live(moment).map(|s| s.id().to_vec()).collect();
        live.sort();
        assert_eq!(scanned, live, "SCAN sees each live session once");
        assert_eq!(contents(&self.follower), contents(&self.pool), "follower");
        if !self.pool.is_empty() {
            assert_eq!(
                contents(&reload(&self.pool)),
                contents(&self.pool),
                "reload"
            );
        }
    }
}

/// All that a pool keeps, as the effects that would make it.
fn contents(pool: &Pool) -> Vec<String> {
    let mut grants: Vec<_> = pool
        .iter()
        .map(|session| format!("{:?}", pool.grant_of(session)))
        .collect();
    grants.sort();
    grants.push(format!("{} seats", pool.seats()));
    grants
}

fn reload(pool: &Pool) -> Pool {
    let mut blobs = pool.encode();
    let header = blobs.next().expect("a header");
    let mut decoder = Decoder::new(&header).expect("a sound header");
    for blob in blobs {
        decoder.batch(&blob).expect("a sound batch");
    }
    decoder.finish().expect("a sound pool")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_answers_as_a_naive_model_does(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}
