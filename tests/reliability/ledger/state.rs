//! In which states a session can be by the answers that its client got.

use std::time::{Duration, Instant};

/// Both clocks are the machine's, in whole milliseconds.
pub(super) const ROUNDING_MS: i64 = 1;

/// Longer than any call takes.
const PATIENCE_MS: i64 = 60_000;

/// A lease, by when it can end. The server took its deadline between a call and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) length_ms: i64,
    earliest_ms: i64,
    latest_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    None,
    Known(i64),
    /// The answer with it was lost.
    Unknown,
}

/// What a session has that holds its seats.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) heartbeats: i64,
    pub(super) lease: Option<Lease>,
    pub(super) weight: i64,
    pub(super) token: Token,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Free,
    /// With a ticket, for which it asked and of which it heard at these times.
    Waiting {
        asked: Instant,
        answered: Option<Instant>,
    },
    Held(Hold),
}

/// What a server says of a session. A deadline is known to a few milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Free,
    Waiting,
    Held {
        heartbeats: i64,
        deadline_ms: Option<(i64, i64)>,
        weight: i64,
        token: Option<i64>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Acquire,
    Heartbeat,
    Release,
}

/// What a call asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) lease_ms: Option<i64>,
    pub(super) weight: i64,
    pub(super) with_token: bool,
    /// The owner of the session, by its number, if it has one.
    pub(super) owner: Option<usize>,
    pub(super) takeover: bool,
    /// Whether it asks for a ticket.
    pub(super) queues: bool,
    /// For how long its client may be blocked.
    pub(super) block_ms: Option<u8>,
    /// The token that the session must have.
    pub(super) token: Option<i64>,
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

impl Token {
    fn allows(self, found: Option<i64>) -> bool {
        match self {
            Self::None => found.is_none(),
            Self::Known(token) => found == Some(token),
            Self::Unknown => found.is_some(),
        }
    }
}

impl State {
    /// Whether a lease can have ended by this time.
    pub(super) fn can_have_expired(&self, by_ms: i64) -> bool {
        matches!(self, Self::Held(Hold { lease: Some(lease), .. }) if lease.earliest_ms <= by_ms)
    }

    /// Whether this can be what a server means by what it says. Others of an owner may have ended
    /// its sessions and reached its limit when the turn of one came.
    pub(super) fn allows(&self, found: &Found, has_owner: bool, by_ms: i64) -> bool {
        match (self, found) {
            (Self::Free, Found::Free) | (Self::Waiting { .. }, Found::Waiting) => true,
            (Self::Waiting { .. }, Found::Free) => has_owner,
            (Self::Held(_), Found::Free) => has_owner || self.can_have_expired(by_ms),
            (
                Self::Held(hold),
                Found::Held {
                    heartbeats,
                    deadline_ms,
                    weight,
                    token,
                },
            ) => {
                hold.heartbeats == *heartbeats
                    && hold.weight == *weight
                    && hold.token.allows(*token)
                    && match (hold.lease, deadline_ms) {
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

impl Request {
    /// A call without options.
    pub(super) fn plain(operation: Operation) -> Self {
        Self {
            operation,
            lease_ms: None,
            weight: 1,
            with_token: false,
            owner: None,
            takeover: false,
            queues: false,
            block_ms: None,
            token: None,
        }
    }

    /// Whether it has a token that is not the session's, so that it changes nothing.
    pub(super) fn is_void(&self, before: State) -> bool {
        match (self.token, before) {
            (Some(token), State::Held(hold)) => hold.token != Token::Known(token),
            _ => false,
        }
    }

    /// What a grant gives, if its answer came at this time.
    pub(super) fn granted(&self, token: Token, asked_ms: i64, answered_ms: i64) -> State {
        let lease = |length_ms| Lease::from(length_ms, asked_ms, answered_ms);
        State::Held(Hold {
            heartbeats: 0,
            lease: self.lease_ms.map(lease),
            weight: self.weight,
            token,
        })
    }

    /// The states in which the call can leave a session if it is not answered, besides the one
    /// before.
    pub(super) fn possible(&self, before: State, asked: Instant, asked_ms: i64) -> Vec<State> {
        if self.is_void(before) {
            return Vec::new();
        }
        match (self.operation, before) {
            (Operation::Acquire, _) => {
                let token = if self.with_token {
                    Token::Unknown
                } else {
                    Token::None
                };
                let mut states = vec![self.granted(token, asked_ms, i64::MAX)];
                let is_kept = match before {
                    State::Held(_) => {
                        !before.can_have_expired(asked_ms + PATIENCE_MS) && self.owner.is_none()
                    }
                    _ => false,
                };
                if self.queues && !is_kept {
                    let answered = None;
                    states.push(State::Waiting { asked, answered });
                }
                if let State::Held(hold) = before
                    && self.with_token
                {
                    states.push(State::Held(Hold { token, ..hold }));
                }
                states
            }
            (Operation::Heartbeat, State::Held(hold)) => {
                let lease = |held: Lease| Lease::from(held.length_ms, asked_ms, i64::MAX);
                vec![State::Held(Hold {
                    heartbeats: hold.heartbeats + 1,
                    lease: hold.lease.map(lease),
                    ..hold
                })]
            }
            (Operation::Heartbeat | Operation::Release, _) => vec![State::Free],
        }
    }
}
