//! Telling blocked clients what became of them.

use std::ffi::c_int;

use super::{BATCH, Outcome, STATE, WaiterId, put_line, take_line};
use crate::error::Error;

/// Has waiters be told what became of them. For a closed key only.
pub(crate) fn unblock(waiters: &[WaiterId]) {
    for id in waiters {
        let client = STATE.with_borrow(|state| state.waiters.get(id)?.client);
        if let Some(client) = client {
            // The server may call back before this returns, and wake others in turn.
            let outer = STATE.with_borrow_mut(|state| state.waking.replace(*id));
            client.unblock();
            STATE.with_borrow_mut(|state| state.waking = outer);
        }
    }
}

/// Tells all who are blocked at a name that they cannot be served there, a bounded number of them, and returns whether some are left.
pub(crate) fn fail(database: c_int, key: &[u8], error: impl Fn() -> Error) -> bool {
    let Some(mut line) = take_line(database, key) else {
        return false;
    };
    let mut failed = Vec::new();
    while failed.len() < BATCH
        && let Some(session) = line.first().map(|place| Box::<[u8]>::from(place.session()))
        && let Some(place) = line.leave(&session)
    {
        failed.push(place.waiting);
    }
    let some_left = !line.is_empty();
    put_line(database, key, line);
    STATE.with_borrow_mut(|state| {
        state.forget_moves(database, key);
        for id in &failed {
            if let Some(waiter) = state.waiters.get_mut(id) {
                waiter.outcome = Outcome::Failed(error());
            }
        }
    });
    unblock(&failed);
    some_left
}
