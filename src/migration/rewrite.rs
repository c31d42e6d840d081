//! Rewriting commands before the server runs them: calls of listed scripts become commands of the
//! module, and so do reads of legacy keys.

use std::cell::RefCell;
use std::ffi::{CStr, c_int};

use redis_module::raw;
use sha1_smol::Sha1;

use super::names::{METADATA, PREFIX, SESSIONS, pool_of};
use crate::config::{self, ShaList};
use crate::ffi::{Incoming, OwnedStr, Str, with_module_context};
use crate::sha::sha_of_hex;
use crate::{slot, stats};

/// A command that reads one of the legacy keys.
pub(crate) struct Reader {
    /// The server's command.
    pub(crate) native: &'static CStr,
    /// The command of the module that answers in its place.
    pub(crate) command: &'static CStr,
    /// How long the answer takes.
    pub(crate) complexity: &'static CStr,
    /// Those of the server's command, by which a user may be allowed it.
    pub(crate) flags: &'static CStr,
    /// Arguments with the command's name.
    pub(crate) arity: c_int,
    /// How the names of the keys end that it is answered for.
    suffix: &'static [u8],
}

/// The readers that are answered from the pool.
pub(crate) const READERS: [Reader; 8] = [
    Reader {
        native: c"SISMEMBER",
        command: c"seat.sismember",
        complexity: c"O(1)",
        flags: c"readonly fast",
        arity: 3,
        suffix: SESSIONS,
    },
    Reader {
        native: c"SMEMBERS",
        command: c"seat.smembers",
        complexity: ALL,
        flags: c"readonly",
        arity: 2,
        suffix: SESSIONS,
    },
    Reader {
        native: c"SCARD",
        command: c"seat.scard",
        complexity: c"O(1), O(N) where N is the number of sessions in the key itself",
        flags: c"readonly fast",
        arity: 2,
        suffix: SESSIONS,
    },
    Reader {
        native: c"HGET",
        command: c"seat.hget",
        complexity: c"O(N) in the length of the metadata",
        flags: c"readonly fast",
        arity: 3,
        suffix: METADATA,
    },
    Reader {
        native: c"HGETALL",
        command: c"seat.hgetall",
        complexity: ALL,
        flags: c"readonly",
        arity: 2,
        suffix: METADATA,
    },
    Reader {
        native: c"HEXISTS",
        command: c"seat.hexists",
        complexity: c"O(1)",
        flags: c"readonly fast",
        arity: 3,
        suffix: METADATA,
    },
    Reader {
        native: c"HLEN",
        command: c"seat.hlen",
        complexity: c"O(1), O(N) while some session has no metadata or is in the key itself",
        flags: c"readonly fast",
        arity: 2,
        suffix: METADATA,
    },
    Reader {
        native: c"HKEYS",
        command: c"seat.hkeys",
        complexity: ALL,
        flags: c"readonly",
        arity: 2,
        suffix: METADATA,
    },
];

const ALL: &CStr = c"O(N) where N is the number of sessions";

/// The names of the commands that others become.
struct Names {
    scripts: [OwnedStr; 3],
    readers: [OwnedStr; 8],
}

thread_local! {
    static NAMES: RefCell<Option<Names>> = const { RefCell::new(None) };
}

/// Makes the names once: a filter runs before each command.
pub(super) fn make_names() {
    let names = Names {
        scripts: [&b"seat.acquire"[..], b"seat.release", b"seat.heartbeat"].map(OwnedStr::new),
        readers: READERS.map(|reader| OwnedStr::new(reader.command.to_bytes())),
    };
    NAMES.set(Some(names));
}

/// The lists, in the order of [`Names::scripts`].
fn lists() -> [&'static ShaList; 3] {
    [
        &config::ACQUIRE_SHA,
        &config::RELEASE_SHA,
        &config::HEARTBEAT_SHA,
    ]
}

/// Listed scripts take effect together: if one of the three still ran as a script, it would not see
/// what the others do.
fn carries_out_scripts() -> bool {
    lists().iter().all(|list| !list.is_empty())
}

/// Whether any command is to be rewritten, as the settings are.
pub(crate) fn rewrites_commands() -> bool {
    carries_out_scripts() || config::SCRIPT_VIEW.get()
}

/// `EVALSHA sha 1 key argument ...` of a listed script, or `EVAL text 1 key argument ...` of its
/// text, becomes `SEAT.* key argument ...`.
pub(crate) fn rewrite_script(command: &mut Incoming<'_>) {
    let name = command.get(0).unwrap_or_default();
    let by_hash = name.eq_ignore_ascii_case(b"EVALSHA");
    let is_script = by_hash || name.eq_ignore_ascii_case(b"EVAL");
    if !is_script || !carries_out_scripts() || command.get(2) != Some(b"1") || command.len() < 4 {
        return;
    }
    let script = command.get(1).unwrap_or_default();
    let sha = if by_hash {
        sha_of_hex(script)
    } else {
        Some(Sha1::from(script).digest().bytes())
    };
    let listed = sha.and_then(|sha| lists().iter().position(|list| list.contains(sha)));
    let Some(listed) = listed else { return };
    // A replica leaves scripts alone. They only read there, and one may come from a primary that
    // replicates them as they are (6.2).
    let mut is_replica = false;
    with_module_context(|ctx| {
        is_replica = ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE);
    });
    if is_replica {
        return;
    }
    NAMES.with_borrow(|names| {
        if let Some(names) = names {
            command.rename(&names.scripts[listed]);
            command.delete(1);
            command.delete(1);
            stats::SCRIPT_CALLS.add();
        }
    });
}

/// Whether a command of this name is the call of a script that is not carried out any more: it
/// waited, in a transaction or a pause, while the settings changed.
pub(crate) fn is_outdated(name: Str<'_>) -> bool {
    let is_ours = |names: &Names| {
        let scripts = names.scripts.iter();
        scripts.map(OwnedStr::get).any(|own| own.is_same_as(name))
    };
    !carries_out_scripts() && NAMES.with_borrow(|names| names.as_ref().is_some_and(is_ours))
}

/// `SISMEMBER license:...:active_sessions session` and its like become `SEAT.SISMEMBER ...`.
pub(crate) fn rewrite_reader(command: &mut Incoming<'_>) {
    if !config::SCRIPT_VIEW.get() {
        return;
    }
    let name = command.get(0).unwrap_or_default();
    let Some(key) = command.get(1).filter(|key| key.starts_with(PREFIX)) else {
        return;
    };
    let known = READERS.iter().position(|reader| {
        name.eq_ignore_ascii_case(reader.native.to_bytes())
            && key.ends_with(reader.suffix)
            && command.len() == reader.arity as usize
    });
    let (Some(reader), Some(pool)) = (known, pool_of(key)) else {
        return;
    };
    let mut is_here = false;
    with_module_context(|ctx| is_here = slot::is_shared(ctx, key, pool));
    if is_here {
        NAMES.with_borrow(|names| {
            if let Some(names) = names {
                command.rename(&names.readers[reader]);
            }
        });
    }
}
