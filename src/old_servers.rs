//! What only old servers need, up to 7.0. All of it can go when they do.
//!
//! Three things more go with 6.2, which are parts of others: the data set that is set aside
//! ([`crate::data_sets`]), the deadline of a pool that goes from an unknown database
//! ([`crate::deadlines`]), and the verdict on memory of the moment in which a script began
//! ([`crate::memory`]).

use std::ffi::c_int;
use std::sync::LazyLock;

use redis_module::raw;

use crate::ffi::{Ctx, OwnedStr, Str, server_version};
use crate::slot::{hashed_part, slot, slot_of_part};

/// The server's version as one number, two hexadecimal digits each: Valkey's own on Valkey.
static VERSION: LazyLock<c_int> = LazyLock::new(server_version);

/// The shadow key at which clients that wait for `key` are to be blocked, on servers where that
/// cannot be the key itself: up to 7.0. There the server takes a blocked client that it notified of
/// a key, and that was not served, for the one whose command runs, even when it is freed.
pub(crate) fn shadow_key(ctx: Ctx<'_>, key: &[u8]) -> Option<OwnedStr> {
    let is_needed = *VERSION < 0x0007_0200;
    is_needed.then(|| OwnedStr::new(&shadow_name(key, ctx.is_in_cluster())))
}

/// How the names of shadow keys end, and no other key's.
const SUFFIX: &[u8] = b"\0seat-queue";

/// A name that nobody uses. In a cluster it is in the slot of `key`, so that those who are blocked
/// there are redirected as if they were blocked at `key`.
fn shadow_name(key: &[u8], in_cluster: bool) -> Vec<u8> {
    if !in_cluster {
        return [key, SUFFIX].concat();
    }
    let hashed = hashed_part(key);
    if !hashed.is_empty() && !hashed.contains(&b'}') {
        return [b"{", hashed, b"}", SUFFIX].concat();
    }
    // What is hashed of this key cannot stand between braces.
    [b"{", &tag_for(slot(key))[..], b"}", SUFFIX].concat()
}

/// Two bytes whose slot is `slot`. Each of the 65,536 pairs has a checksum of its own, so each slot
/// has four of them.
fn tag_for(slot: u16) -> [u8; 2] {
    let mut pairs = (0..=u16::MAX).map(u16::to_be_bytes);
    let found = pairs.find(|pair| !pair.contains(&b'}') && slot_of_part(pair) == slot);
    found.expect("a slot below 16,384")
}

/// Whether a connection that is there is only waiting to be closed: 6.2 closes one that has hung up
/// only after it has seen to the blocked clients of the same turn.
pub(crate) fn is_closing(ctx: Ctx<'_>, connection: u64) -> bool {
    if *VERSION >= 0x0007_0000 {
        return false;
    }
    let number = connection.to_string();
    let words = [&b"LIST"[..], b"ID", number.as_bytes()].map(OwnedStr::new);
    let Some(reply) = ctx.call(c"CLIENT", &words.each_ref().map(OwnedStr::get)) else {
        return false;
    };
    let mut fields = reply.text().split(|&byte| byte == b' ');
    let flags = fields.find_map(|field| field.strip_prefix(b"flags="));
    flags.is_some_and(|flags| flags.contains(&b'A'))
}

/// Whether the key patterns of whoever called allow these keys, on 6.2, where a module cannot ask
/// for a user's rights. Another module's call is nobody's, and may all.
pub(crate) fn patterns_allow_caller(ctx: Ctx<'_>, keys: &[Str<'_>]) -> bool {
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

/// Whether the key patterns of a user allow these keys, on 6.2, which knows no rights to read or to
/// write alone.
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

/// Whether a key pattern is the key, or a beginning of it and a star. Other patterns are taken to
/// allow nothing: the server does not match for a module, and to match a little differently would
/// be to let somebody in.
fn is_allowed_by(pattern: &[u8], key: &[u8]) -> bool {
    let is_plain = |text: &[u8]| !text.iter().any(|byte| b"*?[]\\^".contains(byte));
    match pattern {
        [start @ .., b'*'] => is_plain(start) && key.starts_with(start),
        _ => is_plain(pattern) && pattern == key,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{is_allowed_by, shadow_name, tag_for};
    use crate::slot::{slot, slot_of_part, tests::KEYS};

    #[test]
    fn each_slot_has_a_tag() {
        let pairs = (0..=u16::MAX).map(u16::to_be_bytes);
        let tags = pairs.filter(|pair| !pair.contains(&b'}'));
        let slots: HashSet<u16> = tags.map(|tag| slot_of_part(&tag)).collect();
        assert_eq!(slots.len(), 16384);
        for wanted in (0..16384).step_by(1023) {
            let tag = tag_for(wanted);
            assert_eq!(slot(&[b"{", &tag[..], b"}x"].concat()), wanted);
        }
    }

    #[test]
    fn a_shadow_key_is_another_one_in_the_same_slot() {
        for (key, expected) in KEYS {
            assert_eq!(
                slot(&shadow_name(key, true)),
                expected,
                "{}",
                key.escape_ascii()
            );
            for in_cluster in [false, true] {
                assert_ne!(shadow_name(key, in_cluster), key);
            }
        }
    }

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
