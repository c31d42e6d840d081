//! The bytes that each operation sends to the replicas.

use std::collections::HashMap;

use crate::sides::{Host, Operation, POOL, Side, Work, shipped_settings};
use crate::support::Server;

const CALLS: u64 = 1000;

pub struct Replication {
    bytes: HashMap<(Side, Operation), f64>,
}

impl Replication {
    pub fn measure(sides: &[Side]) -> Replication {
        let mut bytes = HashMap::new();
        for &side in sides {
            // It sends nothing.
            if side == Side::Noop {
                continue;
            }
            eprintln!("replication: {}", side.name());
            let primary = Host::builder(side).tcp();
            // The server's own pings would count.
            let primary = Host::start(primary.config("repl-ping-replica-period 3600"));
            let replica = match side {
                Side::Module => Server::builder().module_args(&shipped_settings()),
                _ => Server::builder().plain(),
            };
            let replica = replica.replica_of(&primary.server).start();
            primary.server.wait_for_offset(&replica);
            for operation in Operation::ALL {
                if !side.offers(operation) {
                    continue;
                }
                let work = Work {
                    side,
                    operation,
                    pool: POOL,
                    seats: CALLS,
                    leased: false,
                };
                let sessions = match operation {
                    Operation::Denied => CALLS..2 * CALLS,
                    _ => 0..CALLS,
                };
                let before = primary.number("replication", "master_repl_offset");
                primary.perform(&work, sessions);
                let sent = primary.number("replication", "master_repl_offset") - before;
                bytes.insert((side, operation), sent / CALLS as f64);
            }
            primary.server.wait_for_offset(&replica);
        }
        Replication { bytes }
    }

    pub fn bytes(&self, side: Side, operation: Operation) -> Option<f64> {
        self.bytes.get(&(side, operation)).copied()
    }
}
