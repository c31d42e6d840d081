//! What sessions have only if their callers asked for it: owners, weights and tokens.

use std::num::NonZeroU32;

use crate::effect::Holder;
use crate::index::Index;
use crate::memory::allocated;
use crate::moment::Moment;
use crate::order::{Entry, Order, Sum, Value};
use crate::session::NEVER_MS;
use crate::slab::Slab;

/// Session slots in a chunk, as in the slab of the sessions.
const CHUNK: usize = 256;

/// Where a session without a lease stands among those of its owner: behind all deadlines.
const NO_DEADLINE: i64 = i64::MAX;

/// Owners, weights and tokens, by the slots of their sessions. A pool in which no session has any
/// has no such table.
///
/// ```text
/// session's slot ──> number of its entry ──> owner's number, weight, token
///                                                  │
///                         sessions of each owner <─┴─> the owner's name, stored once
///                         by (owner, deadline, slot), summed up: their
///                         weights, and which was silent for the longest
/// ```
///
/// The live sessions of an owner are neighbours in that index, behind its expired ones. So what it
/// holds and who of it was silent for the longest is O(log n), however many sessions it has, and
/// not one expired session is visited for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holders {
    numbers: Numbers,
    entries: Slab<Held>,
    /// Each with the number of its sessions, expired ones included.
    owners: Slab<Owner>,
    /// From owners to their numbers in `owners`.
    owner_index: Index,
    /// The sessions with an owner, by their owners and deadlines.
    owned: Order<Owned, (u32, i64)>,
    /// The leased sessions that weigh more than 1, by deadline, with what they weigh beyond that.
    leased_extra: Order<u32>,
    /// What all sessions weigh beyond 1 each.
    extra: u64,
    /// The largest token that a session has had.
    last_token: u64,
    owner_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    /// The owner's number, or [`NOBODY`].
    owner: u32,
    weight: NonZeroU32,
    /// 0 for none.
    token: u64,
}

/// No owner has this number.
const NOBODY: u32 = u32::MAX;

/// A session with an owner.
#[derive(Clone, Copy, Debug)]
struct Owned {
    /// Its last sign of life, in milliseconds of unix time.
    heard_ms: i64,
    weight: u32,
}

/// What some sessions with an owner come to together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnedSum {
    /// The seats that they take.
    seats: u64,
    /// The earliest of their last signs of life, and the slot of its session; of several, the
    /// lowest.
    most_silent: (i64, u32),
}

impl Value for Owned {
    type Sum = OwnedSum;

    fn amount(self, slot: u32) -> OwnedSum {
        OwnedSum {
            seats: self.weight.into(),
            most_silent: (self.heard_ms, slot),
        }
    }
}

/// Of no session: all others are more silent.
impl Default for OwnedSum {
    fn default() -> Self {
        OwnedSum {
            seats: 0,
            most_silent: (i64::MAX, u32::MAX),
        }
    }
}

impl Sum for OwnedSum {
    fn add(&mut self, amount: OwnedSum) {
        self.seats += amount.seats;
        self.most_silent = self.most_silent.min(amount.most_silent);
    }

    fn subtract(&mut self, amount: OwnedSum) -> bool {
        self.seats -= amount.seats;
        self.most_silent != amount.most_silent
    }
}

#[derive(Clone, Debug)]
struct Owner {
    name: Box<[u8]>,
    sessions: u32,
}

impl Holders {
    /// Whether no session has anything here.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// Notes what the session in a slot has, which is not plain, and its last sign of life. Its
    /// slot must have nothing yet. O(log n).
    #[inline(never)]
    pub(crate) fn insert(
        &mut self,
        slot: u32,
        holder: &Holder<'_>,
        deadline_ms: Option<i64>,
        heard_ms: i64,
    ) {
        let owner = holder
            .owner
            .map_or(NOBODY, |owner| self.add_to_owner(owner));
        let held = Held {
            owner,
            weight: NonZeroU32::new(holder.weight).unwrap_or(NonZeroU32::MIN),
            token: holder.token.unwrap_or(0),
        };
        let number = self.entries.insert(held);
        self.numbers.set(slot, number);
        self.last_token = self.last_token.max(held.token);
        self.extra += held.extra();
        self.insert_deadline(slot, held, deadline_ms, heard_ms);
    }

    /// Forgets what the session in a slot has. O(log n).
    #[inline(never)]
    pub(crate) fn remove(&mut self, slot: u32, deadline_ms: Option<i64>) {
        let number = self.numbers.remove(slot);
        let Some(held) = number.and_then(|number| self.entries.remove(number)) else {
            return;
        };
        self.extra -= held.extra();
        self.remove_deadline(slot, held, deadline_ms);
        if held.owner != NOBODY {
            self.remove_from_owner(held.owner);
        }
    }

