//! Whether the server refuses what needs memory, with `OOM`, so that a grant is refused exactly
//! where a `SET` would be.
//!
//! The server asks before a command that is marked `deny-oom`. No command of the module is: most
//! calls give nothing. So the module asks just before it grants. But a script and a transaction go
//! by the verdict of the moment in which they began, so that they are not stopped half-way. That
//! verdict the server tells from 7.0 on. Up to 6.2 the module notes the moment itself, in a filter.
//!
//! A script that is allowed to run out of memory (`#!lua flags=allow-oom`) is asked for nothing.
//! The server does not tell which script runs, so the filter keeps what was called last, and the
//! server tells the flags of that.

use std::cell::{Cell, RefCell};
use std::ffi::CString;

use redis_module::raw;

use crate::ffi::{Ctx, Incoming, Info, OwnedStr};

/// A script by what it was called by.
enum Called {
    Text(OwnedStr),
    Hash(OwnedStr),
}

thread_local! {
    /// Whether memory was full when the last transaction began.
    static TRANSACTION_BEGAN_FULL: Cell<bool> = const { Cell::new(false) };
    /// Whether memory was full when the last script was called.
    static SCRIPT_BEGAN_FULL: Cell<bool> = const { Cell::new(false) };
    /// The script that was called last, unless a transaction has begun since: which script of it
    /// runs is not known.
    static CALLED: RefCell<Option<Called>> = const { RefCell::new(None) };
}

/// Whether a grant is to be refused for want of memory.
///
/// To be above `maxmemory` is not enough: a policy may evict something, as long as there is
/// something to evict. Nor is to be below: a script that began above it is held to that.
pub(crate) fn refuses_growth(ctx: Ctx<'_>) -> bool {
    if !ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_MAXMEMORY) {
        return false;
    }
    let in_script = ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_LUA);
    let in_transaction = ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_MULTI);
    let is_full = || ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_OOM);
    if !in_script && !in_transaction && !is_full() {
        return false;
    }
    match ctx.refuses_what_needs_memory() {
        Some(refuses) => refuses && !(in_script && is_allowed_to_run_out(ctx)),
        None => {
            let was_full = match (in_script, in_transaction) {
                (true, _) => SCRIPT_BEGAN_FULL.get(),
                (false, true) => TRANSACTION_BEGAN_FULL.get(),
                (false, false) => is_full(),
            };
            let evicts = ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_EVICT);
            was_full && !(evicts && has_something_to_evict(ctx))
        }
    }
}

/// Whether the script that runs may write though memory is full. The server has let it begin, so a
/// function may.
fn is_allowed_to_run_out(ctx: Ctx<'_>) -> bool {
    ctx.runs_function()
        || CALLED.with_borrow(|called| match called {
            Some(Called::Text(text)) => {
                text.get().bytes().starts_with(b"#!") && ctx.may_run_out(c"EVAL", text.get())
            }
            Some(Called::Hash(sha)) => ctx.may_run_out(c"EVALSHA", sha.get()),
            None => false,
        })
}

/// Whether the server, which is set to evict keys, has any that its policy allows it to. It goes on
/// evicting until it has none.
fn has_something_to_evict(ctx: Ctx<'_>) -> bool {
    let policy = Info::of(ctx, c"memory").field(c"maxmemory_policy");
    let counted = if policy.starts_with("allkeys") {
        "keys="
    } else {
        "expires="
    };
    let keyspace = Info::of(ctx, c"keyspace");
    let own = ctx.selected_database();
    // A database without keys has no line.
    let found = (0..)
        .take_while(|&database| ctx.select_database(database))
        .filter_map(|database| CString::new(format!("db{database}")).ok())
        .any(|name| {
            let counts = keyspace.field(&name);
            let count = counts
                .split(',')
                .find_map(|count| count.strip_prefix(counted));
            count.is_some_and(|count| count != "0")
        });
    ctx.select_database(own);
    found
}

/// Whether [`note`] is to see the commands: where the server has a limit. Up to 6.2 nothing tells
/// when it comes to have one.
pub(crate) fn needs_filter(ctx: Ctx<'_>) -> bool {
    ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_MAXMEMORY) || !ctx.tells_its_verdict()
}

/// Notes the script or the transaction that begins with this command, if one does.
pub(crate) fn note(ctx: Ctx<'_>, command: &Incoming<'_>) {
    let Some(name) = command.get(0) else { return };
    let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
    let is_full = || ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_OOM);
    if is(b"EXEC") {
        TRANSACTION_BEGAN_FULL.set(is_full());
        CALLED.set(None);
        return;
    }
    let by_hash = is(b"EVALSHA");
    if !by_hash && !is(b"EVAL") {
        return;
    }
    let is_full = is_full();
    SCRIPT_BEGAN_FULL.set(is_full);
    // Only a script that begins without room is ever asked about.
    let script = command.get(1).filter(|_| is_full).map(OwnedStr::new);
    CALLED.set(script.map(|script| {
        if by_hash {
            Called::Hash(script)
        } else {
            Called::Text(script)
        }
    }));
}
