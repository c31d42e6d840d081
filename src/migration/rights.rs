//! Whether a caller may touch a key that its command does not name, which the server checks for the
//! others by itself.

use crate::ffi::{Ctx, Str, User, has_users};
use crate::old_servers;

/// Whether whoever called may do with each of `keys` what `flags` (`REDISMODULE_CMD_KEY_ACCESS` and
/// its like) say. Another module's call is nobody's, and may all.
pub(crate) fn caller_may(ctx: Ctx<'_>, keys: &[Str<'_>], flags: u32) -> bool {
    if has_users() {
        let Some(name) = ctx.user_of_connection().or_else(|| ctx.user()) else {
            return true;
        };
        let user = User::named(name.get());
        return user.is_some_and(|user| keys.iter().all(|&key| user.may(key, flags)));
    }
    old_servers::patterns_allow_caller(ctx, keys)
}
