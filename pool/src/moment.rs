//! The moment at which a decision is made.

/// The moment at which a decision is made: the time, the floor below which no deadline counts, and
/// whether grants are held back.
///
/// Deadlines are stored as they were given out and replicated. What counts is the *effective*
/// deadline of a lease or a ticket: the later one of its own and the floor. So a floor prolongs all
/// of them at once, without a change to any, and nothing else about the pool depends on it.
///
/// ```
/// use seat_pool::Moment;
///
/// assert!(Moment::at(500).has_passed(500));
/// // The server was away until 600, and gives everybody until 2,000.
/// let after_gap = Moment::with_floor(600, 2_000);
/// assert!(!after_gap.has_passed(500));
/// assert_eq!((after_gap.effective(500), after_gap.effective(3_000)), (2_000, 3_000));
/// assert!(after_gap.moved_to(2_000).has_passed(500));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time, in milliseconds of unix time.
    pub now_ms: i64,
    /// Until when no lease expires and no ticket is lost, in milliseconds of unix time;
    /// [`Moment::NO_FLOOR`] if there is no such time.
    pub floor_ms: i64,
    /// Whether no new session is granted a seat and no waiter is served. Whoever holds a seat keeps
    /// it, and who joins the queue waits.
    pub holds_grants: bool,
}

impl Moment {
    /// A floor that prolongs nothing.
    pub const NO_FLOOR: i64 = i64::MIN;

    /// A moment without a floor: each deadline counts as it stands.
    pub const fn at(now_ms: i64) -> Moment {
        Moment::with_floor(now_ms, Moment::NO_FLOOR)
    }

    /// A moment at which no deadline before `floor_ms` counts.
    pub const fn with_floor(now_ms: i64, floor_ms: i64) -> Moment {
        Moment {
            now_ms,
            floor_ms,
            holds_grants: false,
        }
    }

    /// The same moment, at which nobody is granted a seat.
    ///
    /// ```
    /// # mod memory { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/memory.rs")); }
    /// # use memory::{Always, Memory, request};
    /// # use seat_pool::{AcquireRequest, Acquired, Machine, Moment};
    /// let mut host = Memory::default();
    /// let mut machine = Machine::new(&mut host, Moment::at(0).holding_grants());
    /// let denied = machine.acquire(&request(b"alice"), &Always)?;
    /// assert_eq!(denied, Acquired::NoSeats { used: 0 });
    /// let polling = AcquireRequest { ticket_ms: Some(500), ..request(b"alice") };
    /// let queued = machine.acquire(&polling, &Always)?;
    /// assert_eq!(queued, Acquired::Queued { used: 0, position: 1 });
    /// # Ok::<(), seat_pool::Refusal<()>>(())
    /// ```
    pub const fn holding_grants(self) -> Moment {
        Moment {
            holds_grants: true,
            ..self
        }
    }

    /// The same floor and hold at another time.
    pub const fn moved_to(self, now_ms: i64) -> Moment {
        Moment { now_ms, ..self }
    }

    /// The later one of a deadline and the floor.
    pub const fn effective(self, deadline_ms: i64) -> i64 {
        if deadline_ms < self.floor_ms {
            self.floor_ms
        } else {
            deadline_ms
        }
    }

    /// Whether a lease or a ticket with this deadline has ended.
    pub const fn has_passed(self, deadline_ms: i64) -> bool {
        self.effective(deadline_ms) <= self.now_ms
    }

    /// The latest deadline that has passed by now, or `None` where the floor lets none pass.
    pub(crate) fn latest_passed_ms(self) -> Option<i64> {
        (self.floor_ms <= self.now_ms).then_some(self.now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::Moment;

    #[test]
    fn a_deadline_has_passed_once_it_and_the_floor_have() {
        for (now_ms, floor_ms, deadline_ms, effective_ms, has_passed) in [
            (10, Moment::NO_FLOOR, 9, 9, true),
            (10, Moment::NO_FLOOR, 10, 10, true),
            (10, Moment::NO_FLOOR, 11, 11, false),
            (10, 10, 9, 10, true),
            (10, 11, 9, 11, false),
            (10, 9, 11, 11, false),
            (i64::MIN, Moment::NO_FLOOR, i64::MIN, i64::MIN, true),
        ] {
            let moment = Moment::with_floor(now_ms, floor_ms);
            assert_eq!(moment.effective(deadline_ms), effective_ms, "{moment:?}");
            assert_eq!(moment.has_passed(deadline_ms), has_passed, "{moment:?}");
            let latest = moment.latest_passed_ms();
            let is_up_to = latest.is_some_and(|latest| deadline_ms <= latest);
            assert_eq!(is_up_to, has_passed, "{moment:?}");
        }
    }
}
