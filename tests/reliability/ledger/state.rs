//! In which states a session can be by the answers that its client got.

use std::time::{Duration, Instant};

/// Both clocks are the machine's, in whole milliseconds.
pub(super) const ROUNDING_MS: i64 = 1;

/// A lease, by when it can end. The server took its deadline between a call and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) length_ms: i64,
    earliest_ms: i64,
    latest_ms: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Free,
    /// With a ticket, for which it asked and of which it heard at these times.
    Waiting {
        asked: Instant,
        answered: Option<Instant>,
    },
    Held {
        heartbeats: i64,
        lease: Option<Lease>,
    },
}

/// What a server says of a session. A deadline is known to a few milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Free,
    Waiting,
    Held {
        heartbeats: i64,
        deadline_ms: Option<(i64, i64)>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Acquire,
    Heartbeat,
    Release,
}
pub(super) fn millis(ms: i64) -> Duration {
    Duration::from_millis(ms.max(0) as u64)
}

impl Lease {
    pub(super) fn from(length_ms: i64, asked_ms: i64, answered_ms: i64) -> Self {
        Self {
            length_ms,
            earliest_ms: asked_ms + length_ms - ROUNDING_MS,
            latest_ms: answered_ms.saturating_add(length_ms + ROUNDING_MS),
        }
    }

    /// Until when it surely lasts, if it was asked for at this time.
    pub(super) fn lasts_from(&self, asked: Instant) -> Instant {
        asked + millis(self.length_ms - ROUNDING_MS)
    }
}

impl State {
    /// Whether a lease can have ended by this time.
    pub(super) fn can_have_expired(&self, by_ms: i64) -> bool {
        matches!(self, Self::Held { lease: Some(lease), .. } if lease.earliest_ms <= by_ms)
    }

    pub(super) fn allows(&self, found: &Found, by_ms: i64) -> bool {
        match (self, found) {
            (Self::Free, Found::Free) | (Self::Waiting { .. }, Found::Waiting) => true,
            (Self::Held { .. }, Found::Free) => self.can_have_expired(by_ms),
            (
                Self::Held { heartbeats, lease },
                Found::Held {
                    heartbeats: found,
                    deadline_ms,
                },
            ) => {
                heartbeats == found
                    && match (lease, deadline_ms) {
                        (None, None) => true,
                        (Some(lease), Some((low, high))) => {
                            *low <= lease.latest_ms && *high >= lease.earliest_ms
                        }
                        _ => false,
                    }
            }
            _ => false,
        }
    }
}
/// The states in which a call without an answer can leave a session, besides the one before.
pub(super) fn possible(
    operation: Operation,
    before: State,
    lease_ms: Option<i64>,
    asked: Instant,
    asked_ms: i64,
) -> Vec<State> {
    let lease = |length_ms| Lease::from(length_ms, asked_ms, i64::MAX);
    match (operation, before) {
        (Operation::Acquire, State::Held { .. }) => vec![State::Held {
            heartbeats: 0,
            lease: None,
        }],
        (Operation::Acquire, State::Free | State::Waiting { .. }) => vec![
            State::Held {
                heartbeats: 0,
                lease: lease_ms.map(lease),
            },
            State::Waiting {
                asked,
                answered: None,
            },
        ],
        (
            Operation::Heartbeat,
            State::Held {
                heartbeats,
                lease: held,
            },
        ) => vec![State::Held {
            heartbeats: heartbeats + 1,
            lease: held.map(|held| lease(held.length_ms)),
        }],
        (Operation::Heartbeat | Operation::Release, _) => vec![State::Free],
    }
}
