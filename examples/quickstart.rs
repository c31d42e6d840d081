//! A first session with the `redis` crate: `cargo run --example quickstart`, while `make run`
//! serves in another terminal.

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

    let reply: Vec<Value> = cmd("SEAT.HEARTBEAT")
        .arg("license:acme")
        .arg("alice")
        .query(&mut connection)?;
    // HEARTBEAT_UPDATED begins with 1. SESSION_NOT_ACTIVE begins with 0: ask for a seat again.
    assert_eq!(reply[0], Value::Int(1), "the seat is lost");

    let reply: Vec<Value> = cmd("SEAT.RELEASE")
        .arg("license:acme")
        .arg("alice")
        .query(&mut connection)?;
    // RELEASED begins with 1. SESSION_NOT_FOUND begins with 0: it held no seat any more.
    assert_eq!(reply[0], Value::Int(1), "it had no seat");
    Ok(())
}

fn main() -> RedisResult<()> {
    let url = std::env::var("REDIS_URL");
    first_session(url.as_deref().unwrap_or("redis://127.0.0.1:6379"))
}
