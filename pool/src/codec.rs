//! A pool as bytes, for RDB files and DUMP payloads. `docs/design.md` draws the layout.
//!
//! A pool is written as a header and then batches of sessions, each a blob of its own, so that
//! neither side needs a second copy of a large pool in memory. What is read may be corrupt or made
//! up: nothing is trusted, no length is allocated before its bytes are there, and the outcome is a
//! sound pool or an error.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::claims::Claim;
use crate::effect::{Effect, Grant, Holder, Join, Lease};
use crate::entries::QueueEntry;
use crate::metadata::Metadata;
use crate::pool::Pool;
use crate::queue::Ticket;
use crate::session::Session;
use crate::{
    MAX_ARRIVAL, MAX_METADATA_BYTES, MAX_SECOND, MAX_SESSION_BYTES, MAX_TOKEN, MAX_WEIGHT,
};

/// The first byte of a header. A change of the layout raises it; older ones stay readable.
///
/// A value in which nothing is but plain seats is written as it always was, so that an older
/// version can read it.
const PLAIN_FORMAT: u8 = 1;

/// The format of values with owners, weights or tokens: each entry is followed by those.
const HOLDERS_FORMAT: u8 = 2;

/// A batch is closed by the session that fills it to this many bytes.
const BATCH_BYTES: usize = 64 * 1024;

#[derive(Serialize, Deserialize)]
struct Header {
    format: u8,
    seats: i64,
    sessions: u64,
    tickets: u64,
}

#[derive(Serialize, Deserialize)]
struct StoredSession<'a> {
    #[serde(with = "serde_bytes")]
    id: &'a [u8],
    #[serde(borrow, with = "serde_bytes")]
    metadata: Option<&'a [u8]>,
    acquired_at: Option<u32>,
    last_heartbeat: Option<u32>,
    heartbeat_count: Option<i64>,
    lease: Option<StoredLease>,
}

#[derive(Serialize, Deserialize)]
struct StoredLease {
    length_ms: u64,
    deadline_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct StoredTicket<'a> {
    #[serde(with = "serde_bytes")]
    session: &'a [u8],
    arrival: u64,
    since_ms: i64,
    length_ms: u64,
    deadline_ms: i64,
    figure: i64,
    /// How many seats the session takes; 1 in [`PLAIN_FORMAT`].
    weight: u32,
}

/// What follows a session in [`HOLDERS_FORMAT`].
#[derive(Serialize, Deserialize)]
struct StoredHolder<'a> {
    #[serde(borrow, with = "serde_bytes")]
    owner: Option<&'a [u8]>,
    weight: u32,
    token: Option<u64>,
}

/// What follows a ticket in [`HOLDERS_FORMAT`].
#[derive(Serialize, Deserialize)]
struct StoredClaim<'a> {
    #[serde(borrow, with = "serde_bytes")]
    owner: Option<&'a [u8]>,
    max_per_owner: Option<u64>,
    takeover: bool,
}

/// What is written for an entry only in [`HOLDERS_FORMAT`].
struct Addition<T>(Option<T>);

impl<T: Serialize> Serialize for Addition<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(addition) => addition.serialize(serializer),
            // No bytes.
            None => serializer.serialize_unit(),
        }
    }
}

