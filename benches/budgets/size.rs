//! What a pool's size changes: the memory for a session, and the server's time for a call.

use std::collections::HashMap;

use crate::scale::Scale;
use crate::sides::{Host, Operation, Side, Work};
use crate::statistics::median;

/// Sessions in a pool.
pub const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Calls of each kind in a round.
const CALLS: u64 = 500;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pools {
    pub side: Side,
    pub leased: bool,
}

impl Pools {
    pub const SCRIPT: Pools = Pools {
        side: Side::Script,
        leased: false,
    };
    pub const PLAIN: Pools = Pools {
        side: Side::Module,
        leased: false,
    };
    pub const LEASED: Pools = Pools {
        side: Side::Module,
        leased: true,
    };

    pub const ALL: [Pools; 3] = [Pools::SCRIPT, Pools::PLAIN, Pools::LEASED];

    pub fn name(self) -> &'static str {
        match (self.side, self.leased) {
            (Side::Module, false) => "module",
            (Side::Module, true) => "module, with leases",
            _ => "script",
        }
    }
}

pub struct Size {
    /// One server each, with a pool of each size.
    hosts: HashMap<Pools, Host>,
    bytes_each: HashMap<(Pools, u64), f64>,
    /// The server's microseconds for a call, by round.
    micros: HashMap<(Pools, Operation, u64), Vec<f64>>,
}

impl Size {
    pub fn measure(scale: &Scale) -> Size {
        let mut measured = Size {
            hosts: HashMap::new(),
            bytes_each: HashMap::new(),
            micros: HashMap::new(),
        };
        for pools in Pools::ALL {
            let host = Host::of(pools.side);
            for size in SIZES {
                eprintln!("size: {size} sessions, {}", pools.name());
                let before = host.number("memory", "used_memory");
                host.perform(&pools.work(Operation::Acquire, size, &key(size)), 0..size);
                let taken = host.number("memory", "used_memory") - before;
                measured
                    .bytes_each
                    .insert((pools, size), taken / size as f64);
            }
            measured.hosts.insert(pools, host);
        }
        for round in 0..scale.rounds {
            eprintln!("size: round {} of {}", round + 1, scale.rounds);
            for pools in Pools::ALL {
                for size in SIZES {
                    measured.round(pools, size);
                }
            }
        }
        measured
    }

    fn round(&mut self, pools: Pools, size: u64) {
        let host = &self.hosts[&pools];
        let mut client = host.client();
        let some = || -> Vec<u64> { (0..CALLS).map(|_| fastrand::u64(..size)).collect() };
        let mut new: Vec<u64> = (size..size + CALLS).collect();
        for operation in Operation::ALL {
            let key = key(size);
            let work = pools.work(operation, size, &key);
            let (warming, sessions) = match operation {
                // In addition to those that stay, so that each round finds the pool as the one
                // before did.
                Operation::Acquire => (None, new.clone()),
                Operation::Release => {
                    fastrand::shuffle(&mut new);
                    (None, new.clone())
                }
                Operation::Denied => (None, (2 * size..2 * size + CALLS).collect()),
                Operation::Active | Operation::Heartbeat => (Some(some()), some()),
            };
            // A small pool that is in use is in the processor's caches, so it is called there
            // before the clock counts.
            if let Some(sessions) = warming {
                host.time(&mut client, &work, sessions);
            }
            let micros = host.time(&mut client, &work, sessions);
            self.micros
                .entry((pools, operation, size))
                .or_default()
                .push(micros);
        }
    }

    pub fn bytes_each(&self, pools: Pools, size: u64) -> f64 {
        self.bytes_each[&(pools, size)]
    }

    pub fn micros(&self, pools: Pools, operation: Operation, size: u64) -> f64 {
        median(self.micros[&(pools, operation, size)].iter().copied())
    }

    /// How often the cost of a call in a pool of the smallest size fits into that in one of the
    /// largest: the median of the rounds' ratios.
    pub fn growth(&self, pools: Pools, operation: Operation) -> f64 {
        let of = |size| self.micros[&(pools, operation, size)].iter();
        median(
            of(SIZES[3])
                .zip(of(SIZES[0]))
                .map(|(large, small)| large / small),
        )
    }

    /// The server of `pools`, with its largest pool alone.
    pub fn take_largest(&mut self, pools: Pools) -> Host {
        let host = self.hosts.remove(&pools).expect("taken once");
        for size in &SIZES[..3] {
            pools.delete(&host, *size);
        }
        host
    }
}

impl Pools {
    fn work(self, operation: Operation, size: u64, pool: &str) -> Work<'_> {
        Work {
            side: self.side,
            operation,
            pool,
            seats: match operation {
                Operation::Denied => size,
                _ => 2 * size,
            },
            leased: self.leased,
        }
    }

    fn delete(self, host: &Host, size: u64) {
        let key = key(size);
        let keys = match self.side {
            Side::Module => vec![key],
            _ => vec![
                format!("license:{key}:active_sessions"),
                format!("license:{key}:session_metadata"),
            ],
        };
        redis::cmd("DEL")
            .arg(keys)
            .exec(&mut host.server.client())
            .expect("the pool is deleted");
    }
}

fn key(size: u64) -> String {
    format!("pool-{size}")
}
