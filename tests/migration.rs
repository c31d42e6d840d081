//! Moving from the scripts: their calls, keys and readers next to the pool, and the way there and
//! back.

mod adoption;
mod adr;
mod calls;
mod cluster;
mod import_export;
mod invalid_entries;
mod live;
mod rights;
mod shipped;
mod view;

use crate::support::{Builder, Dialog, Server};

pub const ACQUIRE: &str = include_str!("lua/acquire_seat.lua");
pub const RELEASE: &str = include_str!("lua/release_seat.lua");
pub const HEARTBEAT: &str = include_str!("lua/update_heartbeat.lua");

/// The SHA1s of the three, as `parity::the_oracle_is_the_original_scripts` holds them to the texts.
pub const SHAS: [&str; 3] = [
    "98e6a76cc964f48e1d02251cf5d98384d50b1965",
    "5be059ede42740d8f2961ea5e13463a4b442c363",
    "8da2d20aef2c2437bed05ea563eefd28ada92e25",
];

/// Arguments of the module with which it does all that it can for callers of the scripts.
pub fn all_settings() -> String {
    let [acquire, release, heartbeat] = SHAS;
    format!(
        "script-keys yes script-view yes acquire-sha {acquire} release-sha {release} heartbeat-sha {heartbeat}"
    )
}

/// A server on which the scripts' callers, keys and readers go on working.
pub fn with_migration() -> Builder {
    Server::builder().module_args(&all_settings())
}

pub use shipped::arguments as shipped_arguments;

/// The legacy keys for the pool `p`.
const SESSIONS: &str = "license:p:active_sessions";
const METADATA: &str = "license:p:session_metadata";

/// Has sessions in the legacy keys for the pool `p`, with metadata.
#[track_caller]
fn fill(dialog: &mut Dialog, sessions: &[&str]) {
    for session in sessions {
        dialog.expect(&format!("SADD {SESSIONS} {session}"), "1");
        let json = r#"{"acquired_at":1700000000,"last_heartbeat":1700000060,"heartbeat_count":1}"#;
        dialog.expect(&format!("HSET {METADATA} {session} {json}"), "1");
    }
}

/// Has an entry in the legacy keys of the pool `p` that no pool can hold.
#[track_caller]
fn put_invalid_entry(dialog: &mut Dialog, session: &str) {
    dialog.expect(&format!("SADD {SESSIONS} {session}"), "1");
    dialog.expect(&format!("HSET {METADATA} {session} nonsense"), "1");
}

/// Loads a script and returns its SHA1.
#[track_caller]
fn load(dialog: &mut Dialog, text: &str) -> String {
    let sha = dialog.bytes(&["SCRIPT", "LOAD", text]);
    String::from_utf8(sha).expect("hexadecimal digits")
}
