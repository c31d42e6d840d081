//! The server around the module: what it is, and how it is set up.

use std::sync::LazyLock;

use redis_module::{Context, raw};

use crate::ffi::Ctx;

fn field(ctx: Ctx<'_>, section: &str, field: &str) -> String {
    let info = Context::new(ctx.as_ptr()).server_info(section);
    let value = info.field(field);
    value.map_or_else(String::new, |value| value.to_string_lossy())
}

/// The server's version, as INFO states it.
pub(crate) fn version(ctx: Ctx<'_>) -> String {
    field(ctx, "server", "redis_version")
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
    let policy = field(ctx, "memory", "maxmemory_policy");
    if policy.starts_with("allkeys") {
        ctx.log_warning(&format!(
            "maxmemory-policy {policy} may evict a pool with all its sessions, whose seats are then granted again; use noeviction"
        ));
    }
}
