//! The server around the module: what it is, and how it is set up.

use std::ffi::{CStr, c_int};
use std::sync::LazyLock;

use redis_module::raw;

use crate::ffi::{Ctx, OwnedStr, api};

/// A field of INFO. The wrapper of the crate would keep a reference to the value for ever.
fn field(ctx: Ctx<'_>, section: &CStr, field: &CStr) -> String {
    // SAFETY: the context and the names are valid, and the value, if there is one, is a C string that lasts as long as the information.
    unsafe {
        let info = api!(RedisModule_GetServerInfo)(ctx.as_ptr(), section.as_ptr());
        let value = api!(RedisModule_ServerInfoGetFieldC)(info, field.as_ptr());
        let text = if value.is_null() {
            String::new()
        } else {
            CStr::from_ptr(value).to_string_lossy().into_owned()
        };
        api!(RedisModule_FreeServerInfo)(ctx.as_ptr(), info);
        text
    }
}

/// The server's version, as INFO states it.
pub(crate) fn version(ctx: Ctx<'_>) -> String {
    field(ctx, c"server", c"redis_version")
}

/// Whether the server refuses its clients' writes because too few replicas follow it (`min-replicas-to-write`). It asks so before
/// commands only; what the module grants by itself has to ask, too.
pub(crate) fn lacks_replicas(ctx: Ctx<'_>) -> bool {
    // The field is there only where a number of replicas is asked for.
    let following = field(ctx, c"replication", c"min_slaves_good_slaves");
    let Ok(following) = following.parse::<i64>() else {
        return false;
    };
    let setting = [OwnedStr::new(b"GET"), OwnedStr::new(WANTED)];
    let reply = ctx.call(c"CONFIG", &[setting[0].get(), setting[1].get()]);
    let wanted = reply
        .map(|reply| reply.array_after(WANTED))
        .unwrap_or_default();
    let wanted = wanted
        .first()
        .and_then(|wanted| std::str::from_utf8(wanted).ok());
    let wanted = wanted.and_then(|wanted| wanted.parse::<i64>().ok());
    wanted.is_some_and(|wanted| following < wanted)
}

/// The setting that says how many replicas a primary must have to take writes.
const WANTED: &[u8] = b"min-replicas-to-write";

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
    let policy = field(ctx, c"memory", c"maxmemory_policy");
    if policy.starts_with("allkeys") {
        ctx.log_warning(&format!(
            "maxmemory-policy {policy} may evict a pool with all its sessions, whose seats are then granted again; use noeviction"
        ));
    }
}
