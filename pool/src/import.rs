//! Sessions as the scripts kept them: a member of a SET, and a field of a HASH with its JSON.

use std::fmt;

use crate::effect::{Effect, Grant, Holder};
use crate::metadata::{MetadataError, Stored};
use crate::moment::Moment;
use crate::pool::{Pool, seconds};
use crate::{MAX_METADATA_BYTES, MAX_SESSION_BYTES};

/// A session to be imported from the legacy keys, checked.
///
/// ```
/// use seat_pool::{Applied, Import, Moment, Pool};
///
/// let (mut pool, now) = (Pool::new(0), Moment::at(9_000));
/// let import = Import::read(b"alice", Some(br#"{"acquired_at":7}"#))?;
/// let effect = import.effect(&pool, now, 5).expect("the pool does not have her yet");
/// assert_eq!(pool.apply(&effect), Applied::Done);
/// assert_eq!(pool.get(now, b"alice").and_then(|alice| alice.acquired_at()), Some(7));
/// assert_eq!(import.effect(&pool, now, 5), None);
/// # Ok::<(), seat_pool::ImportError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import<'a> {
    session: &'a [u8],
    /// Absent for a member without a field in the HASH: a grant that failed half-way, or a SADD by
    /// hand.
    stored: Option<Stored<'a>>,
}

