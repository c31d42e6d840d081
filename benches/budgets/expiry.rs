//! What other clients notice when very many leases expire in one instant.

use std::time::{Duration, Instant};

use crate::client::Calls;
use crate::scale::Scale;
use crate::sides::{Host, POOL, Side, metadata, session, shipped_settings};
use crate::statistics::median;
use crate::support::Wire;

pub const LEASES: u64 = 100_000;

/// How long before the expiry the client begins to look.
const LEAD: Duration = Duration::from_millis(50);

/// Within this the leases are granted, and on a slow machine within a multiple of it.
const GRANTING: Duration = Duration::from_secs(1);
const MOST_GRANTING: Duration = Duration::from_secs(30);

pub struct Expiry {
    rounds: Vec<Round>,
}

struct Round {
    pause: Duration,
    /// The same client, for as long, with nothing to reclaim.
    quiet_pause: Duration,
    reclaimed_after: Duration,
}

impl Expiry {
    pub fn measure(scale: &Scale, aof: bool) -> Expiry {
        let mut builder = Host::builder(Side::Module)
            .module_args(&format!("{} allow-effects yes", shipped_settings()));
        if aof {
            builder = builder
                .config("appendonly yes")
                .config("appendfsync everysec")
                .config("auto-aof-rewrite-percentage 0");
        }
        let host = Host::start(builder);
        let rounds = (0..scale.expiries).map(|round| {
            let with = if aof { "with" } else { "without" };
            eprintln!(
                "expiry {with} AOF: round {} of {}",
                round + 1,
                scale.expiries
            );
            one_round(&host)
        });
        Expiry {
            rounds: rounds.collect(),
        }
    }

    fn millis(&self, of: impl Fn(&Round) -> Duration) -> f64 {
        median(
            self.rounds
                .iter()
                .map(|round| of(round).as_secs_f64() * 1e3),
        )
    }

    pub fn pause_millis(&self) -> f64 {
        self.millis(|round| round.pause)
    }

    /// By how much the expiry's pause exceeds the one that the same client sees on this machine
    /// without: both include what else takes the processor away.
    pub fn added_pause_millis(&self) -> f64 {
        self.millis(|round| round.pause.saturating_sub(round.quiet_pause))
    }

    /// The pause of the round that was disturbed least.
    pub fn least_pause_millis(&self) -> f64 {
        let pauses = self.rounds.iter().map(|round| round.pause);
        pauses.min().expect("at least one round").as_secs_f64() * 1e3
    }

    pub fn quiet_pause_millis(&self) -> f64 {
        self.millis(|round| round.quiet_pause)
    }

    pub fn reclaimed_after_millis(&self) -> f64 {
        self.millis(|round| round.reclaimed_after)
    }
}

fn one_round(host: &Host) -> Round {
    let mut wire = host.server.wire();
    let mut granting = GRANTING;
    let expiry_in = loop {
        let deadline_ms = millis_of(&mut wire) + granting.as_millis() as u64;
        host.client().send(&grants(deadline_ms), 100);
        if let Some(left_ms) = deadline_ms.checked_sub(millis_of(&mut wire)) {
            break Duration::from_millis(left_ms);
        }
        // Some have expired while others were still being granted.
        assert!(granting < MOST_GRANTING, "not granted within {granting:?}");
        longest_gap(&mut wire, Duration::ZERO);
        granting *= 2;
    };
    std::thread::sleep(expiry_in.saturating_sub(LEAD));

    let start = Instant::now();
    let pause = longest_gap(&mut wire, LEAD);
    let looked = start.elapsed();
    let quiet_pause = longest_gap(&mut wire, looked);
    Round {
        pause,
        quiet_pause,
        reclaimed_after: looked.saturating_sub(LEAD),
    }
}

/// Grants that expire at the same moment: an effect states its deadline.
fn grants(deadline_ms: u64) -> Calls {
    let seconds = deadline_ms / 1000;
    let numbers = format!("{LEASES} {seconds} {seconds} - 360000 {deadline_ms}");
    let mut grants = Calls::new(":1", 1);
    for number in 0..LEASES {
        let id = session(number);
        grants.command(&[
            "SEAT.EFFECT",
            POOL,
            "GRANT",
            &id,
            &numbers,
            &metadata(number),
        ]);
        grants.end_call();
    }
    grants
}

/// The longest that a client which asks without a break waited for a reply, until the pool is gone
/// but for `least` at least.
fn longest_gap(wire: &mut Wire, least: Duration) -> Duration {
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    let mut before = start;
    for turn in 1_u64.. {
        let is_gone = if turn.is_multiple_of(20) {
            wire.call(&["EXISTS", POOL]) == b":0\r\n"
        } else {
            assert_eq!(wire.call(&["PING"]), b"+PONG\r\n");
            false
        };
        let now = Instant::now();
        longest = longest.max(now - before);
        before = now;
        if is_gone && now - start >= least {
            break;
        }
    }
    longest
}

/// The server's clock, in milliseconds of unix time.
fn millis_of(wire: &mut Wire) -> u64 {
    let redis::Value::Array(parts) = wire.value(&["TIME"]) else {
        panic!("TIME answers an array")
    };
    let number =
        |part: &redis::Value| -> u64 { redis::from_redis_value_ref(part).expect("a number") };
    number(&parts[0]) * 1000 + number(&parts[1]) / 1000
}
