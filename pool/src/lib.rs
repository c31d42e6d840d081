//! The seat pool: sessions, leases and their encoding, without Redis.
#![forbid(unsafe_code)]
