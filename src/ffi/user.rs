//! Who calls, and what the ACL lets them do.

use std::ffi::CStr;
use std::ptr::NonNull;

use redis_module::raw;

use super::{Ctx, OwnedStr, Str, api};

/// A user of the ACL.
pub(crate) struct User {
    raw: NonNull<raw::RedisModuleUser>,
}

impl Ctx<'_> {
    /// The name of the user who is logged in on the connection of this call. `None` if the call
    /// came by none, such as a script's.
    pub(crate) fn user_of_connection(self) -> Option<OwnedStr> {
        self.user_of(self.connection())
    }

    /// The name of the user who is logged in on a connection, if that is there.
    pub(crate) fn user_of(self, connection: u64) -> Option<OwnedStr> {
        // SAFETY: the context is valid; the string is owned, since the context collects none.
        let name = unsafe { api!(RedisModule_GetClientUserNameById)(self.as_ptr(), connection) };
        NonNull::new(name).map(OwnedStr::from_raw)
    }

    /// The name of the user for whom this callback runs. `None` if it runs for nobody, or on a
    /// server that does not tell (6.2).
    pub(crate) fn user(self) -> Option<OwnedStr> {
        // SAFETY: the function is absent before 7.0. It needs a context with a user, which is asked
        // for first.
        let name = unsafe {
            let name_of = raw::RedisModule_GetCurrentUserName?;
            if !self.has_user() {
                return None;
            }
            name_of(self.as_ptr())
        };
        NonNull::new(name).map(OwnedStr::from_raw)
    }
}

impl Ctx<'_> {
    /// Makes a category of the ACL, and returns whether the server lets a module do so: since 7.4.
    pub(crate) fn add_acl_category(self, name: &CStr) -> bool {
        // SAFETY: the function is absent before 7.4; context and string are valid.
        let status =
            unsafe { raw::RedisModule_AddACLCategory.map(|add| add(self.as_ptr(), name.as_ptr())) };
        status == Some(raw::Status::Ok as i32)
    }
}

/// Whether the server lets a module ask for a user's rights: since 7.0.
pub(crate) fn has_users() -> bool {
    // SAFETY: the statics are set once before the module's first callback.
    unsafe { raw::RedisModule_GetModuleUserFromUserName }.is_some()
}

impl User {
    /// The user of a name. `None` if there is none, or on a server that does not tell (6.2).
    pub(crate) fn named(name: Str<'_>) -> Option<User> {
        // SAFETY: the function is absent before 7.0; the name is valid.
        let user = unsafe { raw::RedisModule_GetModuleUserFromUserName?(name.as_ptr()) };
        NonNull::new(user).map(|raw| User { raw })
    }

    /// Whether the user may do with a key what `flags` (`REDISMODULE_CMD_KEY_ACCESS` and its like)
    /// say.
    pub(crate) fn may(&self, key: Str<'_>, flags: u32) -> bool {
        // SAFETY: the function exists where users do; user and key are valid.
        let status = unsafe {
            let check = raw::RedisModule_ACLCheckKeyPermissions;
            check.map(|check| check(self.raw.as_ptr(), key.as_ptr(), flags as i32))
        };
        status == Some(raw::Status::Ok as i32)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: the structure is owned; it only names the user.
        unsafe {
            if let Some(free) = raw::RedisModule_FreeModuleUser {
                free(self.raw.as_ptr());
            }
        }
    }
}

impl OwnedStr {
    fn from_raw(raw: NonNull<raw::RedisModuleString>) -> OwnedStr {
        OwnedStr { raw: raw.as_ptr() }
    }
}
