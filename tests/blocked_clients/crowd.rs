//! Very many blocked clients at one name.

use std::process::Command;

use crate::support::{Dialog, Server, eventually, nobody_is_blocked};

const CROWD: usize = 10_000;

/// What the test process needs in addition to the crowd: the other tests run in it as well.
const OTHER_FILES: usize = 1_000;

/// Each waiter has a connection, so the process must be allowed that many.
pub fn allow_many_files() {
    let limit = || {
        let output = Command::new("sh")
            .args(["-c", "ulimit -n"])
            .output()
            .expect("sh runs");
        let text = String::from_utf8(output.stdout).expect("text");
        text.trim().parse().unwrap_or(usize::MAX)
    };
    if limit() < CROWD + OTHER_FILES {
        let nofile = format!("--nofile={}:", CROWD + OTHER_FILES);
        let pid = std::process::id().to_string();
        let raised = Command::new("prlimit")
            .args([nofile.as_str(), "--pid", &pid])
            .status();
        assert!(
            raised.is_ok_and(|status| status.success()),
            "{} open files are too few: raise `ulimit -n` to {}",
            limit(),
            CROWD + OTHER_FILES
        );
    }
}

fn server() -> Server {
    allow_many_files();
    Server::builder().config("maxclients 12000").start()
}

struct Crowd {
    pool: &'static str,
    waiting: Vec<Dialog>,
    /// The number of the session that holds the seat, not counted round.
    holder: usize,
}

impl Crowd {
    /// Session 0 holds the seat, and all others wait in their order.
    fn gather(server: &Server, pool: &'static str, count: usize) -> Self {
        let mut observer = Dialog::with(server);
        let mut waiting = Vec::with_capacity(count + 1);
        for number in 0..=count {
            let mut dialog = Dialog::with(server);
            dialog.expect("PING", "+PONG");
            dialog.send(&block(pool, number));
            if number == 0 {
                assert!(dialog.read().starts_with("[1, "));
            } else {
                let position = format!("SEAT.POSITION {pool} {number}");
                eventually("the client is in the queue", || {
                    observer.ask(&position) == number.to_string()
                });
            }
            waiting.push(dialog);
        }
        Self {
            pool,
            waiting,
            holder: 0,
        }
    }

    /// The holder gives its seat to the first who waits, and waits again as the last.
    fn pass_on(&mut self, releaser: &mut Dialog) {
        let (holder, pool) = (self.holder % self.waiting.len(), self.pool);
        releaser.expect(&format!("SEAT.RELEASE {pool} {holder}"), "[1, RELEASED, 1]");
        self.waiting[holder].send(&block(pool, holder));
        self.holder += 1;
        let next = self.holder % self.waiting.len();
        let reply = self.waiting[next].read();
        assert_eq!(reply, "[1, ACQUIRED, 1, 1]", "{pool} {next}");
    }
}

fn block(pool: &str, session: usize) -> String {
    format!("SEAT.ACQUIRE {pool} {session} 1 BLOCK 0")
}

/// Server time per call of SEAT.RELEASE since the last CONFIG RESETSTAT, in microseconds.
fn cost_of_release(server: &Server) -> f64 {
    let stats = server.info("commandstats");
    let fields = stats["cmdstat_seat.release"].split(',');
    let cost = fields
        .filter_map(|field| field.strip_prefix("usec_per_call="))
        .next();
    cost.expect("a cost").parse().unwrap()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn ten_thousand_wait_in_order_and_waking_one_is_cheap() {
    let server = server();
    let mut dialog = Dialog::with(&server);
    let mut few = Crowd::gather(&server, "few", 10);
    let mut many = Crowd::gather(&server, "many", CROWD);
    let (mut few_costs, mut many_costs) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        for (crowd, costs) in [(&mut few, &mut few_costs), (&mut many, &mut many_costs)] {
            dialog.expect("CONFIG RESETSTAT", "+OK");
            for _ in 0..50 {
                crowd.pass_on(&mut dialog);
            }
            costs.push(cost_of_release(&server));
        }
    }
    let (few_cost, many_cost) = (median(few_costs), median(many_costs));
    println!("RELEASE that wakes one of 10: {few_cost} µs, one of {CROWD}: {many_cost} µs");
    assert!(
        many_cost < 3.0 * few_cost,
        "waking one of {CROWD} cost {many_cost} µs, one of ten {few_cost} µs"
    );
    drop((few, many));
    nobody_is_blocked(&server);
    dialog.expect("SEAT.QUEUE many", "[]");
    dialog.expect("DEL few many", "2");
    dialog.one_seat_is_free("many");
}

/// The server itself keeps two clients for each that is blocked, and frees 500 of them a second.
#[test]
fn a_crowd_that_has_left_gives_its_memory_back() {
    let server = server();
    let mut dialog = Dialog::with(&server);
    let before = server.used_memory();
    let crowd = Crowd::gather(&server, "pool", 500);
    let gathered = server.used_memory();
    println!(
        "{} bytes for each of 500 who wait",
        (gathered - before) / 500
    );
    drop(crowd);
    nobody_is_blocked(&server);
    dialog.expect("DEL pool", "1");
    eventually("the memory is given back", || {
        server.used_memory() < before + (gathered - before) / 10
    });
}
