//! The server around the module: what it is, and how it is set up.

use std::ffi::CStr;
use std::sync::LazyLock;

use redis_module::raw;

use crate::ffi::{Ctx, api};

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

/// Whether the server, 6.2, closes a connection that has hung up only after it has seen to the blocked clients of the same turn.
pub(crate) fn closes_late() -> bool {
    static IS_OLD: LazyLock<bool> = LazyLock::new(|| {
        // SAFETY: the function has no conditions; it is absent in the oldest servers.
        let version = unsafe { raw::RedisModule_GetServerVersion.map(|version| version()) };
        version.is_none_or(|version| version < 0x0007_0000)
    });
    *IS_OLD
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
