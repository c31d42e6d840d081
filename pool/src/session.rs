//! A holder of a seat.

use std::io::Write;

use crate::effect::{Grant, Lease};
use crate::memory::allocated;
use crate::metadata::is_empty_object;
use crate::moment::Moment;

/// Marks the absence of a heartbeat count in its field. No count can reach it: counts start at a
/// caller's number and rise.
const NO_COUNT: i64 = i64::MIN;

/// Marks the absence of a timestamp in its field: a second beyond those that a clock is let to
/// state.
const NO_SECOND: u32 = u32::MAX;

/// Marks the absence of a lease in the deadline's field. [`crate::Lease::starting`] never gives it
/// out.
const NO_DEADLINE: i64 = i64::MAX;

/// Before all signs of life.
pub(crate) const NEVER_MS: i64 = i64::MIN;

/// A session in a pool.
///
/// Its id and metadata share one allocation, and absence is a value of the field itself: with a
/// million sessions each byte here is a megabyte.
///
/// ```
/// use seat_pool::{Effect, Lease, Metadata, Moment, Pool};
///
/// let mut pool = Pool::new(0);
/// let lease = Lease::starting(7_500, 30_000);
/// pool.apply(&Effect::granting(7_500, b"alice", 5, &Metadata::NONE, lease));
/// let session = pool.get(Moment::at(7_500), b"alice").expect("she holds a seat");
/// assert_eq!((session.acquired_at(), session.heartbeat_count()), (Some(7), None));
/// assert_eq!(session.deadline_ms(), Some(37_500));
/// assert!(session.is_live(Moment::at(37_499)) && !session.is_live(Moment::at(37_500)));
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    /// The id's length, the id, then the metadata.
    payload: Box<[u8]>,
    heartbeat_count: i64,
    deadline_ms: i64,
    acquired_at: u32,
    last_heartbeat: u32,
}

/// Instead of an id's length: that two bytes with the length follow.
const LONG_ID: u8 = u8::MAX;

impl Session {
    pub(crate) fn new(grant: &Grant<'_>) -> Session {
        let metadata = grant.metadata.unwrap_or_default();
        let id_len = grant.session.len();
        let long = u16::try_from(id_len).expect("ids are at most MAX_SESSION_BYTES");
        let [low, high] = long.to_le_bytes();
        let prefix = if id_len < usize::from(LONG_ID) {
            &[low][..]
        } else {
            &[LONG_ID, low, high]
        };
        Session {
            payload: [prefix, grant.session, metadata]
                .concat()
                .into_boxed_slice(),
            heartbeat_count: grant.heartbeat_count.unwrap_or(NO_COUNT),
            deadline_ms: grant.lease.map_or(NO_DEADLINE, |lease| lease.deadline_ms),
            acquired_at: grant.acquired_at.unwrap_or(NO_SECOND),
            last_heartbeat: grant.last_heartbeat.unwrap_or(NO_SECOND),
        }
    }

    /// The id and the metadata.
    fn parts(&self) -> (&[u8], &[u8]) {
        match *self.payload {
            [LONG_ID, low, high, ref rest @ ..] => {
                rest.split_at(usize::from(u16::from_le_bytes([low, high])))
            }
            [id_len, ref rest @ ..] => rest.split_at(usize::from(id_len)),
            [] => (&[], &[]),
        }
    }

    /// The id, 1 to [`crate::MAX_SESSION_BYTES`] bytes. O(1).
    pub fn id(&self) -> &[u8] {
        self.parts().0
    }

    /// The caller's JSON object without the names that the pool keeps itself, if the session has
    /// metadata at all.
    pub fn metadata(&self) -> Option<&[u8]> {
        let (_, metadata) = self.parts();
        (!metadata.is_empty()).then_some(metadata)
    }

    /// When the seat was granted, in seconds of unix time, as far as that is known.
    pub fn acquired_at(&self) -> Option<u32> {
        (self.acquired_at != NO_SECOND).then_some(self.acquired_at)
    }

    /// The last sign of life, in seconds of unix time, as far as one is known.
    pub fn last_heartbeat(&self) -> Option<u32> {
        (self.last_heartbeat != NO_SECOND).then_some(self.last_heartbeat)
    }

    /// Heartbeats so far; `None` before the first, unless the caller made the count start
    /// somewhere.
    pub fn heartbeat_count(&self) -> Option<i64> {
        (self.heartbeat_count != NO_COUNT).then_some(self.heartbeat_count)
    }

    /// When the lease expires, in milliseconds of unix time; `None` without a lease.
    pub fn deadline_ms(&self) -> Option<i64> {
        (self.deadline_ms != NO_DEADLINE).then_some(self.deadline_ms)
    }

    /// Whether the session still holds its seat.
    pub fn is_live(&self, moment: Moment) -> bool {
        !moment.has_passed(self.deadline_ms)
    }

