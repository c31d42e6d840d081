//! The server around the module: what it is, and how it is set up.

use std::ffi::{CStr, c_int};
use std::sync::LazyLock;

use redis_module::raw;

use crate::ffi::{Ctx, OwnedStr, api};

/// A section of INFO. The wrapper of the crate would keep a reference to each value for ever.
pub(crate) struct Info<'a> {
    ctx: Ctx<'a>,
    raw: *mut raw::RedisModuleServerInfoData,
}

impl Info<'_> {
    pub(crate) fn of<'a>(ctx: Ctx<'a>, section: &CStr) -> Info<'a> {
        // SAFETY: the context and the name are valid; what is returned is freed by `drop`.
        let raw = unsafe { api!(RedisModule_GetServerInfo)(ctx.as_ptr(), section.as_ptr()) };
        Info { ctx, raw }
    }

    /// A field of the section, empty if it is not there.
    pub(crate) fn field(&self, name: &CStr) -> String {
        // SAFETY: the name is valid, and the value, if there is one, is a C string that lasts as long as the information.
        unsafe {
            let value = api!(RedisModule_ServerInfoGetFieldC)(self.raw, name.as_ptr());
            if value.is_null() {
                String::new()
            } else {
                CStr::from_ptr(value).to_string_lossy().into_owned()
            }
        }
    }
}

impl Drop for Info<'_> {
    fn drop(&mut self) {
        // SAFETY: the information was made in `of`, and no value of it is left.
        unsafe { api!(RedisModule_FreeServerInfo)(self.ctx.as_ptr(), self.raw) };
    }
}

/// The server's version, as INFO states it.
pub(crate) fn version(ctx: Ctx<'_>) -> String {
    Info::of(ctx, c"server").field(c"redis_version")
}

/// Whether the server, a primary, refuses its clients' writes: with `NOREPLICAS`, `MISCONF` or `CLUSTERDOWN`. It asks so before
/// commands only; what the module grants by itself has to ask, too.
pub(crate) fn refuses_writes(ctx: Ctx<'_>) -> bool {
    lacks_replicas(ctx) || has_failed_to_save(ctx) || is_of_a_cluster_that_is_down(ctx)
}

/// Whether the server is a node of a cluster that does not serve: too few of its nodes are in sight, or some slots are nobody's.
fn is_of_a_cluster_that_is_down(ctx: Ctx<'_>) -> bool {
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

/// Whether the last snapshot failed and the server is set to mind that, or the last write to the AOF.
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

/// The value of a setting of the server's, if `CONFIG` tells: whoever runs the server may have taken that away.
fn setting(ctx: Ctx<'_>, name: &[u8]) -> Option<Vec<u8>> {
    let (get, setting) = (OwnedStr::new(b"GET"), OwnedStr::new(name));
    let reply = ctx.call(c"CONFIG", &[get.get(), setting.get()])?;
    reply.array_after(name).into_iter().next()
}

/// The server's version as one number, two digits each.
static VERSION: LazyLock<c_int> = LazyLock::new(|| {
    // SAFETY: the function has no conditions; it is absent in the oldest servers.
    unsafe { raw::RedisModule_GetServerVersion.map_or(0, |version| version()) }
});

/// Whether the server, 6.2, closes a connection that has hung up only after it has seen to the blocked clients of the same turn.
pub(crate) fn closes_late() -> bool {
    *VERSION < 0x0007_0000
}

/// Whether the server, up to 7.0, takes a blocked client that it told of a key, and that was not served, for the one whose command
/// runs, even when it is freed.
pub(crate) fn mistakes_the_passed_over() -> bool {
    *VERSION < 0x0007_0200
}

/// Warns of a set-up in which the pool cannot keep what it promises.
pub(crate) fn warn(ctx: Ctx<'_>) {
    let policy = Info::of(ctx, c"memory").field(c"maxmemory_policy");
    if policy.starts_with("allkeys") {
        ctx.log_warning(&format!(
            "maxmemory-policy {policy} may evict a pool with all its sessions, whose seats are then granted again; use noeviction"
        ));
    }
}
