//! The promises of redis-seat, each on a real `redis-server`.

mod cases;
#[cfg(target_os = "linux")]
mod clock;
mod cluster;
mod commands;
mod data_sets;
mod dialog;
mod docs;
mod documents;
mod guide;
mod leases;
mod lines;
mod manners;
mod memory;
mod migration;
mod overbooking;
mod parity;
mod persistence;
mod queue;
mod reclaim;
mod replication;
mod support;
mod tickets;
mod trust;
mod value;
mod waiters;
mod workload;
