//! How long a server takes to come back with a million sessions.

use std::fs;

use crate::sides::Host;
use crate::statistics::median;

const ROUNDS: usize = 3;

pub struct Load {
    pub seconds: f64,
    pub megabytes: f64,
}

impl Load {
    /// Saves what `host` holds and starts its server again with it.
    pub fn measure(mut host: Host) -> Load {
        redis::cmd("SAVE")
            .exec(&mut host.server.client())
            .expect("the data is saved");
        let bytes = fs::metadata(host.server.dir().join("dump.rdb"));
        let bytes = bytes.expect("an RDB file").len();
        let mut seconds = Vec::new();
        for round in 0..ROUNDS {
            eprintln!("load: round {} of {ROUNDS}", round + 1);
            let before = host.server.log().len();
            host.server.restart();
            seconds.push(stated_seconds(&host.server.log()[before..]));
        }
        Load {
            seconds: median(seconds),
            megabytes: bytes as f64 / 1e6,
        }
    }
}

/// What the server's log says: `DB loaded from disk: 1.234 seconds`.
fn stated_seconds(log: &str) -> f64 {
    let after = log.split_once("DB loaded from disk: ");
    let seconds = after.and_then(|(_, rest)| rest.split(' ').next());
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    seconds.unwrap_or_else(|| panic!("no time of loading in the log:\n{log}"))
}
