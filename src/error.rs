//! Everything that a command can refuse, with the text that its caller reads.

use std::ffi::CStr;
use std::fmt;

use seat_pool::{ImportError, MAX_FIGURES, MAX_SESSION_BYTES, MetadataError, StaleCursor};

/// The bytes of a session that are enough to name it in an error: one that is too long for a pool
/// may be of any length.
pub(crate) const LONGEST_NAMED: usize = 100;

/// Why a command was refused. Nothing has changed then, apart from what was due when the key was
/// opened.
#[derive(Clone, Debug)]
pub(crate) enum Error {
    /// The key holds a value of another type.
    WrongType,
    /// Memory is full, and the command would need more.
    OutOfMemory,
    /// The wrong number of arguments; the server words this one.
    Arity,
    /// `seats` is not an integer in Redis's strict form.
    Seats,
    /// An id is empty; says which.
    Empty(&'static str),
    /// An id is longer than the configured limit; says which, and the limit.
    TooLong(&'static str, usize),
    /// The caller's metadata cannot be stored.
    Metadata(MetadataError),
    /// The cursor of SCAN is not one.
    Cursor,
    /// The cursor of SCAN is of another value than the one at the key, which has its sessions in
    /// another order.
    StaleCursor,
    /// SCAN's COUNT is not a positive integer.
    Count,
    /// An argument where none is expected, or an option that the command does not have; says what
    /// may stand there.
    Syntax(&'static str),
    /// An option with a value that it cannot have, or that cannot stand there; names it and says
    /// what is wrong.
    Option(&'static str, &'static str),
    /// The queue is as long as it may be.
    QueueFull,
    /// Those who wait state as many different limits as they may, and this would be one more.
    TooManyFigures,
    /// No token is left that is larger than all others.
    NoTokenLeft,
    /// Sessions that weigh more than one seat, which the legacy keys cannot hold.
    HeavySessions,
    /// This node may not serve the key at present.
    TryAgain,
    /// A session in the legacy keys that no pool can hold.
    NotImportable {
        /// Which; of a long name the beginning.
        session: Box<[u8]>,
        /// Why.
        why: ImportError,
    },
    /// A command of the server's that this one is made of is not there by its name.
    NoCommand(&'static CStr),
    /// Two keys that must not be the same are.
    SameKey,
    /// The user may not touch a key that the command would have to; says which.
    NotAllowed(&'static str),
    /// An internal command from a client.
    EffectFromClient,
    /// An internal command whose arguments make no sense; says which.
    MalformedEffect(&'static str),
    /// A stream has reached the last of all ids. Nobody is answered so.
    StreamFull,
    /// A stream has higher ids than an entry that has come from a primary or an AOF. Nobody is
    /// answered so.
    EntryIdTooLow,
    /// A stream ends its time to live. Nobody is answered so.
    StreamEnds,
    /// An entry of a feed has come to a node of a cluster. Nobody is answered so.
    FeedInCluster,
    /// A defect of the module.
    Internal,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongType => f.write_str(
                "WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            Self::OutOfMemory => {
                f.write_str("OOM command not allowed when used memory > 'maxmemory'.")
            }
            Self::Arity => f.write_str("ERR wrong number of arguments"),
            Self::Seats => f.write_str("ERR seats must be a 64-bit integer"),
            Self::Empty(what) => write!(f, "ERR {what} must not be empty"),
            Self::TooLong(what, limit) => {
                let limit = limit.min(&MAX_SESSION_BYTES);
                write!(f, "ERR {what} must be at most {limit} bytes")
            }
            Self::Metadata(error) => write!(f, "ERR {error}"),
            Self::Cursor => f.write_str("ERR invalid cursor, it must be one that SEAT.SCAN returned"),
            Self::StaleCursor => f.write_str(
                "STALECURSOR The pool was loaded or replaced since this cursor was returned, begin again from 0",
            ),
            Self::Count => f.write_str("ERR COUNT must be a positive integer"),
            Self::Syntax(expected) => write!(f, "ERR syntax error, expected {expected}"),
            Self::Option(option, problem) => write!(f, "ERR {option} {problem}"),
            Self::QueueFull => f.write_str("ERR the queue of this pool is full"),
            Self::TooManyFigures => write!(
                f,
                "ERR the sessions in the queue state {MAX_FIGURES} different numbers of seats, the most that may wait; state one of those, or use SEAT.RESIZE to set one for all"
            ),
            Self::NoTokenLeft => f.write_str(
                "ERR WITHTOKEN cannot be served: a pool that was loaded or restored has the largest token that there can be",
            ),
            Self::HeavySessions => f.write_str(
                "ERR a session weighs more than one seat, which the legacy keys cannot hold; release it first",
            ),
            Self::TryAgain => f.write_str("TRYAGAIN This node no longer serves this pool; retry"),
            Self::NotImportable { session, why } => {
                let dots = if session.len() == LONGEST_NAMED { "..." } else { "" };
                let session = session.escape_ascii();
                write!(f, "ERR session {session}{dots} cannot be imported: {why}")
            }
            Self::NoCommand(name) => write!(
                f,
                "ERR required command {} is unavailable (renamed?)",
                name.to_string_lossy()
            ),
            Self::SameKey => f.write_str("ERR the pool and the keys to export to must be three keys"),
            Self::NotAllowed(what) => {
                write!(f, "NOPERM this user has no permissions to access {what}")
            }
            Self::EffectFromClient => f.write_str(
                "ERR SEAT.EFFECT is internal to replication and the AOF; set seat.allow-effects to pipe an AOF by hand",
            ),
            Self::MalformedEffect(what) => write!(f, "ERR malformed effect: {what}"),
            Self::StreamFull => f.write_str("ERR the stream has reached the last of all ids"),
            Self::EntryIdTooLow => f.write_str("ERR the stream has entries with higher ids"),
            Self::StreamEnds => f.write_str("ERR the stream ends its time to live"),
            Self::FeedInCluster => f.write_str("ERR there are no feeds in a cluster"),
            Self::Internal => f.write_str(
                "ERR internal error of the seat module, see the server's log; please report it",
            ),
        }
    }
}

impl From<StaleCursor> for Error {
    fn from(_: StaleCursor) -> Self {
        Self::StaleCursor
    }
}

impl From<MetadataError> for Error {
    fn from(error: MetadataError) -> Self {
        Self::Metadata(error)
    }
}
