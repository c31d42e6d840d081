//! Whether a caller may touch a key that its command does not name, which the server checks for the others by itself.

use redis_module::raw;

use crate::ffi::{Ctx, OwnedStr, Str, User, has_users};

/// Whether whoever called may do with each of `keys` what `flags` (`REDISMODULE_CMD_KEY_ACCESS` and its like) say. Another module's
/// call is nobody's, and may all.
pub(crate) fn caller_may(ctx: Ctx<'_>, keys: &[Str<'_>], flags: u32) -> bool {
    if has_users() {
        let Some(name) = ctx.user_of_connection().or_else(|| ctx.user()) else {
            return true;
        };
        let user = User::named(name.get());
        return user.is_some_and(|user| keys.iter().all(|&key| user.may(key, flags)));
    }
    match ctx.user_of_connection() {
        Some(name) => patterns_allow(ctx, name.get(), keys),
        // 6.2 does not tell a module for whom a script runs.
        None if ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_LUA) => everybody_may(ctx, keys),
        None => true,
    }
}

fn everybody_may(ctx: Ctx<'_>, keys: &[Str<'_>]) -> bool {
    let users = OwnedStr::new(b"USERS");
    let Some(users) = ctx.call(c"ACL", &[users.get()]) else {
        return false;
    };
    users.strings().is_some_and(|mut names| {
        names.all(|name| patterns_allow(ctx, OwnedStr::new(name).get(), keys))
    })
}

/// Whether the key patterns of a user allow these keys, on 6.2, which knows no rights to read or to write alone.
fn patterns_allow(ctx: Ctx<'_>, user: Str<'_>, keys: &[Str<'_>]) -> bool {
    let getuser = OwnedStr::new(b"GETUSER");
    let Some(described) = ctx.call(c"ACL", &[getuser.get(), user]) else {
        return false;
    };
    let patterns = described.array_after(b"keys");
    keys.iter().all(|key| {
        patterns
            .iter()
            .any(|pattern| is_allowed_by(pattern, key.bytes()))
    })
}

/// Whether a key pattern is the key, or a beginning of it and a star. Other patterns are taken to allow nothing: the server does not
/// match for a module, and to match a little differently would be to let somebody in.
fn is_allowed_by(pattern: &[u8], key: &[u8]) -> bool {
    let is_plain = |text: &[u8]| !text.iter().any(|byte| b"*?[]\\^".contains(byte));
    match pattern {
        [start @ .., b'*'] => is_plain(start) && key.starts_with(start),
        _ => is_plain(pattern) && pattern == key,
    }
}

#[cfg(test)]
mod tests {
    use super::is_allowed_by;

    #[test]
    fn only_patterns_that_are_plain_up_to_a_last_star_allow_a_key() {
        for (pattern, allowed) in [
            ("*", true),
            ("license:*", true),
            ("license:acme:active_sessions", true),
            ("license:acme", false),
            ("license:b*", false),
            ("lic?nse:*", false),
            ("lic*:active_sessions", false),
            ("license:[ab]cme*", false),
            (r"license:\acme*", false),
            ("", false),
        ] {
            let key = b"license:acme:active_sessions";
            assert_eq!(is_allowed_by(pattern.as_bytes(), key), allowed, "{pattern}");
        }
    }
}
