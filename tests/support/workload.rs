//! Random commands, the same for the same seed.

use std::env;

use fastrand::Rng;

use super::Dialog;

/// The seed that `SEAT_TEST_SEED` names, else a new one; a failing test prints it.
pub fn seed() -> u64 {
    let seed = env::var("SEAT_TEST_SEED").map_or_else(
        |_| fastrand::u64(..),
        |seed| seed.parse().expect("SEAT_TEST_SEED is an unsigned integer"),
    );
    println!("SEAT_TEST_SEED={seed}");
    seed
}

/// Sends `steps` random commands on a few pools: grants, heartbeats, releases and revocations, of
/// sessions with and without owners, weights and tokens, plain, in transactions and in scripts, and
/// what the server's own commands do to a key.
pub fn run(dialog: &mut Dialog, random: &mut Rng, steps: usize) {
    for _ in 0..steps {
        let command = seat_command(random);
        match random.u8(..20) {
            0 => {
                dialog.expect("MULTI", "+OK");
                for _ in 0..random.usize(1..5) {
                    let command = seat_command(random);
                    assert_eq!(dialog.ask_args(&command), "+QUEUED");
                }
                let reply = dialog.ask("EXEC");
                assert!(reply.starts_with('['), "{reply}");
            }
            1 => {
                let script =
                    "local last for i = 1, 3 do last = redis.pcall(unpack(ARGV)) end return last";
                let arguments = [
                    &["EVAL".to_owned(), script.to_owned(), "0".to_owned()],
                    &command[..],
                ]
                .concat();
                dialog.ask_args(&arguments);
            }
            2 => {
                let (from, to) = (random.usize(..5), random.usize(..5));
                match random.u8(..6) {
                    0 => dialog.ask(&format!("DEL pool-{from}")),
                    1 => dialog.ask(&format!("RENAME pool-{from} pool-{to}")),
                    2 => dialog.ask(&format!("COPY pool-{from} pool-{to}")),
                    3 => dialog.ask(&format!("EXPIRE pool-{from} 1000")),
                    4 => dialog.ask(&format!("MOVE pool-{from} 1")),
                    _ => dialog.ask(&format!("UNLINK pool-{from}")),
                };
            }
            _ => {
                let reply = dialog.ask_args(&command);
                assert!(!reply.starts_with('!'), "{command:?}: {reply}");
            }
        }
    }
}

fn seat_command(random: &mut Rng) -> Vec<String> {
    let pool = format!("pool-{}", random.usize(..5));
    let session = format!("session-{}", random.usize(..30));
    let seats = random.usize(..25);
    let metadata = match random.u8(..4) {
        0 => r#"{"heartbeat_count":-3,"k":"ü"}"#.to_owned(),
        1 => format!(r#"{{"k":"{}"}}"#, "x".repeat(random.usize(..300))),
        _ => format!(r#"{{"n":{}}}"#, random.u32(..)),
    };
    match random.u8(..10) {
        0..5 => {
            let acquire = [
                "SEAT.ACQUIRE",
                &pool,
                &session,
                &seats.to_string(),
                &metadata,
            ];
            let mut command: Vec<String> = acquire.map(str::to_owned).into();
            if random.u8(..3) == 0 {
                let weight = random.u8(1..4);
                let owner = random.u8(..4);
                let claim = format!("WEIGHT {weight} OWNER owner-{owner} MAX 2 TAKEOVER WITHTOKEN");
                let words = [2, 4, 6, 7, 8][random.usize(..5)];
                command.extend(claim.split(' ').take(words).map(str::to_owned));
            }
            command
        }
        5 | 6 => vec!["SEAT.HEARTBEAT".to_owned(), pool, session],
        7 | 8 => vec!["SEAT.RELEASE".to_owned(), pool, session],
        _ if random.u8(..3) == 0 => {
            let owner = format!("owner-{}", random.u8(..4));
            vec!["SEAT.REVOKEOWNER".to_owned(), pool, owner]
        }
        _ => {
            let others = (0..3).map(|_| format!("session-{}", random.usize(..30)));
            ["SEAT.REVOKE".to_owned(), pool]
                .into_iter()
                .chain(others)
                .collect()
        }
    }
}
