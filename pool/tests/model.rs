//! The pool against a model that is too simple to be wrong: a list of sessions, searched from end
//! to end.
//!
//! Random histories of all commands, with jumps of the clock in both directions. After each step
//! the pool must answer as the model does; a second pool that only ever saw the effects, and a
//! third that went through the encoding, must be its equals.
//!
//! `SEAT_TRUST=full` tries ten thousand histories.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::env;

use proptest::prelude::*;
use seat_pool::{
    AcquireRequest, Acquired, AlreadyActive, Applied, BlockedQueue, Claim, Conditions, Decoder,
    Effect, Freed, Granted, HeartbeatOutcome, Holder, Host, Import, Lease, MAX_WEIGHT, Machine,
    Metadata, Moment, Notice, Outcome, Pool, Session, StaleCursor, Waiter,
};

#[derive(Clone, Debug)]
enum Step {
    Acquire {
        id: u8,
        seats: i64,
        lease_ms: Option<u64>,
        metadata: &'static str,
        claim: Claim<'static>,
        with_token: bool,
    },
    Heartbeat {
        id: u8,
        lease_ms: Option<u64>,
        token: Stated,
    },
    Release {
        id: u8,
        token: Stated,
    },
    RevokeOwner {
        owner: &'static [u8],
    },
    /// As from a primary: a session has this token.
    Token {
        id: u8,
        token: u64,
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

/// Which token a call states, if it states one.
#[derive(Clone, Copy, Debug)]
enum Stated {
    Nothing,
    Present,
    Void,
}

const OWNERS: [&[u8]; 3] = [b"ada", &[0xff; 300], b"\0"];

fn claim() -> impl Strategy<Value = Claim<'static>> {
    let weight = prop_oneof![6 => Just(1u32), 4 => 2..5u32, 1 => Just(MAX_WEIGHT)];
    let owner = prop::option::of(prop::sample::select(OWNERS.to_vec()));
    let limit = prop::option::of((1..4u64, any::<bool>()));
    (owner, limit, weight).prop_map(|(owner, limit, weight)| {
        let limit = limit.filter(|_| owner.is_some());
        Claim {
            owner,
            max_per_owner: limit.map(|(max, _)| max),
            takeover: limit.is_some_and(|(_, takeover)| takeover),
            weight,
        }
    })
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
    let seats = prop_oneof![6 => -1..9i64, 1 => Just(i64::from(MAX_WEIGHT) + 3)];
    let token = prop::sample::select(vec![Stated::Nothing, Stated::Present, Stated::Void]);
    let why = prop::sample::select(vec![Freed::Released, Freed::Revoked, Freed::Expired]);
    let step = prop_oneof![
        6 => (id.clone(), seats, lease.clone(), metadata, claim(), any::<bool>())
            .prop_map(|(id, seats, lease_ms, metadata, claim, with_token)| {
                Step::Acquire { id, seats, lease_ms, metadata, claim, with_token }
            }),
        4 => (id.clone(), lease, token.clone())
            .prop_map(|(id, lease_ms, token)| Step::Heartbeat { id, lease_ms, token }),
        2 => (id.clone(), token).prop_map(|(id, token)| Step::Release { id, token }),
        1 => prop::sample::select(OWNERS.to_vec()).prop_map(|owner| Step::RevokeOwner { owner }),
        1 => (id.clone(), 1..200u64).prop_map(|(id, token)| Step::Token { id, token }),
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
    owner: Option<&'static [u8]>,
    weight: u32,
    token: Option<u64>,
    /// The lowest number that no other session had when it came.
    slot: usize,
}

impl ModelSession {
    fn is_live(&self, moment: Moment) -> bool {
        let Moment {
            now_ms, floor_ms, ..
        } = moment;
        self.lease
            .is_none_or(|lease| now_ms < lease.deadline_ms || now_ms < floor_ms)
    }

    /// The last sign of life, in milliseconds.
    fn heard_ms(&self) -> Option<i64> {
        let seconds = self.last_heartbeat.max(self.acquired_at);
        let lease = self.lease;
        let renewed = lease.map(|lease| lease.deadline_ms - lease.length_ms as i64);
        seconds.map(|seconds| seconds * 1000).max(renewed)
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

/// What a call of a session that holds no seat comes to.
enum Verdict {
    /// For the session that ends for it, if one does.
    Granted(Option<Vec<u8>>),
    NoSeats,
    OwnerLimit {
        held: u64,
        max: u64,
    },
}

/// The pool under test with those that follow it, and the model.
struct World {
    moment: Moment,
    pool: Pool,
    follower: Pool,
    sessions: BTreeMap<Vec<u8>, ModelSession>,
    seats: i64,
    /// What the last effect of the machine came to, apart from the ends of other sessions.
    applied: Vec<Applied>,
    /// Whose live sessions have ended by effects of their own.
    ended: Vec<(Vec<u8>, Freed)>,
    /// Whom the last grant has replaced.
    replaced: Option<Vec<u8>>,
    last_token: u64,
    denials: u64,
    /// The seats that were taken with each grant.
    observed: Vec<u64>,
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
        self.last_token += 1;
        self.last_token
    }

    fn block_client(&mut self, _session: &[u8]) -> Option<Infallible> {
        panic!("nobody asks to be blocked")
    }

    fn commit(&mut self, effect: &Effect<'_>) {
        let applied = self.apply(effect);
        match effect {
            Effect::Free { session, why } => {
                assert_eq!(applied, Applied::Done);
                let ended = self.sessions.remove(*session).expect("a known session");
                let is_live = ended.is_live(self.moment);
                assert_eq!(is_live, *why != Freed::Expired, "{why:?}");
                if is_live {
                    self.ended.push((session.to_vec(), *why));
                }
                return;
            }
            Effect::Grant(grant) => self.replaced = grant.replaces.map(<[u8]>::to_vec),
            _ => {}
        }
        self.applied.push(applied);
    }

    fn observe(&mut self, used: u64) {
        self.observed.push(used);
        self.pool.note_used(used);
    }

    fn count_denial(&mut self) {
        self.denials += 1;
        self.pool.count_denial();
    }

    fn confirm(&mut self, _session: &[u8]) {}

    fn wake(&mut self, waiter: Waiter<Infallible>, _outcome: Outcome) {
        match waiter.client {}
    }

    fn notice(&mut self, notice: Notice<'_>) {
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
            applied: Vec::new(),
            ended: Vec::new(),
            replaced: None,
            last_token: 0,
            denials: 0,
            observed: Vec::new(),
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

    fn all_live(&self) -> impl Iterator<Item = (&Vec<u8>, &ModelSession)> {
        let sessions = self.sessions.iter();
        sessions.filter(|(_, session)| session.is_live(self.moment))
    }

    fn used(&self) -> u64 {
        let live = self.all_live();
        live.map(|(_, session)| u64::from(session.weight)).sum()
    }

    fn owned(&self, owner: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &ModelSession)> {
        let live = self.all_live();
        live.filter(move |(_, session)| session.owner == Some(owner))
    }

    /// What a call of a session that holds no seat comes to where nobody waits.
    fn judge(&self, seats: i64, claim: Claim<'_>) -> Verdict {
        let fits = |freed: u32| {
            let used = i128::from(self.used()) - i128::from(freed);
            used + i128::from(claim.weight) <= i128::from(seats)
        };
        let owned = claim.owner.zip(claim.max_per_owner);
        let held = |owner| self.owned(owner).count() as u64;
        let limit = owned.map(|(owner, max)| (held(owner), max));
        let is_at_limit = limit.is_some_and(|(held, max)| held >= max);
        if !is_at_limit && fits(0) {
            return Verdict::Granted(None);
        }
        if claim.takeover
            && let Some((owner, max)) = owned
            && held(owner) <= max
        {
            let silent = self.owned(owner);
            let silent = silent.min_by_key(|(_, session)| (session.heard_ms(), session.slot));
            if let Some((id, _)) = silent.filter(|(_, session)| fits(session.weight)) {
                return Verdict::Granted(Some(id.clone()));
            }
        }
        match limit.filter(|_| is_at_limit) {
            Some((held, max)) => Verdict::OwnerLimit { held, max },
            None => Verdict::NoSeats,
        }
    }

    /// The lowest number that no session has.
    fn free_slot(&self) -> usize {
        let taken = |slot| self.sessions.values().any(|session| session.slot == slot);
        (0..).find(|&slot| !taken(slot)).expect("a number")
    }

    /// The token that a call states, and whether a live session has it.
    fn stated(&self, id: &[u8], stated: Stated) -> (Option<u64>, bool) {
        let own = self.live(id).and_then(|session| session.token);
        match (stated, own) {
            (Stated::Nothing, _) => (None, true),
            (Stated::Present, Some(token)) => (Some(token), true),
            (Stated::Void, Some(token)) => (Some(token + 1), false),
            (Stated::Present | Stated::Void, None) => (Some(1), false),
        }
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
                claim,
                with_token,
            } => {
                let id = id_bytes(id);
                let lease = lease_ms.and_then(|length_ms| Lease::starting(now_ms, length_ms));
                let parsed = Metadata::parse(metadata.as_bytes(), 1000).unwrap();
                let count = parsed.heartbeat_count;
                let used = self.used();
                let was_live = self.live(&id).is_some();
                let verdict = self.judge(seats, claim);
                let request = AcquireRequest {
                    lease,
                    claim,
                    with_token,
                    ..AcquireRequest::plain(&id, seats)
                };
                let (tokens, denials) = (self.last_token, self.denials);
                let answer = Machine::new(self, moment).acquire(&request, &Sound(parsed));
                let answer = answer.expect("nothing is refused");
                let applied = std::mem::take(&mut self.applied);
                let ended = std::mem::take(&mut self.ended);
                let observed = std::mem::take(&mut self.observed);
                let token = with_token.then_some(tokens + 1);
                if was_live {
                    let renewed = lease;
                    let active = AlreadyActive {
                        used,
                        renewed,
                        token,
                    };
                    assert_eq!(answer, Acquired::AlreadyActive(active));
                    let effects = usize::from(lease.is_some()) + usize::from(with_token);
                    assert_eq!(applied, vec![Applied::Done; effects]);
                    let session = self.sessions.get_mut(&id).expect("it is live");
                    session.lease = lease.or(session.lease);
                    session.token = token.or(session.token);
                    return;
                }
                let replaced = match verdict {
                    Verdict::Granted(replaced) => replaced,
                    denied => {
                        let expected = match denied {
                            Verdict::OwnerLimit { held, max } => Acquired::OwnerLimit { held, max },
                            _ => Acquired::NoSeats { used },
                        };
                        assert_eq!(answer, expected);
                        assert_eq!(self.denials, denials + 1);
                        assert_eq!(
                            (applied, ended),
                            (vec![], vec![]),
                            "a denial changes something"
                        );
                        return;
                    }
                };
                assert_eq!(ended, vec![], "an end apart from the grant");
                assert_eq!(self.replaced.take(), replaced);
                self.seats = seats;
                let seconds = now_ms / 1000;
                let session = ModelSession {
                    metadata: Some(metadata),
                    acquired_at: Some(seconds),
                    last_heartbeat: Some(seconds),
                    count,
                    lease,
                    owner: claim.owner,
                    weight: claim.weight,
                    token,
                    slot: self.free_slot(),
                };
                let [applied] = applied[..] else {
                    panic!("{applied:?} for one grant");
                };
                if let Some(replaced) = &replaced {
                    self.sessions.remove(replaced).expect("a known session");
                }
                self.note_session(applied, id, session);
                let used = self.used();
                assert_eq!(observed, [used]);
                let granted = Granted {
                    used,
                    seats,
                    lease,
                    token,
                    replaced: replaced.map(Vec::into_boxed_slice),
                };
                assert_eq!(answer, Acquired::Granted(granted));
                assert!(used as i64 <= seats, "granted above the limit");
                // A floor that rises may have the expired ones be live again.
                let weights = self.sessions.values();
                let all: u64 = weights.map(|session| u64::from(session.weight)).sum();
                assert!(all as i64 <= seats, "expired sessions stand above it");
                if let Some((owner, max)) = claim.owner.zip(claim.max_per_owner) {
                    let sessions = self.sessions.values();
                    let all = sessions.filter(|session| session.owner == Some(owner));
                    assert!(all.count() as u64 <= max, "more than its owner may have");
                }
            }
            Step::Heartbeat {
                id,
                lease_ms,
                token,
            } => {
                let id = id_bytes(id);
                let lease = lease_ms.and_then(|length_ms| Lease::starting(now_ms, length_ms));
                let (token, is_present) = self.stated(&id, token);
                let decision = Machine::new(self, moment).heartbeat(&id, lease, token);
                let applied = std::mem::take(&mut self.applied);
                let Some(mut session) = self.live(&id).filter(|_| is_present).cloned() else {
                    assert_eq!(decision, HeartbeatOutcome::NotActive);
                    assert_eq!(applied, []);
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
                assert_eq!(applied, [Applied::Done]);
                self.sessions.insert(id, session);
            }
            Step::Release { id, token } => {
                let id = id_bytes(id);
                let (token, is_present) = self.stated(&id, token);
                let was_live = self.live(&id).is_some() && is_present;
                let used = Machine::new(self, moment).release(&id, token);
                assert_eq!(used, was_live.then(|| self.used()));
                let ended = std::mem::take(&mut self.ended);
                let expected = was_live.then_some((id, Freed::Released));
                assert_eq!(ended, expected.into_iter().collect::<Vec<_>>());
            }
            Step::RevokeOwner { owner } => {
                let owned = self.owned(owner);
                let mut owned: Vec<_> = owned.map(|(id, _)| (id.clone(), Freed::Revoked)).collect();
                let revoked = Machine::new(self, moment).revoke_owner(owner);
                assert_eq!(revoked, owned.len());
                let mut ended = std::mem::take(&mut self.ended);
                ended.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
                owned.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
                assert_eq!(ended, owned);
            }
            Step::Token { id, token } => {
                let id = id_bytes(id);
                let applied = self.apply(&Effect::Token {
                    session: &id,
                    token,
                });
                assert_eq!(applied, changing(self.sessions.contains_key(&id)));
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.token = Some(token);
                }
                self.last_token = self.last_token.max(token);
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
                    owner: None,
                    weight: 1,
                    token: None,
                    slot: self.free_slot(),
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

    fn check_holders(&self) {
        let moment = self.moment;
        for session in self.pool.iter() {
            let known = &self.sessions[session.id()];
            let holder = Holder {
                owner: known.owner,
                weight: known.weight,
                token: known.token,
            };
            assert_eq!(self.pool.holder_of(session), holder);
            assert!(known.token <= Some(self.pool.last_token()));
        }
        let mut listed: Vec<_> = self.pool.owners(moment).collect();
        listed.sort_unstable();
        let mut owners: Vec<_> = OWNERS
            .into_iter()
            .map(|owner| {
                let weights = self.owned(owner);
                let weights = weights.map(|(_, session)| u64::from(session.weight));
                (
                    owner,
                    self.owned(owner).count() as u64,
                    weights.sum::<u64>(),
                )
            })
            .collect();
        for &(owner, sessions, _) in &owners {
            assert_eq!(self.pool.held(moment, owner), sessions);
            let mut owned: Vec<_> = self.pool.owned(moment, owner).map(Session::id).collect();
            owned.sort_unstable();
            let expected: Vec<_> = self.owned(owner).map(|(id, _)| id.as_slice()).collect();
            assert_eq!(owned, expected);
        }
        owners.retain(|&(_, sessions, _)| sessions > 0);
        owners.sort_unstable();
        assert_eq!(listed, owners);
        assert_eq!(self.pool.count_owners(moment), owners.len());
    }

    fn check(&self) {
        let moment = self.moment;
        let now_ms = moment.now_ms;
        assert_eq!(self.pool.used(moment), self.used(), "used");
        assert_eq!(self.pool.count(moment), self.all_live().count(), "live");
        assert_eq!(self.pool.denied(), self.denials, "denied");
        assert!(self.pool.peak_used(moment) >= self.used());
        self.check_holders();
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

fn histories() -> u32 {
    match env::var("SEAT_TRUST").as_deref() {
        Ok("full") => 10_000,
        Ok(other) => panic!("SEAT_TRUST is {other:?}, but can only be \"full\""),
        Err(_) => 400,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: histories(), ..ProptestConfig::default() })]

    #[test]
    fn the_pool_answers_as_a_naive_model_does(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}
