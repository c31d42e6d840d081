//! What the server offers in addition to the commands themselves, and how the module fits in:
//! rights, settings, events, memory limits, transactions, client tracking, INFO.

mod acl;
mod config;
mod effect_command;
mod info_section;
mod key_usage;
mod keyspace_events;
mod maxmemory;
mod transactions;
mod watch_and_tracking;
