//! The names of legacy keys, which the scripts make from the name of a pool.

use crate::ffi::{OwnedStr, Str};

/// What the names of all legacy keys begin with.
pub(super) const PREFIX: &[u8] = b"license:";
/// How the name of a SET of sessions ends.
pub(super) const SESSIONS: &[u8] = b":active_sessions";
/// How the name of a HASH of metadata ends.
pub(super) const METADATA: &[u8] = b":session_metadata";

/// The two keys in which the scripts keep the pool of a key.
pub(super) struct LegacyKeys {
    sessions: OwnedStr,
    metadata: OwnedStr,
}

impl LegacyKeys {
    pub(super) fn of(pool: &[u8]) -> LegacyKeys {
        LegacyKeys {
            sessions: OwnedStr::new(&[PREFIX, pool, SESSIONS].concat()),
            metadata: OwnedStr::new(&[PREFIX, pool, METADATA].concat()),
        }
    }

    /// The SET of sessions and the HASH of their metadata.
    pub(super) fn both(&self) -> [Str<'_>; 2] {
        [self.sessions.get(), self.metadata.get()]
    }
}

/// The key of the pool for which the scripts made `name`, if it is such a name.
pub(super) fn pool_of(name: &[u8]) -> Option<&[u8]> {
    let rest = name.strip_prefix(PREFIX)?;
    rest.strip_suffix(SESSIONS)
        .or_else(|| rest.strip_suffix(METADATA))
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