    /// The lease or the last sign of life of the session in a slot is another. O(log n).
    #[inline(never)]
    pub(crate) fn renew(
        &mut self,
        slot: u32,
        old_ms: Option<i64>,
        deadline_ms: Option<i64>,
        heard_ms: i64,
    ) {
        let Some(held) = self.held(slot) else {
            return;
        };
        if old_ms != deadline_ms {
            self.remove_deadline(slot, held, old_ms);
            self.insert_deadline(slot, held, deadline_ms, heard_ms);
        } else if held.owner != NOBODY {
            let at = (held.owner, deadline_ms.unwrap_or(NO_DEADLINE));
            let weight = held.weight.get();
            self.owned.set(at, slot, Owned { heard_ms, weight });
        }
    }

    /// Gives the session in a slot a token. O(1).
    pub(crate) fn set_token(&mut self, slot: u32, token: u64, deadline_ms: Option<i64>) {
        let number = self.numbers.get(slot);
        match number.and_then(|number| self.entries.get_mut(number)) {
            Some(held) => {
                held.token = token;
                self.last_token = self.last_token.max(token);
            }
            None => {
                let holder = Holder {
                    token: Some(token),
                    ..Holder::PLAIN
                };
                // Without an owner, nobody asks when it was heard.
                self.insert(slot, &holder, deadline_ms, NEVER_MS);
            }
        }
    }

    fn insert_deadline(&mut self, slot: u32, held: Held, deadline_ms: Option<i64>, heard_ms: i64) {
        let weight = held.weight.get();
        if held.owner != NOBODY {
            self.owned.insert(Entry {
                at: (held.owner, deadline_ms.unwrap_or(NO_DEADLINE)),
                slot,
                value: Owned { heard_ms, weight },
            });
        }
        if let Some(at) = deadline_ms.filter(|_| weight > 1) {
            let value = weight - 1;
            self.leased_extra.insert(Entry { at, slot, value });
        }
    }

    fn remove_deadline(&mut self, slot: u32, held: Held, deadline_ms: Option<i64>) {
        if held.owner != NOBODY {
            let at = (held.owner, deadline_ms.unwrap_or(NO_DEADLINE));
            self.owned.remove(at, slot);
        }
        if let Some(at) = deadline_ms.filter(|_| held.weight.get() > 1) {
            self.leased_extra.remove(at, slot);
        }
    }

    fn add_to_owner(&mut self, name: &[u8]) -> u32 {
        let number = self.owner_number(name).unwrap_or_else(|| {
            let owner = Owner {
                name: name.into(),
                sessions: 0,
            };
            self.owner_bytes += allocated(name.len());
            let number = self.owners.insert(owner);
            let owners = &self.owners;
            self.owner_index
                .put(name, number, |number| name_in(owners, number));
            number
        });
        if let Some(owner) = self.owners.get_mut(number) {
            owner.sessions += 1;
        }
        number
    }

    fn remove_from_owner(&mut self, number: u32) {
        let Some(owner) = self.owners.get_mut(number) else {
            return;
        };
        owner.sessions -= 1;
        if owner.sessions == 0
            && let Some(owner) = self.owners.get(number)
        {
            let owners = &self.owners;
            self.owner_index
                .remove(&owner.name, |number| name_in(owners, number));
            self.owner_bytes -= allocated(owner.name.len());
            self.owners.remove(number);
        }
    }

    fn owner_number(&self, name: &[u8]) -> Option<u32> {
        let owners = &self.owners;
        self.owner_index
            .find(name, |number| name_in(owners, number))
    }

    fn held(&self, slot: u32) -> Option<Held> {
        self.entries.get(self.numbers.get(slot)?).copied()
    }

