//! ACQUIRE, HEARTBEAT and RELEASE against EVALSHA of the original scripts, over a unix socket, one
//! call at a time and sixteen in a pipeline.
//!
//! The scripts run on a server without the module. Each figure includes the round trip, which is
//! the same on both sides and most of a single call's time; the pipelines show the servers' own
//! share.

#[path = "../tests/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the benchmarks need the servers only"
)]
mod support;

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use redis::{Cmd, Connection, Pipeline, Script};
use support::Server;

const POOL: &str = "LICENSE-2f7c-0001";
const SEATS: &str = "1000000000";
const METADATA: &str = r#"{"user_email":"developer@example.com","hardware_id":"hw-5f0c8e21","project_root":"/home/developer/project","coditect_version":"1.0.0"}"#;

/// A round begins with an empty pool and calls at most this often, so that its size stays that of a
/// real one.
const ROUND: u64 = 4096;

#[derive(Clone, Copy)]
enum Operation {
    Acquire,
    Heartbeat,
    Release,
}

/// One side of the comparison.
struct Side {
    connection: Connection,
    /// The SHA of each operation's script; without, the module's commands are called.
    scripts: Option<[String; 3]>,
}

impl Side {
    fn module(server: &Server) -> Side {
        Side {
            connection: server.client(),
            scripts: None,
        }
    }

    fn scripts(server: &Server) -> Side {
        let mut connection = server.client();
        let texts = [
            include_str!("../tests/lua/acquire_seat.lua"),
            include_str!("../tests/lua/update_heartbeat.lua"),
            include_str!("../tests/lua/release_seat.lua"),
        ];
        let scripts = texts.map(|text| {
            let script = Script::new(text);
            script
                .prepare_invoke()
                .load(&mut connection)
                .expect("the script loads")
        });
        Side {
            connection,
            scripts: Some(scripts),
        }
    }

    fn call(&self, operation: Operation, number: u64) -> Cmd {
        let name = ["SEAT.ACQUIRE", "SEAT.HEARTBEAT", "SEAT.RELEASE"][operation as usize];
        let mut call = match &self.scripts {
            None => redis::cmd(name),
            Some(scripts) => {
                let mut call = redis::cmd("EVALSHA");
                call.arg(&scripts[operation as usize]).arg(1);
                call
            }
        };
        call.arg(POOL)
            .arg(format!("7f3a9c1e-52d4-4b8e-9d6f-{number:012x}"));
        match operation {
            Operation::Acquire => call.arg(SEATS).arg(METADATA),
            Operation::Heartbeat => call.arg("{}"),
            Operation::Release => &mut call,
        };
        call
    }

    fn send(&mut self, operation: Operation, from: u64, count: u64) {
        let mut pipeline = Pipeline::with_capacity(count as usize);
        for number in from..from + count {
            pipeline.add_command(self.call(operation, number)).ignore();
        }
        pipeline
            .exec(&mut self.connection)
            .expect("all calls are answered");
    }

    /// The time that `calls` calls take, `depth` of them in a pipeline.
    fn time(&mut self, operation: Operation, calls: u64, depth: u64) -> Duration {
        let mut elapsed = Duration::ZERO;
        let mut left = calls;
        while left > 0 {
            let round = left.min(ROUND).next_multiple_of(depth);
            redis::cmd("FLUSHALL")
                .exec(&mut self.connection)
                .expect("the server is emptied");
            if !matches!(operation, Operation::Acquire) {
                self.send(Operation::Acquire, 0, round);
            }
            let start = Instant::now();
            for from in (0..round).step_by(depth as usize) {
                self.send(operation, from, depth);
            }
            elapsed += start.elapsed();
            left -= left.min(round);
        }
        elapsed
    }
}

fn compare(criterion: &mut Criterion) {
    let with_module = Server::start();
    let without = Server::plain();
    let mut sides = [
        ("module", Side::module(&with_module)),
        ("script", Side::scripts(&without)),
    ];
    let operations = [
        ("acquire", Operation::Acquire),
        ("heartbeat", Operation::Heartbeat),
        ("release", Operation::Release),
    ];
    for (name, operation) in operations {
        for depth in [1, 16] {
            let mut group = criterion.benchmark_group(format!("{name}, pipelines of {depth}"));
            group.throughput(Throughput::Elements(depth));
            for (side_name, side) in &mut sides {
                group.bench_function(*side_name, |bencher| {
                    bencher.iter_custom(|pipelines| side.time(operation, pipelines * depth, depth));
                });
            }
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = compare
}
criterion_main!(benches);
