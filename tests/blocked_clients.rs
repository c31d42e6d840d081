//! Clients that are blocked for a seat: the ends that their wait can come to, and what becomes of the queue then.

mod client_kinds;
pub mod crowd;
mod event_order;
mod key_changes;
mod killed_clients;
#[cfg(target_os = "linux")]
pub mod other_modules;
pub mod python;
mod stress;
mod wait_ends;

use std::ops::{Deref, DerefMut};

use crate::support::dialog::Dialog;
use crate::support::{Server, eventually};

/// A client that is blocked for a seat. Dropping it closes its connection.
pub struct Waiter {
    dialog: Dialog,
    id: i64,
}

impl Waiter {
    /// Sends an ACQUIRE with BLOCK on a new connection and returns once that is blocked.
    #[track_caller]
    pub fn of(server: &Server, command: &str) -> Self {
        Self::with(Dialog::with(server), server, command)
    }

    /// The same on a connection that is there already.
    #[track_caller]
    pub fn with(mut dialog: Dialog, server: &Server, command: &str) -> Self {
        let id = dialog.number("CLIENT ID");
        dialog.send(command);
        let waiter = Self { dialog, id };
        waiter.is_blocked_soon(server);
        waiter
    }

    /// Waits again, after a reply.
    #[track_caller]
    pub fn waits_again(&mut self, server: &Server, command: &str) {
        self.dialog.send(command);
        self.is_blocked_soon(server);
    }

    #[track_caller]
    fn is_blocked_soon(&self, server: &Server) {
        let mut observer = Dialog::with(server);
        eventually("the client is blocked", || observer.is_blocked(self.id));
    }

    /// The next reply must be this.
    #[track_caller]
    pub fn hears(&mut self, reply: &str) {
        assert_eq!(self.dialog.read(), reply);
    }

    /// The next reply must be a grant.
    #[track_caller]
    pub fn is_granted(&mut self) {
        let reply = self.dialog.read();
        assert!(reply.starts_with(r#"[1, "ACQUIRED", "#), "{reply}");
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

impl Dialog {
    /// Whether the client of this number is blocked at present.
    #[track_caller]
    fn is_blocked(&mut self, id: i64) -> bool {
        let client = self.ask(&format!("CLIENT LIST ID {id}"));
        let mut fields = client.split(' ');
        let flags = fields.find_map(|field| field.strip_prefix("flags="));
        flags.is_some_and(|flags| flags.contains('b'))
    }

    /// The sessions that wait, in order.
    #[track_caller]
    pub fn queue(&mut self, key: &str) -> Vec<String> {
        let value: redis::Value =
            redis::parse_redis_value(&self.raw(&["SEAT.QUEUE", key])).unwrap();
        let waiting: Vec<(String, i64)> = redis::from_redis_value(value).expect("ids and times");
        waiting.into_iter().map(|(session, _)| session).collect()
    }

    /// Returns once the queue is this.
    #[track_caller]
    pub fn queue_becomes(&mut self, key: &str, sessions: &[&str]) {
        let what = format!("the queue at {key} is {sessions:?}");
        eventually(&what, || self.queue(key) == sessions);
    }

    /// What EXEC answers to these.
    #[track_caller]
    pub fn transaction(&mut self, commands: &[&str]) -> String {
        self.expect("MULTI", "+OK");
        for command in commands {
            self.expect(command, "+QUEUED");
        }
        self.ask("EXEC")
    }

    /// One seat can be taken, by one session only, and given back, and then there is no pool: nothing was leaked there.
    #[track_caller]
    pub fn one_seat_is_free(&mut self, key: &str) {
        assert_eq!(self.queue(key), [""; 0]);
        self.expect(
            &format!("SEAT.ACQUIRE {key} last 1"),
            r#"[1, "ACQUIRED", 1, 1]"#,
        );
        self.expect(&format!("SEAT.RELEASE {key} last"), r#"[1, "RELEASED", 0]"#);
        self.expect(&format!("EXISTS {key}"), "0");
    }
}

/// A server on which `a` holds the only seat of `pool`.
fn full_pool(builder: crate::support::Builder) -> (Server, Dialog) {
    let server = builder.start();
    let mut dialog = Dialog::with(&server);
    dialog.acquire("pool", "a", 1, "{}");
    (server, dialog)
}

/// `b` and `c`, blocked in this order for a seat of `pool`.
#[track_caller]
fn two_waiters(server: &Server) -> [Waiter; 2] {
    ["b", "c"].map(|session| Waiter::of(server, &format!("SEAT.ACQUIRE pool {session} 1 BLOCK 0")))
}

/// No client is blocked any more, by the module's count and by the server's.
#[track_caller]
fn nobody_is_blocked(server: &Server) {
    eventually("nobody is blocked", || {
        server.info("seat")["seat_blocked_clients"] == "0"
            && server.info("clients")["blocked_clients"] == "0"
    });
}