/// Why a session cannot be imported.
///
/// ```
/// use seat_pool::{Import, ImportError, MetadataError};
///
/// assert_eq!(Import::read(b"", None), Err(ImportError::EmptySession));
/// let not_a_time = Import::read(b"alice", Some(br#"{"acquired_at":"now"}"#));
/// assert_eq!(not_a_time, Err(ImportError::Metadata(MetadataError::NotATime)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// The pool has no session without a name.
    EmptySession,
    /// The session id is longer than [`MAX_SESSION_BYTES`].
    SessionTooLong,
    /// Its JSON is not what [`crate::Metadata::parse`] takes, or has timestamps that are none.
    Metadata(MetadataError),
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptySession => f.write_str("a session must not be empty"),
            Self::SessionTooLong => {
                write!(f, "a session must be at most {MAX_SESSION_BYTES} bytes")
            }
            Self::Metadata(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ImportError {}

impl<'a> Import<'a> {
    /// Reads a session and its JSON, if it has any. What deployments limit for their callers is not
    /// limited here, since these sessions hold their seats already; what a pool can store is. O(n)
    /// in the length of the JSON.
    ///
    /// Fails where the pool could not show what is stored, see [`ImportError`].
    pub fn read(session: &'a [u8], json: Option<&'a [u8]>) -> Result<Import<'a>, ImportError> {
        if session.is_empty() {
            return Err(ImportError::EmptySession);
        }
        if session.len() > MAX_SESSION_BYTES {
            return Err(ImportError::SessionTooLong);
        }
        let stored = json.map(|json| Stored::parse(json, MAX_METADATA_BYTES));
        let stored = stored.transpose().map_err(ImportError::Metadata)?;
        Ok(Import { session, stored })
    }

    /// Whose seat it is.
    pub fn session(&self) -> &'a [u8] {
        self.session
    }

    /// The effect that imports the session, or `None` if it holds a seat of the pool already: then
    /// the pool's stays. One without metadata counts as active at this moment, which nothing
    /// shows but SEAT.CLEANUP's IDLE goes by. `seats` is the limit that the pool remembers. O(1).
    pub fn effect(&self, pool: &Pool, moment: Moment, seats: i64) -> Option<Effect<'_>> {
        if pool.get(moment, self.session).is_some() {
            return None;
        }
        let stored = self.stored.as_ref();
        Some(Effect::Import(Grant {
            session: self.session,
            seats,
            acquired_at: stored.and_then(|stored| stored.acquired_at),
            last_heartbeat: stored
                .map_or(Some(seconds(moment.now_ms)), |stored| stored.last_heartbeat),
            heartbeat_count: stored.and_then(|stored| stored.metadata.heartbeat_count),
            lease: None,
            metadata: stored.map(|stored| &*stored.metadata.text),
            holder: Holder::PLAIN,
            replaces: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Import, ImportError};
    use crate::metadata::MetadataError;
    use crate::{Applied, Effect, Freed, Lease, MAX_SESSION_BYTES, Metadata, Moment, Pool};

    const NOW_MS: i64 = 1_800_000_000_500;
    const NOW: Moment = Moment::at(NOW_MS);

    fn import(pool: &mut Pool, session: &[u8], json: Option<&str>) -> bool {
        let import = Import::read(session, json.map(str::as_bytes)).expect("it can be imported");
        let effect = import.effect(pool, NOW, 5);
        effect.is_some_and(|effect| pool.apply(&effect) != Applied::Missed)
    }

    fn json_of(pool: &Pool, session: &[u8]) -> Option<String> {
        let json = pool.get(NOW, session).expect("it holds a seat").json();
        json.map(|json| String::from_utf8(json).expect("JSON is UTF-8"))
    }

    #[test]
    fn what_the_scripts_stored_is_what_the_session_shows() {
        for (stored, shown) in [
            (
                r#"{"last_heartbeat":1700000050,"user":"a\/b","acquired_at":1700000000}"#,
                r#"{"user":"a\/b","acquired_at":1700000000,"last_heartbeat":1700000050}"#,
            ),
            (
                r#"{"heartbeat_count":3,"acquired_at":1,"last_heartbeat":2}"#,
                r#"{"acquired_at":1,"last_heartbeat":2,"heartbeat_count":3}"#,
            ),
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r"{}", r"{}"),
            (r#"{ "last_heartbeat" : 0 }"#, r#"{"last_heartbeat":0}"#),
            (
                r#"{"acquired_at":1700000000.75,"last_heartbeat":1.7e9}"#,
                r#"{"acquired_at":1700000000,"last_heartbeat":1700000000}"#,
            ),
        ] {
            let mut pool = Pool::new(0);
            assert!(import(&mut pool, b"s", Some(stored)));
            assert_eq!(json_of(&pool, b"s").as_deref(), Some(shown), "{stored}");
        }
    }

    #[test]
    fn a_member_without_json_stays_without_and_counts_as_heard_of_now() {
        let mut pool = Pool::new(0);
        assert!(import(&mut pool, b"s", None));
        assert_eq!(json_of(&pool, b"s"), None);
        let session = pool.get(NOW, b"s").expect("it holds a seat");
        assert_eq!(session.silent_seconds(NOW_MS + 7000), 7);
    }

    #[test]
    fn nobody_is_silent_of_whom_no_time_is_known() {
        let mut pool = Pool::new(0);
        assert!(import(&mut pool, b"s", Some("{}")));
        let session = pool.get(NOW, b"s").expect("it holds a seat");
        assert_eq!(session.silent_seconds(NOW_MS), 0);
        assert!(import(
            &mut pool,
            b"t",
            Some(r#"{"acquired_at":1800000000}"#)
        ));
        let session = pool.get(NOW, b"t").expect("it holds a seat");
        assert_eq!(session.silent_seconds(NOW_MS + 9000), 9);
    }

    #[test]
    fn a_session_of_the_pool_stays_unless_it_has_expired() {
        let mut pool = Pool::new(0);
        let lease = Lease::starting(NOW_MS, 10);
        let metadata = Metadata::NONE;
        pool.apply(&Effect::granting(NOW_MS, b"s", 1, &metadata, lease));
        let import = Import::read(b"s", Some(br#"{"acquired_at":7}"#)).unwrap();
        assert_eq!(import.effect(&pool, Moment::at(NOW_MS + 9), 5), None);
        let effect = import
            .effect(&pool, Moment::at(NOW_MS + 10), 5)
            .expect("it is gone");
        assert_eq!(pool.apply(&effect), Applied::Replaced);
        assert_eq!(pool.len(), 1);
        assert_eq!(
            json_of(&pool, b"s").as_deref(),
            Some(r#"{"acquired_at":7}"#)
        );
    }

    #[test]
    fn sessions_without_metadata_are_counted_apart() {
        let mut pool = Pool::new(0);
        for (session, json) in [("a", None), ("b", Some("{}")), ("c", None)] {
            import(&mut pool, session.as_bytes(), json);
        }
        assert_eq!((pool.used(NOW), pool.with_metadata(NOW)), (3, 1));
        pool.apply(&Effect::freeing(b"a", Freed::Released));
        pool.apply(&Effect::freeing(b"b", Freed::Released));
        assert_eq!((pool.used(NOW), pool.with_metadata(NOW)), (1, 0));
        let effect = Effect::granting(NOW_MS, b"c", 1, &Metadata::NONE, None);
        pool.apply(&effect);
        assert_eq!((pool.used(NOW), pool.with_metadata(NOW)), (1, 1));
    }

    #[test]
    fn what_no_pool_can_hold_is_refused() {
        let not_an_object = ImportError::Metadata(MetadataError::NotAnObject);
        let bad_time = ImportError::Metadata(MetadataError::NotATime);
        let bad_count = ImportError::Metadata(MetadataError::CountNotAnInteger);
        for (json, error) in [
            ("", not_an_object),
            ("[]", not_an_object),
            (r#"{"a":1e999}"#, not_an_object),
            (r#"{"acquired_at":1e999}"#, not_an_object),
            (r#"{"acquired_at":"1"}"#, bad_time),
            (r#"{"acquired_at":null}"#, bad_time),
            (r#"{"last_heartbeat":-1}"#, bad_time),
            (r#"{"last_heartbeat":4294967295}"#, bad_time),
            (r#"{"last_heartbeat":[1]}"#, bad_time),
            (r#"{"heartbeat_count":1.5}"#, bad_count),
            (r#"{"heartbeat_count":null}"#, bad_count),
        ] {
            assert_eq!(
                Import::read(b"s", Some(json.as_bytes())),
                Err(error),
                "{json}"
            );
        }
        assert_eq!(Import::read(b"", None), Err(ImportError::EmptySession));
        let long = vec![b'x'; MAX_SESSION_BYTES + 1];
        assert_eq!(Import::read(&long, None), Err(ImportError::SessionTooLong));
    }
}
