//! A holder of a seat.

use std::io::Write;

use crate::effect::Grant;
use crate::memory::allocated;
use crate::metadata::is_empty_object;

/// Marks the absence of a heartbeat count in its field. No count can reach it: counts start at a caller's number and rise.
const NO_COUNT: i64 = i64::MIN;

/// Marks the absence of a lease in the deadline's field. [`crate::Lease::starting`] never gives it out.
const NO_DEADLINE: i64 = i64::MAX;

/// A session in a pool.
///
/// Its id and metadata share one allocation, and absence is a value of the field itself: with a million sessions each byte
/// here is a megabyte.
#[derive(Clone, Debug)]
pub struct Session {
    /// The id, then the metadata.
    payload: Box<[u8]>,
    heartbeat_count: i64,
    deadline_ms: i64,
    acquired_at: u32,
    last_heartbeat: u32,
    id_len: u16,
}

impl Session {
    pub(crate) fn new(grant: &Grant<'_>) -> Session {
        let metadata = grant.metadata.unwrap_or_default();
        Session {
            payload: [grant.session, metadata].concat().into_boxed_slice(),
            heartbeat_count: grant.heartbeat_count.unwrap_or(NO_COUNT),
            deadline_ms: grant.lease.map_or(NO_DEADLINE, |lease| lease.deadline_ms),
            acquired_at: grant.acquired_at,
            last_heartbeat: grant.last_heartbeat,
            id_len: u16::try_from(grant.session.len()).expect("ids are at most MAX_SESSION_BYTES"),
        }
    }

    /// The id.
    pub fn id(&self) -> &[u8] {
        &self.payload[..usize::from(self.id_len)]
    }

    /// The caller's JSON object without the names that the pool keeps itself, if the session has metadata at all.
    pub fn metadata(&self) -> Option<&[u8]> {
        let metadata = &self.payload[usize::from(self.id_len)..];
        (!metadata.is_empty()).then_some(metadata)
    }

    /// When the seat was granted, in seconds of unix time.
    pub fn acquired_at(&self) -> u32 {
        self.acquired_at
    }

    /// The last sign of life, in seconds of unix time.
    pub fn last_heartbeat(&self) -> u32 {
        self.last_heartbeat
    }

    /// Heartbeats so far; `None` before the first, unless the caller made the count start somewhere.
    pub fn heartbeat_count(&self) -> Option<i64> {
        (self.heartbeat_count != NO_COUNT).then_some(self.heartbeat_count)
    }

    /// When the lease lapses, in milliseconds of unix time; `None` without a lease.
    pub fn deadline_ms(&self) -> Option<i64> {
        (self.deadline_ms != NO_DEADLINE).then_some(self.deadline_ms)
    }

    /// Whether the session still holds its seat at `now_ms`.
    pub fn is_live(&self, now_ms: i64) -> bool {
        self.deadline_ms > now_ms
    }

    /// How long ago the last sign of life was, in whole seconds; 0 if the clock has stepped back since.
    pub fn silent_seconds(&self, now_ms: i64) -> u64 {
        let silent = now_ms.div_euclid(1000) - i64::from(self.last_heartbeat);
        u64::try_from(silent).unwrap_or(0)
    }

    pub(crate) fn set_deadline_ms(&mut self, deadline_ms: Option<i64>) {
        self.deadline_ms = deadline_ms.unwrap_or(NO_DEADLINE);
    }

    pub(crate) fn beat(&mut self, last_heartbeat: u32, heartbeat_count: i64) {
        self.last_heartbeat = last_heartbeat;
        self.heartbeat_count = heartbeat_count;
    }

    /// The JSON that the scripts would have stored for this session: the caller's object, then what the pool keeps itself.
    /// `None` for a session without metadata.
    pub fn json(&self) -> Option<Vec<u8>> {
        let object = self.metadata()?;
        let mut json = Vec::with_capacity(object.len() + 96);
        json.extend_from_slice(&object[..object.len() - 1]);
        if !is_empty_object(object) {
            json.push(b',');
        }
        let (acquired_at, last_heartbeat) = (self.acquired_at, self.last_heartbeat);
        write!(
            json,
            r#""acquired_at":{acquired_at},"last_heartbeat":{last_heartbeat}"#
        )
        .expect("writing to a Vec cannot fail");
        if let Some(count) = self.heartbeat_count() {
            write!(json, r#","heartbeat_count":{count}"#).expect("writing to a Vec cannot fail");
        }
        json.push(b'}');
        Some(json)
    }

    pub(crate) fn payload_bytes(&self) -> usize {
        allocated(self.payload.len())
    }
}
