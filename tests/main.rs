//! The promises of redis-seat, each on a real `redis-server`.
//!
//! A new command has a row in `commands/table.rs`, from which every check that all commands share
//! runs, and a file of its own in `commands/`. The fixtures are in `support`.

mod blocked_clients;
#[cfg(target_os = "linux")]
mod clock;
mod cluster;
mod commands;
mod data_sets;
mod data_type;
mod doc_examples;
mod feed;
mod feed_to_database;
mod holders;
mod leases;
mod memory_leaks;
mod migration;
mod overbooking;
mod parity;
mod persistence;
mod ported_tests;
mod prior_art;
mod queue;
mod reclaim;
mod reliability;
mod replication;
mod server_features;
mod support;
mod tickets;
