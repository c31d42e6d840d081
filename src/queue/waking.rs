//! Waking blocked clients, once it is decided what became of them.

use std::ffi::c_int;

use super::{BATCH, Outcome, STATE, WaiterId, put, take};
use crate::error::Error;

/// Has waiters be answered. For a closed key only.
pub(crate) fn unblock(waiters: &[WaiterId]) {
    for id in waiters {
        let client = STATE.with_borrow(|state| {
            let waiter = state.waiters.get(id)?;
            waiter.may_be_woken.then_some(waiter.client)
        });
        if let Some(client) = client {
            // The server may call back before this returns, and wake others in turn.
            let outer = STATE.with_borrow_mut(|state| state.waking.replace(*id));
            client.unblock();
            STATE.with_borrow_mut(|state| state.waking = outer);
        }
    }
}

/// Answers those who are blocked at a name that they cannot be served there, a bounded number of
/// them, and returns whether some are left.
pub(crate) fn fail(database: c_int, key: &[u8], error: impl Fn() -> Error) -> bool {
    let Some(mut blocked) = take(database, key) else {
        return false;
    };
    let mut failed = Vec::new();
    while failed.len() < BATCH
        && let Some(session) = blocked
            .first()
            .map(|entry| Box::<[u8]>::from(entry.session()))
        && let Some(waiter) = blocked.remove(&session)
    {
        failed.push(waiter.client);
    }
    let some_left = !blocked.is_empty();
    put(database, key, blocked);
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