/// Why bytes are not a pool.
///
/// ```
/// use seat_pool::{DecodeError, Decoder, Effect, Metadata, Pool};
///
/// let mut pool = Pool::new(0);
/// pool.apply(&Effect::granting(0, b"alice", 5, &Metadata::NONE, None));
/// let header = pool.encode().next().expect("there is always a header");
/// let without_batches = Decoder::new(&header)?;
/// assert!(without_batches.wants_more());
/// assert_eq!(without_batches.finish().err(), Some(DecodeError::WrongNumberOfEntries));
/// assert_eq!(Decoder::new(b"").err(), Some(DecodeError::Malformed));
/// # Ok::<(), DecodeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A blob ends early, goes on after its end, or holds a value out of range.
    Malformed,
    /// Written by a newer version, in a format of this number.
    UnknownFormat(u8),
    /// A pool without sessions and tickets, which does not exist as a key.
    Empty,
    /// A batch with nothing in it, or with more than the header announced.
    WrongNumberOfEntries,
    /// Two sessions of one id.
    DuplicateSession,
    /// A session id that is empty or too long.
    BadSessionId,
    /// Metadata that no caller could have brought in.
    BadMetadata,
    /// A lease of no length, or a deadline out of range.
    BadLease,
    /// A ticket of no length, with a deadline or an arrival out of range, or of a session that has
    /// one already; or one with a claim that no caller could have stated.
    BadTicket,
    /// A weight, an owner or a token out of range.
    BadHolder,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("truncated or malformed"),
            Self::UnknownFormat(format) => write!(
                f,
                "written in format {format}, which is newer than this version of the module"
            ),
            Self::Empty => f.write_str("no session in it"),
            Self::WrongNumberOfEntries => f.write_str("not the number of sessions it announced"),
            Self::DuplicateSession => f.write_str("two sessions of one id"),
            Self::BadSessionId => f.write_str("a session id that is empty or too long"),
            Self::BadMetadata => f.write_str("metadata that is not a JSON object"),
            Self::BadLease => f.write_str("a lease out of range"),
            Self::BadTicket => f.write_str("a ticket out of range"),
            Self::BadHolder => f.write_str("a weight, an owner or a token out of range"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl Pool {
    /// The pool as blobs for a [`Decoder`], made one by one. O(n) in all, expired sessions
    /// included: they stay in the table until they are reclaimed. A batch exceeds 64 KiB at most by
    /// its last entry.
    pub fn encode(&self) -> impl Iterator<Item = Vec<u8>> {
        let is_plain = self.is_plain();
        let header = to_bytes(&Header {
            format: if is_plain {
                PLAIN_FORMAT
            } else {
                HOLDERS_FORMAT
            },
            seats: self.seats(),
            sessions: self.len() as u64,
            tickets: self.tickets() as u64,
        });
        let sessions = batches(self.iter().map(move |session| {
            let holder = (!is_plain).then(|| self.stored_holder(session));
            (self.stored_session(session), Addition(holder))
        }));
        let tickets = batches(self.all_tickets().map(move |ticket| {
            let claim = (!is_plain).then(|| self.stored_claim(ticket));
            (self.stored_ticket(ticket), Addition(claim))
        }));
        std::iter::once(header).chain(sessions).chain(tickets)
    }

    fn stored_holder(&self, session: &Session) -> StoredHolder<'_> {
        let Holder {
            owner,
            weight,
            token,
        } = self.holder_of(session);
        StoredHolder {
            owner,
            weight,
            token,
        }
    }

    fn stored_claim(&self, ticket: &QueueEntry<Ticket>) -> StoredClaim<'_> {
        let claim = self.claim_of(ticket);
        StoredClaim {
            owner: claim.owner,
            max_per_owner: claim.max_per_owner,
            takeover: claim.takeover,
        }
    }

    fn stored_session<'a>(&self, session: &'a Session) -> StoredSession<'a> {
        StoredSession {
            id: session.id(),
            metadata: session.metadata(),
            acquired_at: session.acquired_at(),
            last_heartbeat: session.last_heartbeat(),
            heartbeat_count: session.heartbeat_count(),
            lease: self.lease_of(session).map(|lease| StoredLease {
                length_ms: lease.length_ms,
                deadline_ms: lease.deadline_ms,
            }),
        }
    }

    fn stored_ticket<'a>(&self, ticket: &'a QueueEntry<Ticket>) -> StoredTicket<'a> {
        StoredTicket {
            session: ticket.session(),
            arrival: ticket.arrival(),
            since_ms: ticket.waiting.since_ms,
            length_ms: ticket.waiting.length_ms,
            deadline_ms: ticket.waiting.deadline_ms,
            figure: self.figure_of(ticket),
            weight: ticket.weight(),
        }
    }
}

fn batches(mut entries: impl Iterator<Item = impl Serialize>) -> impl Iterator<Item = Vec<u8>> {
    std::iter::from_fn(move || {
        let mut batch = Vec::new();
        for entry in entries.by_ref() {
            batch =
                postcard::to_extend(&entry, batch).expect("the format has all values of an entry");
            if batch.len() >= BATCH_BYTES {
                break;
            }
        }
        (!batch.is_empty()).then_some(batch)
    })
}

