//! The pool alone, without a server: what it does for each command, and for the timer, at ten to a
//! million sessions.

#[path = "budgets/pool_work.rs"]
mod pool_work;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pool_work::{
    Alone, BATCH, acquire, acquire_owned, already_active, denied, heartbeat, pool_of,
    pool_of_owned, reclaim, release, session, take_over, twin,
};
use seat_pool::Moment;

const SIZES: [usize; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];

/// Sessions that come and go next to those of the pool.
const GUESTS: usize = 256;

fn ids(from: usize, count: usize) -> Vec<String> {
    let numbers = from..from + count;
    numbers.map(|number| session(number as u64)).collect()
}

/// The time that `calls` calls of `body` take, on ids that `ids` repeats.
fn time_each(calls: u64, ids: &[String], mut body: impl FnMut(&str)) -> Duration {
    let start = Instant::now();
    for id in ids.iter().cycle().take(calls as usize) {
        body(id);
    }
    start.elapsed()
}

/// The time of `first`, and of `second`, that undoes it, for `calls` guests.
fn time_both(
    calls: u64,
    pool: &mut Alone,
    guests: &mut [String],
    first: impl Fn(&mut Alone, &str),
    second: impl Fn(&mut Alone, &str),
) -> [Duration; 2] {
    let mut times = [Duration::ZERO; 2];
    let mut left = calls as usize;
    while left > 0 {
        let some = left.min(guests.len());
        fastrand::shuffle(guests);
        let guests = &guests[..some];
        times[0] += time_each(some as u64, guests, |id| first(pool, id));
        times[1] += time_each(some as u64, guests, |id| second(pool, id));
        left -= some;
    }
    times
}

fn all(criterion: &mut Criterion) {
    for size in SIZES {
        let mut held = ids(0, size);
        let mut guests = ids(size, GUESTS);
        for (suffix, leased) in [("", false), (" with a lease", true)] {
            let mut pool = pool_of(&held, leased);
            // In no order, so that a large pool is not met in the processor's caches.
            fastrand::shuffle(&mut held);
            let mut bench = |name: &str, body: &mut dyn FnMut(u64) -> Duration| {
                let mut group = criterion.benchmark_group(format!("{name}{suffix}"));
                group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
                    bencher.iter_custom(&mut *body);
                });
                group.finish();
            };
            let take = |pool: &mut Alone, id: &str| acquire(pool, id, leased);
            bench("acquire", &mut |calls| {
                time_both(calls, &mut pool, &mut guests, take, release)[0]
            });
            bench("release", &mut |calls| {
                time_both(calls, &mut pool, &mut guests, take, release)[1]
            });
            bench("heartbeat", &mut |calls| {
                time_each(calls, &held, |id| heartbeat(&mut pool, id))
            });
            if !leased {
                bench("already active", &mut |calls| {
                    time_each(calls, &held, |id| already_active(black_box(&mut pool), id))
                });
                bench("denied", &mut |calls| {
                    time_each(calls, &guests, |id| denied(black_box(&mut pool), id))
                });
            }
        }
        owned(criterion, &held, &mut guests);
        reclaiming(criterion, &held);
    }
}

/// Sessions with owners and weights.
fn owned(criterion: &mut Criterion, held: &[String], guests: &mut [String]) {
    let mut pool = pool_of_owned(held);
    let mut bench = |name: &str, body: &mut dyn FnMut(u64) -> Duration| {
        let mut group = criterion.benchmark_group(name);
        group.bench_function(BenchmarkId::from_parameter(held.len()), |bencher| {
            bencher.iter_custom(&mut *body);
        });
        group.finish();
    };
    bench("acquire with owner and weight", &mut |calls| {
        time_both(calls, &mut pool, guests, acquire_owned, release)[0]
    });
    bench("heartbeat with owner", &mut |calls| {
        time_each(calls, held, |id| heartbeat(&mut pool, id))
    });
    let some = &held[..held.len().min(GUESTS)];
    let twins: Vec<String> = some.iter().map(|id| twin(id)).collect();
    bench("acquire by a takeover", &mut |calls| {
        let mut elapsed = Duration::ZERO;
        let mut left = calls as usize;
        while left > 0 {
            let count = left.min(some.len());
            elapsed += time_each(count as u64, &twins, |id| take_over(&mut pool, id));
            // And back again.
            time_each(count as u64, &some[..count], |id| take_over(&mut pool, id));
            left -= count;
        }
        elapsed
    });
}

/// A batch of expired sessions is taken back, and granted again before the clock runs on.
fn reclaiming(criterion: &mut Criterion, held: &[String]) {
    if held.len() < BATCH {
        return;
    }
    let mut pool = pool_of(held, true);
    let mut group = criterion.benchmark_group(format!("reclaim {BATCH}"));
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function(BenchmarkId::from_parameter(held.len()), |bencher| {
        bencher.iter_custom(|calls| {
            let mut elapsed = Duration::ZERO;
            for _ in 0..calls {
                let expired = pool.pool.expired(Moment::at(i64::MAX - 1), BATCH);
                let expired: Vec<String> = expired
                    .map(|id| String::from_utf8_lossy(id).into_owned())
                    .collect();
                let start = Instant::now();
                reclaim(&mut pool);
                elapsed += start.elapsed();
                for id in &expired {
                    acquire(&mut pool, id, true);
                }
            }
            elapsed
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500));
    targets = all
}
criterion_main!(benches);
