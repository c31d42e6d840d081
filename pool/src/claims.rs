//! What waiters asked for beyond a seat: whose sessions they are, and the limits of these owners.

use std::collections::{BTreeMap, BTreeSet};

use crate::figures::{Figures, set_bytes};
use crate::memory::allocated;

/// What a waiter asked for beyond a seat: what its grant will have, and what else it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The user, tenant or machine that the session belongs to.
    pub owner: Option<&'a [u8]>,
    /// How many live sessions of this owner there may be with this one, if that is limited; 1 or
    /// more.
    pub max_per_owner: Option<u64>,
    /// Whether one of the owner's sessions may end for this one.
    pub takeover: bool,
    /// How many seats the session takes; 1 or more, up to [`crate::MAX_WEIGHT`].
    pub weight: u32,
}

impl Claim<'_> {
    /// One seat, and nothing else.
    pub const PLAIN: Claim<'static> = Claim {
        owner: None,
        max_per_owner: None,
        takeover: false,
        weight: 1,
    };

    /// The claim as it is kept with a waiter, or `None` for a plain one.
    pub fn kept(&self) -> Option<Box<KeptClaim>> {
        (*self != Claim::PLAIN).then(|| {
            Box::new(KeptClaim {
                owner: self.owner.map(Box::from),
                max_per_owner: self.max_per_owner,
                takeover: self.takeover,
                weight: self.weight,
            })
        })
    }
}

/// A [`Claim`] that is kept with a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptClaim {
    owner: Option<Box<[u8]>>,
    max_per_owner: Option<u64>,
    takeover: bool,
    weight: u32,
}

impl KeptClaim {
    /// The claim.
    pub fn claim(&self) -> Claim<'_> {
        Claim {
            owner: self.owner.as_deref(),
            max_per_owner: self.max_per_owner,
            takeover: self.takeover,
            weight: self.weight,
        }
    }

    /// The claim of a waiter that may have a plain one.
    pub fn or_plain(kept: Option<&KeptClaim>) -> Claim<'_> {
        kept.map_or(Claim::PLAIN, KeptClaim::claim)
    }
}

/// Slots of queue entries by the owners of their sessions. It is empty while none has an owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotsByOwner(BTreeMap<Box<[u8]>, BTreeSet<u32>>);

impl SlotsByOwner {
    /// O(log n).
    pub(crate) fn add(&mut self, owner: &[u8], slot: u32) {
        match self.0.get_mut(owner) {
            Some(slots) => {
                slots.insert(slot);
            }
            None => {
                self.0.insert(owner.into(), BTreeSet::from([slot]));
            }
        }
    }

    /// O(log n).
    pub(crate) fn remove(&mut self, owner: &[u8], slot: u32) {
        if let Some(slots) = self.0.get_mut(owner) {
            slots.remove(&slot);
            if slots.is_empty() {
                self.0.remove(owner);
            }
        }
    }

    /// The slots of an owner. O(log n), then O(1) a slot.
    pub(crate) fn of(&self, owner: &[u8]) -> impl Iterator<Item = u32> {
        self.0.get(owner).into_iter().flatten().copied()
    }

    /// O(n).
    fn memory_bytes(&self) -> usize {
        let owned = self.0.iter();
        let owned =
            owned.map(|(owner, slots)| allocated(owner.len()) + set_bytes::<u32>(slots.len()));
        owned.sum::<usize>() + set_bytes::<(Box<[u8]>, BTreeSet<u32>)>(self.0.len())
    }
}

/// The claims of tickets with an owner, by the slots of these. What a ticket weighs it knows
/// itself, so a claim without an owner is not kept here.
#[derive(Clone, Debug, Default)]
pub(crate) struct TicketClaims {
    claims: BTreeMap<u32, TicketClaim>,
    slots: SlotsByOwner,
    /// The tickets whose owners are limited: they leave the queue when their turn comes, if the
    /// limit is reached by then and they can take over from nobody.
    limited: Figures,
}

#[derive(Clone, Debug)]
struct TicketClaim {
    claim: KeptClaim,
    /// The number of the index in `limited` in which it stands.
    limited: Option<u32>,
}

impl TicketClaims {
    /// Notes the claim of a ticket that has none here, and whose figure is `figure`. O(log n).
    pub(crate) fn add(&mut self, slot: u32, claim: &Claim<'_>, figure: i64, arrival: u64) {
        let (Some(owner), Some(kept)) = (claim.owner, claim.kept()) else {
            return;
        };
        let is_limited = claim.max_per_owner.is_some();
        let limited = is_limited.then(|| self.limited.insert(figure, arrival, slot, claim.weight));
        self.slots.add(owner, slot);
        let claim = *kept;
        self.claims.insert(slot, TicketClaim { claim, limited });
    }

    /// Forgets the claim of a ticket. O(log n).
    pub(crate) fn remove(&mut self, slot: u32, arrival: u64) {
        if self.claims.is_empty() {
            return;
        }
        let Some(TicketClaim { claim, limited }) = self.claims.remove(&slot) else {
            return;
        };
        if let Some(index) = limited {
            self.limited.remove(index, arrival, slot);
        }
        if let Some(owner) = claim.claim().owner {
            self.slots.remove(owner, slot);
        }
    }

    /// The claim of a ticket of this weight. O(log n).
    pub(crate) fn get(&self, slot: u32, weight: u32) -> Claim<'_> {
        match self.claims.get(&slot) {
            Some(known) => known.claim.claim(),
            None => Claim {
                weight,
                ..Claim::PLAIN
            },
        }
    }

    /// Whether there is none. O(1).
    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    pub(crate) fn limited(&self) -> &Figures {
        &self.limited
    }

    /// The slots of the tickets of an owner. O(log n), then O(1) a ticket.
    pub(crate) fn slots_of(&self, owner: &[u8]) -> impl Iterator<Item = u32> {
        self.slots.of(owner)
    }

    /// Has all tickets state `figure`. As [`Figures::restate`].
    pub(crate) fn restate(&mut self, figure: i64) {
        let claims = &mut self.claims;
        self.limited.restate(figure, |slot, index| {
            if let Some(known) = claims.get_mut(&slot) {
                known.limited = Some(index);
            }
        });
    }

    /// O(n).
    pub(crate) fn memory_bytes(&self) -> usize {
        let claims = self.claims.values();
        let owners = claims.filter_map(|known| known.claim.claim().owner);
        owners.map(|owner| allocated(owner.len())).sum::<usize>()
            + set_bytes::<(u32, TicketClaim)>(self.claims.len())
            + self.slots.memory_bytes()
            + self.limited.memory_bytes()
    }
}