    /// What the session in a slot has. O(1).
    #[inline(never)]
    pub(crate) fn get(&self, slot: u32) -> Holder<'_> {
        self.held(slot).map_or(Holder::PLAIN, |held| Holder {
            owner: self.owners.get(held.owner).map(|owner| &*owner.name),
            weight: held.weight.get(),
            token: (held.token > 0).then_some(held.token),
        })
    }

    /// What live sessions weigh beyond 1 each. O(log n) while some that weigh more have expired,
    /// otherwise O(1).
    #[inline(never)]
    pub(crate) fn extra(&self, moment: Moment) -> u64 {
        let latest = moment.latest_passed_ms();
        let passed = latest.map_or(0, |latest_ms| self.leased_extra.rank(latest_ms).1);
        self.extra - passed
    }

    /// What all sessions weigh beyond 1 each, expired ones included. O(1).
    pub(crate) fn extra_of_all(&self) -> u64 {
        self.extra
    }

    /// The largest token that a session has had. O(1).
    pub(crate) fn last_token(&self) -> u64 {
        self.last_token
    }

    /// How many live sessions an owner has. O(log n).
    pub(crate) fn count_of(&self, moment: Moment, owner: &[u8]) -> u64 {
        let Some(number) = self.owner_number(owner) else {
            return 0;
        };
        let first = self.owned.first_from((number, i64::MIN));
        if first.is_some_and(|first| moment.has_passed(first.at.1)) {
            return self.live_of(moment, number).0;
        }
        // None has expired.
        let owner = self.owners.get(number);
        owner.map_or(0, |owner| owner.sessions.into())
    }

    /// How many live sessions an owner has, and what they come to together. O(log n).
    fn live_of(&self, moment: Moment, number: u32) -> (u64, OwnedSum) {
        let first = (number, first_live_ms(moment));
        let (sessions, sum) = self.owned.between(first, (number, NO_DEADLINE));
        (sessions as u64, sum)
    }

    /// The slot of the live session of an owner that has been silent for the longest; of several,
    /// the lowest. O(log n), whatever the number of its sessions, expired ones included.
    pub(crate) fn most_silent_of(&self, moment: Moment, owner: &[u8]) -> Option<u32> {
        let number = self.owner_number(owner)?;
        if self.owners.get(number)?.sessions == 1 {
            // With a limit of one it is mostly this one.
            let only = self.owned.first_from((number, first_live_ms(moment)))?;
            return (only.at.0 == number).then_some(only.slot);
        }
        let (sessions, sum) = self.live_of(moment, number);
        let (_, slot) = sum.most_silent;
        (sessions > 0).then_some(slot)
    }

    /// How many sessions an owner has, expired ones included. O(1).
    pub(crate) fn all_of_owner(&self, owner: &[u8]) -> u64 {
        let number = self.owner_number(owner);
        let owner = number.and_then(|number| self.owners.get(number));
        owner.map_or(0, |owner| owner.sessions.into())
    }

    /// The slots of an owner's live sessions, those without a lease last. O(log n), then O(1) a
    /// session.
    pub(crate) fn live_slots_of(&self, moment: Moment, owner: &[u8]) -> impl Iterator<Item = u32> {
        let number = self.owner_number(owner).unwrap_or(NOBODY);
        let rest = self.owned.iter_from((number, first_live_ms(moment)));
        rest.take_while(move |entry| entry.at.0 == number)
            .map(|entry| entry.slot)
    }

    /// The slots of an owner's sessions whose leases have expired, the earliest deadline first.
    /// O(log n), then O(1) a session.
    pub(crate) fn expired_slots_of(
        &self,
        moment: Moment,
        owner: &[u8],
    ) -> impl Iterator<Item = u32> {
        let number = self.owner_number(owner).unwrap_or(NOBODY);
        let all = self.owned.iter_from((number, i64::MIN));
        all.take_while(move |entry| entry.at.0 == number)
            .take_while(move |entry| moment.has_passed(entry.at.1))
            .map(|entry| entry.slot)
    }

    /// The owners of live sessions, each with how many these are and the seats that they take. O(m
    /// log n) where m is the number of owners.
    pub(crate) fn owners(&self, moment: Moment) -> impl Iterator<Item = (&[u8], u64, u64)> {
        let owners = self.owners.iter_from(0).map(move |(number, owner)| {
            let (sessions, sum) = self.live_of(moment, number);
            (&*owner.name, sessions, sum.seats)
        });
        owners.filter(|&(_, sessions, _)| sessions > 0)
    }

    /// How many owners there are, those whose sessions have all expired included. O(1).
    pub(crate) fn count_owners(&self) -> usize {
        self.owners.len()
    }

    /// O(n / 256).
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Holders>()
            + self.numbers.memory_bytes()
            + self.entries.memory_bytes()
            + self.owners.memory_bytes()
            + self.owner_bytes
            + self.owner_index.memory_bytes()
            + self.owned.memory_bytes()
            + self.leased_extra.memory_bytes()
    }
}

impl Held {
    fn extra(self) -> u64 {
        u64::from(self.weight.get()) - 1
    }
}

/// The earliest deadline that a live session can have.
fn first_live_ms(moment: Moment) -> i64 {
    let passed = moment.latest_passed_ms();
    passed.map_or(i64::MIN, |latest_ms| latest_ms.saturating_add(1))
}