    /// How long ago the last sign of life was, in whole seconds; 0 if the clock has stepped back
    /// since, or if none is known: nobody loses a seat without evidence.
    ///
    /// ```
    /// # use seat_pool::{Effect, Metadata, Moment, Pool};
    /// # let mut pool = Pool::new(0);
    /// pool.apply(&Effect::granting(7_999, b"alice", 5, &Metadata::NONE, None));
    /// let session = pool.get(Moment::at(7_999), b"alice").expect("she holds a seat");
    /// assert_eq!(session.silent_seconds(8_000), 1, "from second 7 to second 8");
    /// assert_eq!(session.silent_seconds(6_000), 0);
    /// ```
    pub fn silent_seconds(&self, now_ms: i64) -> u64 {
        let Some(heard) = self.last_heartbeat().or(self.acquired_at()) else {
            return 0;
        };
        let silent = now_ms.div_euclid(1000) - i64::from(heard);
        u64::try_from(silent).unwrap_or(0)
    }

    /// The last sign of life of the session, to which a renewal of its lease counts, too, in
    /// milliseconds of unix time; [`NEVER_MS`] if none is known. `lease` is the one that it has.
    pub(crate) fn heard_ms(&self, lease: Option<Lease>) -> i64 {
        let second = self.last_heartbeat().max(self.acquired_at());
        let second_ms = second.map_or(NEVER_MS, |second| i64::from(second) * 1000);
        let renewed_ms = lease.map_or(NEVER_MS, |lease| {
            lease.deadline_ms.saturating_sub_unsigned(lease.length_ms)
        });
        second_ms.max(renewed_ms)
    }

    pub(crate) fn set_deadline_ms(&mut self, deadline_ms: Option<i64>) {
        self.deadline_ms = deadline_ms.unwrap_or(NO_DEADLINE);
    }

    pub(crate) fn record_heartbeat(&mut self, last_heartbeat: u32, heartbeat_count: i64) {
        self.last_heartbeat = last_heartbeat;
        self.heartbeat_count = heartbeat_count;
    }

    /// The JSON that the scripts would have stored for this session: the caller's object, then what
    /// the pool keeps itself. `None` for a session without metadata. O(n) in its length.
    ///
    /// ```
    /// # use seat_pool::{Effect, Metadata, Moment, Pool};
    /// # let mut pool = Pool::new(0);
    /// let metadata = Metadata::parse(br#"{"host":"laptop-17"}"#, 100)?;
    /// pool.apply(&Effect::granting(7_999, b"alice", 5, &metadata, None));
    /// let session = pool.get(Moment::at(7_999), b"alice").expect("she holds a seat");
    /// let json = br#"{"host":"laptop-17","acquired_at":7,"last_heartbeat":7}"#;
    /// assert_eq!(session.json().as_deref(), Some(&json[..]));
    /// # Ok::<(), seat_pool::MetadataError>(())
    /// ```
    pub fn json(&self) -> Option<Vec<u8>> {
        let object = self.metadata()?;
        let mut json = Vec::with_capacity(object.len() + 96);
        json.extend_from_slice(&object[..object.len() - 1]);
        let mut is_first = is_empty_object(object);
        let own = [
            ("acquired_at", self.acquired_at().map(i64::from)),
            ("last_heartbeat", self.last_heartbeat().map(i64::from)),
            ("heartbeat_count", self.heartbeat_count()),
        ];
        for (name, value) in own {
            let Some(value) = value else { continue };
            if !std::mem::take(&mut is_first) {
                json.push(b',');
            }
            write!(json, r#""{name}":{value}"#).expect("writing to a Vec cannot fail");
        }
        json.push(b'}');
        Some(json)
    }

    pub(crate) fn payload_bytes(&self) -> usize {
        allocated(self.payload.len())
    }
}

#[cfg(test)]
mod tests {
    use super::Session;
    use crate::effect::{Grant, Holder};

    #[test]
    fn ids_of_every_length_come_back_with_their_metadata() {
        for id_len in [1, 36, 253, 254, 255, 256, 65_534, 65_535] {
            for metadata in [None, Some(&b"{}"[..]), Some(br#"{"a":1}"#)] {
                let id = vec![0xff; id_len];
                let session = Session::new(&Grant {
                    session: &id,
                    seats: 1,
                    acquired_at: Some(1),
                    last_heartbeat: Some(2),
                    heartbeat_count: None,
                    lease: None,
                    metadata,
                    holder: Holder::PLAIN,
                    replaces: None,
                });
                assert_eq!(session.id(), id, "{id_len}");
                assert_eq!(session.metadata(), metadata, "{id_len}");
            }
        }
    }

    #[test]
    fn a_session_is_no_larger_than_it_is_accounted_for() {
        assert_eq!(size_of::<Option<Session>>(), 40);
    }
}
