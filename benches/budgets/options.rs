//! What the options of ACQUIRE add to the server's time for a grant.

use std::collections::HashMap;

use crate::client::Calls;
use crate::scale::Scale;
use crate::sides::{Host, POOL, Side, metadata, session};
use crate::speed::{CONNECTIONS, DEPTHS};
use crate::statistics::median;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    Plain,
    Weight,
    Token,
    /// For an owner that has one session already and may have two.
    OwnerMax,
    /// For an owner that has one session already and may have one.
    Takeover,
}

impl Asked {
    pub const ALL: [Asked; 5] = [
        Asked::Plain,
        Asked::Weight,
        Asked::Token,
        Asked::OwnerMax,
        Asked::Takeover,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Asked::Plain => "ACQUIRE, granted",
            Asked::Weight => "with WEIGHT",
            Asked::Token => "with WITHTOKEN",
            Asked::OwnerMax => "with OWNER and MAX",
            Asked::Takeover => "with OWNER, MAX and TAKEOVER, which ends a session",
        }
    }

    /// What follows the metadata for the session of an owner.
    fn words(self, owner: &str) -> Vec<&str> {
        match self {
            Asked::Plain => vec![],
            Asked::Weight => vec!["WEIGHT", "4"],
            Asked::Token => vec!["WITHTOKEN"],
            Asked::OwnerMax => vec!["OWNER", owner, "MAX", "2"],
            Asked::Takeover => vec!["OWNER", owner, "MAX", "1", "TAKEOVER"],
        }
    }

    /// Grants to sessions of these numbers, one for each owner.
    fn calls(self, first: u64, owners: u64) -> Calls {
        let mut calls = Calls::new("ACQUIRED", 1);
        for number in 0..owners {
            let (id, metadata) = (session(first + number), metadata(first + number));
            let owner = format!("user-{number}@example.com");
            let call = ["SEAT.ACQUIRE", POOL, &id, "1000000000", &metadata];
            calls.command(&[&call[..], &self.words(&owner)].concat());
            calls.end_call();
        }
        calls
    }
}

pub struct Options {
    /// The server's microseconds for a call, by round.
    micros: HashMap<Asked, Vec<f64>>,
}

impl Options {
    /// As many grants as there are sessions in the pool before, in pipelines.
    pub fn measure(scale: &Scale) -> Options {
        let host = Host::of(Side::Module);
        let mut crowd = host.crowd(CONNECTIONS);
        let owners = scale.pipelined_calls;
        let mut micros: HashMap<Asked, Vec<f64>> = HashMap::new();
        for round in 0..scale.rounds {
            eprintln!("options: round {} of {}", round + 1, scale.rounds);
            for turn in 0..Asked::ALL.len() {
                let asked = Asked::ALL[(turn + round) % Asked::ALL.len()];
                host.flush();
                crowd.send(&asked.calls(0, owners), DEPTHS[1]);
                let calls = asked.calls(owners, owners);
                host.reset_stats();
                crowd.send(&calls, DEPTHS[1]);
                let each = host.server_micros(&["seat.acquire"]) / owners as f64;
                micros.entry(asked).or_default().push(each);
            }
        }
        Options { micros }
    }

    pub fn server_micros(&self, asked: Asked) -> f64 {
        median(self.micros[&asked].iter().copied())
    }

    /// The server's time in units of that of a plain grant: the median of the rounds' ratios.
    pub fn ratio(&self, asked: Asked) -> f64 {
        let pairs = self.micros[&asked].iter().zip(&self.micros[&Asked::Plain]);
        median(pairs.map(|(one, plain)| one / plain))
    }
}