fn name_in(owners: &Slab<Owner>, number: u32) -> &[u8] {
    owners.get(number).map_or(&[], |owner| &owner.name)
}

/// The numbers of entries by the slots of their sessions. A chunk is there only where some slot has
/// an entry: a session without one costs four bytes in such a chunk, and nothing elsewhere.
#[derive(Clone, Debug, Default)]
struct Numbers(Vec<NumberChunk>);

#[derive(Clone, Debug, Default)]
struct NumberChunk {
    /// Of each slot up to the highest that had an entry, one more than the number, or 0 for none.
    numbers: Vec<u32>,
    taken: usize,
}

impl Numbers {
    fn get(&self, slot: u32) -> Option<u32> {
        let (chunk, offset) = (slot as usize / CHUNK, slot as usize % CHUNK);
        self.0.get(chunk)?.numbers.get(offset)?.checked_sub(1)
    }

    fn set(&mut self, slot: u32, number: u32) {
        let (chunk, offset) = (slot as usize / CHUNK, slot as usize % CHUNK);
        if self.0.len() <= chunk {
            self.0.resize_with(chunk + 1, NumberChunk::default);
        }
        let chunk = &mut self.0[chunk];
        if chunk.numbers.len() <= offset {
            chunk.numbers.resize(offset + 1, 0);
        }
        chunk.numbers[offset] = number + 1;
        chunk.taken += 1;
    }

    fn remove(&mut self, slot: u32) -> Option<u32> {
        let (chunk, offset) = (slot as usize / CHUNK, slot as usize % CHUNK);
        let chunk = self.0.get_mut(chunk)?;
        let removed = std::mem::take(chunk.numbers.get_mut(offset)?).checked_sub(1)?;
        chunk.taken -= 1;
        if chunk.taken == 0 {
            chunk.numbers = Vec::new();
            while self.0.last().is_some_and(|chunk| chunk.taken == 0) {
                self.0.pop();
            }
        }
        Some(removed)
    }

    fn memory_bytes(&self) -> usize {
        let chunks = self.0.iter();
        let numbers = chunks.map(|chunk| allocated(chunk.numbers.capacity() * size_of::<u32>()));
        numbers.sum::<usize>() + allocated(self.0.capacity() * size_of::<NumberChunk>())
    }
}

#[cfg(test)]
mod tests {
    use crate::session::Session;
    use crate::{Applied, Effect, Freed, Grant, Holder, Lease, Metadata, Moment, Pool};

    const SESSIONS: u32 = 20 * super::CHUNK as u32;

    fn pool_of(sessions: u32, holder: impl Fn(u32) -> Holder<'static>) -> Pool {
        let mut pool = Pool::new(0);
        for number in 0..sessions {
            let id = number.to_le_bytes();
            let lease = Lease::starting(0, 1 + u64::from(number)).filter(|_| number % 2 == 0);
            let metadata = Metadata::NONE;
            let grant = Grant::starting(0, &id, 9, &metadata, lease);
            let holder = holder(number);
            pool.apply(&Effect::Grant(Grant { holder, ..grant }));
        }
        pool
    }

    #[test]
    fn a_plain_pool_has_room_for_nothing_but_a_pointer() {
        assert!(size_of::<Pool>() <= 256, "{}", size_of::<Pool>());
        let mut pool = pool_of(SESSIONS - 1, |_| Holder::PLAIN);
        let plain = pool.memory_bytes();
        pool.apply(&Effect::Token {
            session: &7u32.to_le_bytes(),
            token: 1,
        });
        assert!(pool.holders.is_some());
        let metadata = Metadata::NONE;
        let again = Grant::starting(0, &[7, 0, 0, 0], 9, &metadata, None);
        pool.apply(&Effect::Grant(again));
        assert!(pool.holders.is_none(), "a grant has no token of before");
        assert!(pool.memory_bytes() <= plain + 64, "all is given back");
    }

    #[test]
    fn a_plain_session_beside_others_costs_four_bytes() {
        let with_token = |token| Holder {
            token: Some(token),
            ..Holder::PLAIN
        };
        let plain = pool_of(SESSIONS, |_| Holder::PLAIN).memory_bytes();
        // One in each chunk of slots has an entry.
        let some = pool_of(SESSIONS, |number| match number % 256 {
            0 => with_token(1),
            _ => Holder::PLAIN,
        });
        let entries = (SESSIONS / 256) as usize * 256;
        let added = some.memory_bytes() - plain;
        assert!(added <= 4 * SESSIONS as usize + entries, "{added}");
        // All are in the same one.
        let few = pool_of(SESSIONS, |number| match number < 20 {
            true => with_token(1),
            false => Holder::PLAIN,
        });
        let added = few.memory_bytes() - plain;
        assert!(added <= 4 * 256 + 20 * 256, "{added}");
    }