/// Takes a value from the beginning of a batch.
fn take<'a, T: Deserialize<'a>>(batch: &mut &'a [u8]) -> Result<T, DecodeError> {
    let (value, rest) = postcard::take_from_bytes(batch).map_err(|_| DecodeError::Malformed)?;
    *batch = rest;
    Ok(value)
}

impl<'a> StoredHolder<'a> {
    fn checked(self) -> Result<Holder<'a>, DecodeError> {
        let token_in_range = |token| (1..MAX_TOKEN).contains(&token);
        let in_range = is_weight(self.weight)
            && self.owner.is_none_or(is_owner)
            && self.token.is_none_or(token_in_range);
        in_range
            .then_some(Holder {
                owner: self.owner,
                weight: self.weight,
                token: self.token,
            })
            .ok_or(DecodeError::BadHolder)
    }
}

impl<'a> StoredClaim<'a> {
    fn checked(self, weight: u32) -> Result<Claim<'a>, DecodeError> {
        let limit = self.max_per_owner;
        let in_range = is_weight(weight)
            && self.owner.is_none_or(is_owner)
            && limit
                .is_none_or(|max| self.owner.is_some() && max > 0 && i64::try_from(max).is_ok())
            && (limit.is_some() || !self.takeover);
        in_range
            .then_some(Claim {
                owner: self.owner,
                max_per_owner: limit,
                takeover: self.takeover,
                weight,
            })
            .ok_or(DecodeError::BadTicket)
    }
}

fn is_weight(weight: u32) -> bool {
    (1..=MAX_WEIGHT).contains(&weight)
}

/// An owner is stated as a session id is.
fn is_owner(owner: &[u8]) -> bool {
    !owner.is_empty() && owner.len() <= MAX_SESSION_BYTES
}

/// Whether a lease or a ticket can be of this length: effects state it as a signed number.
fn is_length(length_ms: u64) -> bool {
    length_ms > 0 && i64::try_from(length_ms).is_ok()
}

fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("the format has all values that are written")
}

/// Reads a pool from its blobs, in the order in which [`Pool::encode`] gave them.
///
/// ```
/// use seat_pool::{Decoder, Effect, Metadata, Pool};
///
/// let mut pool = Pool::new(0);
/// pool.apply(&Effect::granting(0, b"alice", 5, &Metadata::NONE, None));
/// let blobs: Vec<Vec<u8>> = pool.encode().collect();
/// let mut decoder = Decoder::new(&blobs[0])?;
/// for batch in &blobs[1..] {
///     decoder.batch(batch)?;
/// }
/// let copy = decoder.finish()?;
/// assert!(copy.contains(b"alice") && copy.seats() == 5);
/// # Ok::<(), seat_pool::DecodeError>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    pool: Pool,
    is_plain: bool,
    sessions: u64,
    tickets: u64,
}

impl Decoder {
    /// Starts with the header. O(1).
    ///
    /// Fails where that is none ([`DecodeError::Malformed`]), of a newer version
    /// ([`DecodeError::UnknownFormat`]), or announces nothing ([`DecodeError::Empty`]).
    pub fn new(header: &[u8]) -> Result<Decoder, DecodeError> {
        let is_plain = match header.first() {
            None => return Err(DecodeError::Malformed),
            Some(&PLAIN_FORMAT) => true,
            Some(&HOLDERS_FORMAT) => false,
            Some(&other) => return Err(DecodeError::UnknownFormat(other)),
        };
        let (header, rest): (Header, _) =
            postcard::take_from_bytes(header).map_err(|_| DecodeError::Malformed)?;
        if !rest.is_empty() {
            return Err(DecodeError::Malformed);
        }
        if header.sessions == 0 && header.tickets == 0 {
            return Err(DecodeError::Empty);
        }
        Ok(Decoder {
            pool: Pool::new(header.seats),
            is_plain,
            sessions: header.sessions,
            tickets: header.tickets,
        })
    }

    /// Whether sessions or tickets are still missing, so that another batch must follow.
    pub fn wants_more(&self) -> bool {
        self.wants_sessions() || (self.pool.tickets() as u64) < self.tickets
    }

