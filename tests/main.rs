//! The promises of redis-seat, each on a real `redis-server`.

mod support;