    #[test]
    fn a_small_pool_pays_for_no_more_slots_than_it_has() {
        let with_token = |_| Holder {
            token: Some(1),
            ..Holder::PLAIN
        };
        let plain = pool_of(5, |_| Holder::PLAIN).memory_bytes();
        let added = pool_of(5, with_token).memory_bytes() - plain;
        assert!(added <= 1200, "{added}");
    }

    #[test]
    fn an_owner_is_stored_once_and_goes_with_its_last_session() {
        let long = &[b'o'; 1000];
        let of_one = |_| Holder {
            owner: Some(long),
            ..Holder::PLAIN
        };
        let mut pool = pool_of(SESSIONS, of_one);
        let plain = pool_of(SESSIONS, |_| Holder::PLAIN);
        let added = pool.memory_bytes() - plain.memory_bytes();
        assert!(added < 100 * SESSIONS as usize, "{added}");
        let now = Moment::at(1000);
        // Of those with a lease, the numbers below 1000 have expired.
        assert_eq!(pool.held(now, long), u64::from(SESSIONS) - 500);
        assert_eq!(pool.count_owners(now), 1);
        for number in 0..SESSIONS {
            assert_eq!(pool.owners(Moment::at(0)).count(), 1);
            pool.apply(&Effect::freeing(&number.to_le_bytes(), Freed::Released));
        }
        assert_eq!(pool.count_owners(now), 0);
        assert!(pool.holders.is_none());
    }

    #[test]
    fn a_grant_that_replaces_a_session_ends_it_whatever_else_it_meets() {
        let of_ann = |number: u32| Holder {
            owner: Some(b"ann"),
            weight: 2,
            token: Some(number.into()),
        };
        let grant = |pool: &mut Pool, session: u32, replaced: u32| {
            pool.apply(&Effect::Grant(Grant {
                holder: of_ann(9),
                replaces: Some(&replaced.to_le_bytes()),
                ..Grant::starting(0, &session.to_le_bytes(), 9, &Metadata::NONE, None)
            }))
        };
        let now = Moment::at(0);
        let mut pool = pool_of(1, |_| of_ann(100));
        assert_eq!(grant(&mut pool, 1, 0), Applied::Done);
        assert_eq!(
            (pool.len(), pool.used(now), pool.held(now, b"ann")),
            (1, 2, 1)
        );
        assert_eq!(pool.earliest_expiry_ms(now), None);
        assert_eq!(
            pool.last_token(),
            100,
            "they have met, so it is not forgotten"
        );
        assert!(pool.iter().map(Session::id).eq([1u32.to_le_bytes()]));
        // It is not there.
        assert_eq!(grant(&mut pool, 2, 7), Applied::Done);
        assert_eq!(
            (pool.len(), pool.used(now), pool.held(now, b"ann")),
            (2, 4, 2)
        );
        // There is one of the same id as well, as where its lease has expired.
        assert_eq!(grant(&mut pool, 2, 1), Applied::Replaced);
        assert_eq!(
            (pool.len(), pool.used(now), pool.held(now, b"ann")),
            (1, 2, 1)
        );
        // None can name itself. It would stay.
        assert_eq!(grant(&mut pool, 2, 2), Applied::Done);
        assert_eq!(
            (pool.len(), pool.used(now), pool.held(now, b"ann")),
            (1, 2, 1)
        );
        assert!(pool.contains(&2u32.to_le_bytes()));
        pool.apply(&Effect::freeing(&2u32.to_le_bytes(), Freed::Released));
        assert!(pool.holders.is_none() && pool.is_empty());
    }

    #[test]
    fn weights_are_summed_up_to_the_largest_of_all() {
        let heaviest = |_| Holder {
            weight: crate::MAX_WEIGHT,
            ..Holder::PLAIN
        };
        let pool = pool_of(SESSIONS, heaviest);
        let weight = u64::from(crate::MAX_WEIGHT);
        assert_eq!(pool.used(Moment::at(0)), u64::from(SESSIONS) * weight);
        let half = u64::from(SESSIONS / 2);
        let at_the_end = Moment::at(i64::from(SESSIONS));
        assert_eq!(pool.used(at_the_end), half * weight);
        assert_eq!(
            pool.used(Moment::with_floor(9999, 10_000)),
            2 * half * weight
        );
    }
}
