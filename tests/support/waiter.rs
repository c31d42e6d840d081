//! Clients that are blocked for a seat.

use std::ops::{Deref, DerefMut};

use super::{Dialog, Server, eventually};

/// A client that is blocked for a seat. Dropping it closes its connection.
pub struct Waiter {
    dialog: Dialog,
    id: i64,
}

impl Waiter {
    /// Sends an ACQUIRE with BLOCK on a new connection and returns once that is blocked. If it is
    /// to wait for a time, that may be over by then.
    #[track_caller]
    pub fn of(server: &Server, command: &str) -> Self {
        Self::with(Dialog::with(server), server, command)
    }

    /// The same on a connection that is there already.
    #[track_caller]
    pub fn with(mut dialog: Dialog, server: &Server, command: &str) -> Self {
        let id = dialog.number("CLIENT ID");
        dialog.send(command);
        let mut waiter = Self { dialog, id };
        waiter.is_blocked_soon(server, command);
        waiter
    }

    /// Waits again, after a reply.
    #[track_caller]
    pub fn waits_again(&mut self, server: &Server, command: &str) {
        self.dialog.send(command);
        self.is_blocked_soon(server, command);
    }

    #[track_caller]
    fn is_blocked_soon(&mut self, server: &Server, command: &str) {
        let time = command.split_once(" BLOCK ").map(|(_, time)| time);
        let ends = time.is_some_and(|time| time.split(' ').next() != Some("0"));
        let mut observer = Dialog::with(server);
        eventually("the client is blocked", || {
            observer.is_blocked(self.id) || ends && self.dialog.has_reply()
        });
    }

    /// The command that kills it.
    pub fn kill(&self) -> String {
        format!("CLIENT KILL ID {}", self.id)
    }

    /// The number by which CLIENT KILL and CLIENT UNBLOCK know it.
    pub fn id(&self) -> i64 {
        self.id
    }
}

impl Deref for Waiter {
    type Target = Dialog;

    fn deref(&self) -> &Dialog {
        &self.dialog
    }
}

impl DerefMut for Waiter {
    fn deref_mut(&mut self) -> &mut Dialog {
        &mut self.dialog
    }
}

/// No client is blocked any more, by the module's count and by the server's.
#[track_caller]
pub fn nobody_is_blocked(server: &Server) {
    eventually("nobody is blocked", || {
        server.info("seat")["seat_blocked_clients"] == "0"
            && server.info("clients")["blocked_clients"] == "0"
    });
}
