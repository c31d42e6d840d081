//! What the server says of itself: its INFO, its version, the functions that it has.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use redis_module::raw;

use super::{Ctx, api};

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
        // SAFETY: the name is valid, and the value, if there is one, is a C string that lasts as
        // long as the information.
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

/// The server's version as one number, two hexadecimal digits each, 0 where it does not tell:
/// Valkey's own on Valkey.
pub(crate) fn server_version() -> c_int {
    // SAFETY: the function has no conditions; it is absent in the oldest servers.
    unsafe { raw::RedisModule_GetServerVersion.map_or(0, |version| version()) }
}

/// Whether the server's module API has a function of this name.
pub(crate) fn has_function(name: &CStr) -> bool {
    let mut function: *mut c_void = ptr::null_mut();
    // SAFETY: the server looks the name up, and writes the function's address if it has it; nothing
    // is called by that.
    let status = unsafe { api!(RedisModule_GetApi)(name.as_ptr(), (&raw mut function).cast()) };
    status == raw::Status::Ok as c_int
}
