//! Beside the scripts: a team moves from the Lua scripts to the pool while their callers, readers and data go on.
//!
//! The scripts keep a pool in two keys whose names they make from an argument. Three settings let the two live side by side:
//! listed scripts are carried out as commands of the module ([`calls`]), what others put into the scripts' keys is taken over by
//! the next command that writes to the pool ([`adopt`]), and readers of those keys are answered from the pool (also [`calls`]).

mod adopt;
mod calls;
mod keys;
mod rows;

pub(crate) use adopt::{
    Caller, check_types, export_to, open, open_as_known, remove_invalid, take_over,
};
pub(crate) use calls::{READERS, is_outdated};
pub(crate) use keys::{databases_swapped, flushed, follow, forget_invalid, hears_of_keys};

use crate::ffi::{Ctx, OwnedStr, Str, with_module_context};

const PREFIX: &[u8] = b"license:";
const SESSIONS: &[u8] = b":active_sessions";
const METADATA: &[u8] = b":session_metadata";

/// The two keys in which the scripts keep the pool of a key.
pub(crate) struct ScriptKeys {
    sessions: OwnedStr,
    metadata: OwnedStr,
}

impl ScriptKeys {
    pub(crate) fn of(pool: &[u8]) -> ScriptKeys {
        ScriptKeys {
            sessions: OwnedStr::new(&[PREFIX, pool, SESSIONS].concat()),
            metadata: OwnedStr::new(&[PREFIX, pool, METADATA].concat()),
        }
    }

    /// The SET of sessions and the HASH of their metadata.
    pub(crate) fn both(&self) -> [Str<'_>; 2] {
        [self.sessions.get(), self.metadata.get()]
    }
}

/// The key of the pool for which the scripts made `name`, if it is such a name.
pub(crate) fn pool_of(name: &[u8]) -> Option<&[u8]> {
    let rest = name.strip_prefix(PREFIX)?;
    rest.strip_suffix(SESSIONS)
        .or_else(|| rest.strip_suffix(METADATA))
}

/// Has the settings that are given at load take effect.
pub(crate) fn register() {
    calls::make_names();
    settings_changed();
}

/// Has what the settings say take effect.
pub(crate) fn settings_changed() {
    with_module_context(|ctx| {
        calls::settings_changed(ctx);
        keys::settings_changed(ctx);
    });
}

/// Whether a command on the one key may look at the other: always without a cluster, and in one if their slots are the same. Newer
/// servers look for every key in the slot of the command that runs.
fn same_slot(ctx: Ctx<'_>, one: Str<'_>, other: Str<'_>) -> bool {
    if !ctx.is_in_cluster() {
        return true;
    }
    let keyslot = OwnedStr::new(b"KEYSLOT");
    let slot = |key| {
        let reply = ctx.call(c"CLUSTER", &[keyslot.get(), key]);
        reply.and_then(|reply| reply.integer())
    };
    // Where the server does not tell, nothing is certain.
    slot(one).is_some_and(|one| slot(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::pool_of;

    #[test]
    fn the_scripts_names_lead_back_to_their_pool() {
        for (name, pool) in [
            (&b"license:acme:active_sessions"[..], Some(&b"acme"[..])),
            (b"license:acme:session_metadata", Some(b"acme")),
            (b"license::active_sessions", Some(b"")),
            (
                b"license:license:a:active_sessions:session_metadata",
                Some(b"license:a:active_sessions"),
            ),
            (b"license:active_sessions", None),
            (b"license:acme:active_sessions ", None),
            (b"License:acme:active_sessions", None),
            (b"acme", None),
        ] {
            assert_eq!(pool_of(name), pool, "{}", name.escape_ascii());
        }
    }
}
