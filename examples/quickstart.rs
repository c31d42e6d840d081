//! A first session with the `redis` crate: `cargo run --example quickstart`, while `make run` serves in another terminal.

use redis::{RedisResult, Value, cmd};

pub fn first_session(url: &str) -> RedisResult<()> {
    let mut connection = redis::Client::open(url)?.get_connection()?;

    let reply: Vec<Value> = cmd("SEAT.ACQUIRE")
        .arg("license:acme")
        .arg("alice")
        .arg(2)
        .arg(r#"{"machine":"laptop-17"}"#)
        .query(&mut connection)?;
    // ACQUIRED and ALREADY_ACTIVE begin with 1, NO_SEATS_AVAILABLE begins with 0.
    assert_eq!(reply[0], Value::Int(1), "all seats are taken");

    let (updated, status, heartbeats): (bool, String, u64) = cmd("SEAT.HEARTBEAT")
        .arg("license:acme")
        .arg("alice")
        .query(&mut connection)?;
    assert_eq!(
        (updated, &*status, heartbeats),
        (true, "HEARTBEAT_UPDATED", 1)
    );

    let (released, status, used): (bool, String, u64) = cmd("SEAT.RELEASE")
        .arg("license:acme")
        .arg("alice")
        .query(&mut connection)?;
    assert_eq!((released, &*status, used), (true, "RELEASED", 0));
    Ok(())
}

fn main() -> RedisResult<()> {
    let url = std::env::var("REDIS_URL");
    first_session(url.as_deref().unwrap_or("redis://127.0.0.1:6379"))
}
