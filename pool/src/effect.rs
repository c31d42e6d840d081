//! What a decision changes, in absolute terms.

use crate::claims::Claim;
use crate::queue::Ticket;

/// A lease: how long its session may stay silent, and the moment at which it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// How long each renewal lasts, in milliseconds; never 0.
    pub length_ms: u64,
    /// When it expires, in milliseconds of unix time: the session is gone from this millisecond on.
    pub deadline_ms: i64,
}

impl Lease {
    /// A lease of `length_ms` from `now_ms` on, or `None` if it is 0 or its deadline is beyond the
    /// range of time. Both are in milliseconds, `now_ms` of unix time.
    ///
    /// ```
    /// use seat_pool::Lease;
    ///
    /// let lease = Lease::starting(1_000, 30_000).expect("within time");
    /// assert_eq!((lease.length_ms, lease.deadline_ms), (30_000, 31_000));
    /// assert_eq!(Lease::starting(1_000, 0), None);
    /// assert_eq!(Lease::starting(1_000, u64::MAX), None);
    /// ```
    pub fn starting(now_ms: i64, length_ms: u64) -> Option<Lease> {
        let deadline_ms = now_ms.checked_add_unsigned(length_ms)?;
        (length_ms > 0 && deadline_ms < i64::MAX).then_some(Lease {
            length_ms,
            deadline_ms,
        })
    }
}

/// A change to a pool.
///
/// It says what is so afterwards, not how that came about. So applying one needs no clock and no
/// limit, and a replica, an AOF and the pool that decided agree whatever their clocks say.
///
/// ```
/// use seat_pool::{Applied, Effect, Freed, Metadata, Pool};
///
/// let (mut primary, mut replica) = (Pool::new(0), Pool::new(0));
/// for effect in [
///     Effect::granting(0, b"alice", 2, &Metadata::NONE, None),
///     Effect::granting(0, b"bob", 2, &Metadata::NONE, None),
///     Effect::freeing(b"alice", Freed::Released),
/// ] {
///     assert_eq!(primary.apply(&effect), Applied::Done);
///     assert_eq!(replica.apply(&effect), Applied::Done);
/// }
/// assert!(replica.contains(b"bob") && !replica.contains(b"alice"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// A session holds a seat.
    Grant(Grant<'a>),
    /// The same for a session that held its seat in the legacy keys before.
    Import(Grant<'a>),
    /// A session sent a sign of life.
    Heartbeat(Heartbeat<'a>),
    /// A session has another token, and its earlier ones are void.
    Token {
        /// Whose token.
        session: &'a [u8],
        /// The token from now on; below [`crate::MAX_TOKEN`].
        token: u64,
    },
    /// A session's lease was renewed without a sign of life being counted.
    Renew {
        /// Whose lease.
        session: &'a [u8],
        /// The lease from now on.
        lease: Lease,
    },
    /// A session holds its seat no longer.
    Free {
        /// Who.
        session: &'a [u8],
        /// Why, for whoever listens; the pool does the same for all.
        why: Freed,
    },
    /// A session has a ticket.
    Join(Join<'a>),
    /// A session has a ticket no longer. A grant says so by itself.
    Leave {
        /// Who.
        session: &'a [u8],
    },
    /// The pool's limit is another, and nothing else. Only what rebuilds a pool and older primaries
    /// say so.
    Seats(i64),
    /// The pool's limit is another, and all who have tickets state this figure from now on.
    Resize(i64),
}

/// See [`Effect::Grant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<'a> {
    /// The holder's id.
    pub session: &'a [u8],
    /// The pool's limit, which the grant states and the pool remembers.
    pub seats: i64,
    /// When the seat was granted, in seconds of unix time. Absent for a session that was imported
    /// without.
    pub acquired_at: Option<u32>,
    /// The last sign of life, in seconds of unix time. Absent as above.
    pub last_heartbeat: Option<u32>,
    /// Heartbeats so far, once there was one, or where the caller made the count start.
    pub heartbeat_count: Option<i64>,
    /// The lease, if the session has one.
    pub lease: Option<Lease>,
    /// The text of the caller's JSON object, without the names that the pool keeps itself. Absent
    /// for a session that was imported from the scripts without any.
    pub metadata: Option<&'a [u8]>,
    /// Whose session it is, and what else the caller asked for with its seats.
    pub holder: Holder<'a>,
    /// The session of its owner that ends for it, if it takes over from one; never itself. Where
    /// that is not there, the grant is the same.
    pub replaces: Option<&'a [u8]>,
}

/// What a session has only if its caller asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// The user, tenant or machine that the session belongs to.
    pub owner: Option<&'a [u8]>,
    /// How many seats the session takes; 1 or more, up to [`crate::MAX_WEIGHT`].
    pub weight: u32,
    /// The session's present token, below [`crate::MAX_TOKEN`].
    pub token: Option<u64>,
}

impl Holder<'_> {
    /// One seat, and nothing else.
    pub const PLAIN: Holder<'static> = Holder {
        owner: None,
        weight: 1,
        token: None,
    };
}

/// See [`Effect::Heartbeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat<'a> {
    /// Whose heartbeat.
    pub session: &'a [u8],
    /// When it came, in seconds of unix time.
    pub last_heartbeat: u32,
    /// Heartbeats with this one.
    pub heartbeat_count: i64,
    /// The lease from now on, if the session has one.
    pub lease: Option<Lease>,
}

/// See [`Effect::Join`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join<'a> {
    /// Who waits.
    pub session: &'a [u8],
    /// The limit that the session stated: its figure, by which it alone is judged.
    pub seats: i64,
    /// Its number in the order of arrival. A session that has one keeps it.
    pub arrival: u64,
    /// The ticket from now on.
    pub ticket: Ticket,
    /// What the session asked for beyond a seat.
    pub claim: Claim<'a>,
}

/// Why a seat became free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// Its holder gave it back.
    Released,
    /// Somebody with the right to do so took it away.
    Revoked,
    /// Its lease expired, or its holder was silent for too long.
    Expired,
}
