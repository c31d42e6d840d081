//! The server around the module: what it is, and how it is set up.

use redis_module::Context;

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

/// Warns of a set-up in which the pool cannot keep what it promises.
pub(crate) fn warn(ctx: Ctx<'_>) {
    let policy = field(ctx, "memory", "maxmemory_policy");
    if policy.starts_with("allkeys") {
        ctx.log_warning(&format!(
            "maxmemory-policy {policy} may evict a pool with all its sessions, whose seats are then granted again; use noeviction"
        ));
    }
}
