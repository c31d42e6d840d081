//! The server around the module: what it is, and how it is set up.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::sync::LazyLock;

use crate::config;
use crate::ffi::{Ctx, Info, OwnedStr, has_function};

/// The server's name and its own version. What INFO states as Redis's is, on Valkey, the version
/// that it is compatible with.
pub(crate) fn describe(ctx: Ctx<'_>) -> String {
    let server = Info::of(ctx, c"server");
    match valkey_version(&server) {
        Some(version) => format!("Valkey {version}"),
        None => format!("Redis {}", server.field(c"redis_version")),
    }
}

fn valkey_version(server: &Info<'_>) -> Option<String> {
    let version = server.field(c"valkey_version");
    (!version.is_empty()).then_some(version)
}

/// Whether the server, a primary, refuses its clients' writes: with `NOREPLICAS` or with `MISCONF`.
/// It asks so before commands only; what the module grants by itself has to ask, too.
pub(crate) fn refuses_writes(ctx: Ctx<'_>) -> bool {
    lacks_replicas(ctx) || has_failed_to_save(ctx)
}

/// Whether the server is a node of a cluster that is down, and answers `CLUSTERDOWN`: too few of
/// its nodes are in sight, or some slots are nobody's.
pub(crate) fn is_cluster_down(ctx: Ctx<'_>) -> bool {
    const DOWN: &[u8] = b"cluster_state:fail";
    if !ctx.is_in_cluster() {
        return false;
    }
    let about = OwnedStr::new(b"INFO");
    let reply = ctx.call(c"CLUSTER", &[about.get()]);
    reply.is_some_and(|reply| reply.text().starts_with(DOWN))
}

/// Whether too few replicas follow (`min-replicas-to-write`).
fn lacks_replicas(ctx: Ctx<'_>) -> bool {
    // The field is there only where a number of replicas is asked for.
    let following = Info::of(ctx, c"replication").field(c"min_slaves_good_slaves");
    let Ok(following) = following.parse::<i64>() else {
        return false;
    };
    let wanted = setting(ctx, b"min-replicas-to-write");
    let wanted = wanted.and_then(|wanted| String::from_utf8(wanted).ok()?.parse::<i64>().ok());
    // If the number is not to be had, it is one at least.
    following < wanted.unwrap_or(1)
}

/// Whether the last snapshot failed and the server is set to mind that, or the last write to the
/// AOF.
fn has_failed_to_save(ctx: Ctx<'_>) -> bool {
    let persistence = Info::of(ctx, c"persistence");
    let has_failed = |field| persistence.field(field) == "err";
    if persistence.field(c"aof_enabled") == "1" && has_failed(c"aof_last_write_status") {
        return true;
    }
    let is = |name, value: &[u8]| setting(ctx, name).as_deref() == Some(value);
    has_failed(c"rdb_last_bgsave_status")
        && !is(b"stop-writes-on-bgsave-error", b"no")
        && !is(b"save", b"")
}

/// The value of a setting of the server's, if `CONFIG` shows it: whoever runs the server may have
/// taken that away.
fn setting(ctx: Ctx<'_>, name: &[u8]) -> Option<Vec<u8>> {
    let (get, setting) = (OwnedStr::new(b"GET"), OwnedStr::new(name));
    let reply = ctx.call(c"CONFIG", &[get.get(), setting.get()])?;
    reply.array_after(name).into_iter().next()
}

/// Whether what a blocked client is sent when the module wakes it waits in a buffer until the end
/// of the turn, so that it is lost if something else ends the wait before: on Valkey since 8.0.
/// Since then it has also had the module API under a name of its own, which is what can be asked
/// for.
pub(crate) fn replies_later() -> bool {
    static REPLIES_LATER: LazyLock<bool> =
        LazyLock::new(|| has_function(c"ValkeyModule_UnblockClient"));
    *REPLIES_LATER
}

thread_local! {
    /// The database of the client whose MOVE, or COPY of a pool, is under way.
    static CLIENT_DATABASE: Cell<Option<c_int>> = const { Cell::new(None) };
}

/// A client copies a pool from its database.
pub(crate) fn copies_from(database: c_int) {
    CLIENT_DATABASE.set(Some(database));
}

/// To be called at the end of each callback of a key event; `is_last` says whether no other
/// callback of this module hears of the same. A Valkey that reports the arrival of a key in the
/// context of the client itself leaves it in the database of that key: it is put back. Elsewhere
/// the context is the callback's own, and goes with it.
pub(crate) fn restore_client_database(ctx: Ctx<'_>, event: &CStr, is_last: bool) {
    match event.to_bytes() {
        b"move_from" => CLIENT_DATABASE.set(Some(ctx.selected_database())),
        b"move_to" | b"copy_to" => {
            if let Some(database) = CLIENT_DATABASE.get() {
                ctx.select_database(database);
            }
            if is_last {
                CLIENT_DATABASE.set(None);
            }
        }
        _ => {}
    }
}

/// Whether Valkey is of a version that, after MOVE and after COPY to another database, leaves a
/// client there if any module listens to key events. What the client does next, and what follows in
/// the AOF and on replicas, is then done there. After MOVE and after COPY of a pool it is put back
/// ([`restore_client_database`]), but nothing shows where COPY of another key began. Nor does
/// anything but the version shows this: to find out, one would have to copy a key.
fn loses_client_database(ctx: Ctx<'_>) -> bool {
    let Some(version) = valkey_version(&Info::of(ctx, c"server")) else {
        return false;
    };
    let mut numbers = version.splitn(3, '.').map(|number| {
        let digits = number.split(|other: char| !other.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse::<u32>().ok())
    });
    let mut next = || numbers.next().flatten().unwrap_or(0);
    (FIRST_TO_LOSE..FIRST_TO_KEEP).contains(&(next(), next(), next()))
}

/// The versions of Valkey between which [`loses_client_database`].
const FIRST_TO_LOSE: (u32, u32, u32) = (8, 1, 1);
const FIRST_TO_KEEP: (u32, u32, u32) = (9, 1, 1);

/// Warns of a set-up in which the pool cannot keep what it promises.
pub(crate) fn warn(ctx: Ctx<'_>) {
    if loses_client_database(ctx) {
        ctx.log_warning(&format!(
            "{} leaves a client in the wrong database after COPY ... DB if a module listens to key \
             events, as this one does: copy pools only to other databases, or use Valkey 9.1.1 or \
             newer",
            describe(ctx)
        ));
    }
    let policy = Info::of(ctx, c"memory").field(c"maxmemory_policy");
    if policy.starts_with("allkeys") {
        ctx.log_warning(&format!(
            "maxmemory-policy {policy} may evict a pool with all its sessions, whose seats are then granted again; use noeviction"
        ));
        if config::FEED.is_on() || config::DENIAL_FEED.is_on() {
            ctx.log_warning(&format!(
                "maxmemory-policy {policy} may evict a feed with all its entries; use noeviction"
            ));
        }
    }
}