    fn wants_sessions(&self) -> bool {
        (self.pool.len() as u64) < self.sessions
    }

    /// Takes the next batch. O(its length).
    ///
    /// Fails where the batch is malformed, is empty or has more than the header announced, or where
    /// an entry is one that no pool holds, see [`DecodeError`]. The decoder is of no use then.
    pub fn batch(&mut self, mut batch: &[u8]) -> Result<(), DecodeError> {
        if batch.is_empty() {
            return Err(DecodeError::WrongNumberOfEntries);
        }
        while !batch.is_empty() {
            if self.wants_sessions() {
                let entry = take(&mut batch)?;
                let holder = match self.is_plain {
                    true => Holder::PLAIN,
                    false => take::<StoredHolder<'_>>(&mut batch)?.checked()?,
                };
                self.add(&entry, holder)?;
            } else if self.wants_more() {
                let entry: StoredTicket<'_> = take(&mut batch)?;
                let claim = match self.is_plain {
                    true if entry.weight != 1 => return Err(DecodeError::BadTicket),
                    true => Claim::PLAIN,
                    false => take::<StoredClaim<'_>>(&mut batch)?.checked(entry.weight)?,
                };
                self.add_ticket(&entry, claim)?;
            } else {
                return Err(DecodeError::WrongNumberOfEntries);
            }
        }
        Ok(())
    }

    fn add_ticket(
        &mut self,
        entry: &StoredTicket<'_>,
        claim: Claim<'_>,
    ) -> Result<(), DecodeError> {
        if entry.session.is_empty() || entry.session.len() > MAX_SESSION_BYTES {
            return Err(DecodeError::BadSessionId);
        }
        let known = self.pool.has_ticket(entry.session);
        let in_range = is_length(entry.length_ms)
            && entry.deadline_ms < i64::MAX
            && entry.arrival < MAX_ARRIVAL;
        if known || !in_range {
            return Err(DecodeError::BadTicket);
        }
        self.pool.apply(&Effect::Join(Join {
            session: entry.session,
            seats: entry.figure,
            arrival: entry.arrival,
            ticket: Ticket {
                since_ms: entry.since_ms,
                length_ms: entry.length_ms,
                deadline_ms: entry.deadline_ms,
            },
            claim,
        }));
        Ok(())
    }

    fn add(&mut self, entry: &StoredSession<'_>, holder: Holder<'_>) -> Result<(), DecodeError> {
        if entry.id.is_empty() || entry.id.len() > MAX_SESSION_BYTES {
            return Err(DecodeError::BadSessionId);
        }
        if entry.metadata.is_some_and(|metadata| {
            metadata.len() > MAX_METADATA_BYTES || !Metadata::is_stored_form(metadata)
        }) {
            return Err(DecodeError::BadMetadata);
        }
        let is_mark = |second: Option<u32>| second > Some(MAX_SECOND);
        if entry.heartbeat_count == Some(i64::MIN)
            || is_mark(entry.acquired_at)
            || is_mark(entry.last_heartbeat)
        {
            return Err(DecodeError::Malformed);
        }
        let lease = entry.lease.as_ref().map(|lease| Lease {
            length_ms: lease.length_ms,
            deadline_ms: lease.deadline_ms,
        });
        if lease.is_some_and(|lease| !is_length(lease.length_ms) || lease.deadline_ms == i64::MAX) {
            return Err(DecodeError::BadLease);
        }
        if self.pool.contains(entry.id) {
            return Err(DecodeError::DuplicateSession);
        }
        self.pool.apply(&Effect::Grant(Grant {
            session: entry.id,
            seats: self.pool.seats(),
            acquired_at: entry.acquired_at,
            last_heartbeat: entry.last_heartbeat,
            heartbeat_count: entry.heartbeat_count,
            lease,
            metadata: entry.metadata,
            holder,
            replaces: None,
        }));
        Ok(())
    }

    /// The pool, if nothing is missing, otherwise [`DecodeError::WrongNumberOfEntries`]. O(1).
    pub fn finish(self) -> Result<Pool, DecodeError> {
        if self.wants_more() {
            Err(DecodeError::WrongNumberOfEntries)
        } else {
            Ok(self.pool)
        }
    }
}
