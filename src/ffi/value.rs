//! What the callbacks of a data type are given: a file to load from and to save to, and a digest.

use std::ffi::{CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;

use redis_module::raw;

use super::{Str, api};

/// An RDB file or a payload, from which a value is loaded or to which it is saved, or an AOF that
/// is being rewritten.
#[derive(Clone, Copy)]
pub(crate) struct Io<'a> {
    raw: NonNull<raw::RedisModuleIO>,
    callback: PhantomData<&'a ()>,
}

impl Io<'_> {
    /// # Safety
    /// `raw` must be the io of the running callback, which lasts for `'a`.
    pub(crate) unsafe fn new<'a>(raw: *mut raw::RedisModuleIO) -> Io<'a> {
        Io {
            raw: NonNull::new(raw).expect("the server passes an io"),
            callback: PhantomData,
        }
    }

    pub(super) fn as_ptr(self) -> *mut raw::RedisModuleIO {
        self.raw.as_ptr()
    }

    /// The name of the key whose value is saved or loaded, where the server tells it.
    pub(crate) fn key(&self) -> Option<Str<'_>> {
        // SAFETY: the io is valid, and the name lasts as long as it.
        unsafe {
            let name = api!(RedisModule_GetKeyNameFromIO)(self.as_ptr());
            (!name.is_null()).then(|| Str::new(name.cast_mut()))
        }
    }

    /// Reads the next blob of a value that is loaded, or `None` at the end of the data or on a read
    /// error.
    pub(crate) fn load_blob(self) -> Option<Blob> {
        let mut len = 0;
        // SAFETY: the io is valid. The buffer, if there is one, is owned from now on.
        let start = unsafe { api!(RedisModule_LoadStringBuffer)(self.as_ptr(), &raw mut len) };
        let blob = NonNull::new(start).map(|start| Blob { start, len });
        blob.filter(|_| !raw::is_io_error(self.as_ptr()))
    }

    /// Writes the next blob of a value that is saved.
    pub(crate) fn save_blob(self, blob: &[u8]) {
        raw::save_slice(self.as_ptr(), blob);
    }

    /// The key whose value is loaded, and its database. `None` for a value without a key, and on
    /// servers that do not tell (up to 6.2).
    pub(crate) fn database_and_key(&self) -> Option<(c_int, Str<'_>)> {
        // SAFETY: the statics are set once before the module's first callback; the io is valid, and
        // the name lasts as long as it does.
        unsafe {
            let database = raw::RedisModule_GetDbIdFromIO?(self.as_ptr());
            let key = api!(RedisModule_GetKeyNameFromIO)(self.as_ptr()).cast_mut();
            (database >= 0 && !key.is_null()).then(|| (database, Str::new(key)))
        }
    }

    /// Logs why a value cannot be loaded.
    pub(crate) fn log_error(self, message: &str) {
        let message = CString::new(message).unwrap_or_default();
        // SAFETY: the io is valid, and the message is an argument of the format, never the format
        // itself.
        unsafe {
            api!(RedisModule_LogIOError)(
                self.as_ptr(),
                c"warning".as_ptr(),
                c"%s".as_ptr(),
                message.as_ptr(),
            );
        }
    }
}

/// A buffer that the server allocated.
pub(crate) struct Blob {
    start: NonNull<c_char>,
    len: usize,
}

impl Blob {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the server gave a buffer of this length, owned by `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<u8>(), self.len) }
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        // SAFETY: the buffer is owned and was allocated by the server.
        unsafe { api!(RedisModule_Free)(self.start.as_ptr().cast::<c_void>()) };
    }
}

/// The digest of a value, by which `DEBUG DIGEST` compares two servers.
#[derive(Clone, Copy)]
pub(crate) struct Digest<'a> {
    raw: NonNull<raw::RedisModuleDigest>,
    callback: PhantomData<&'a ()>,
}

impl Digest<'_> {
    /// # Safety
    /// `raw` must be the digest of the running callback, which lasts for `'a`.
    pub(crate) unsafe fn new<'a>(raw: *mut raw::RedisModuleDigest) -> Digest<'a> {
        Digest {
            raw: NonNull::new(raw).expect("the server passes a digest"),
            callback: PhantomData,
        }
    }

    /// Adds bytes, in the order of the calls.
    pub(crate) fn bytes(self, bytes: &[u8]) {
        // SAFETY: the digest is valid, and the server reads the bytes during the call.
        unsafe {
            api!(RedisModule_DigestAddStringBuffer)(
                self.raw.as_ptr(),
                bytes.as_ptr().cast::<c_char>(),
                bytes.len(),
            );
        }
    }

    /// Adds a number, in the order of the calls.
    pub(crate) fn integer(self, value: i64) {
        // SAFETY: the digest is valid.
        unsafe { api!(RedisModule_DigestAddLongLong)(self.raw.as_ptr(), value) };
    }

    /// Ends a sequence of ordered parts; the sequences themselves have no order.
    pub(crate) fn end_sequence(self) {
        // SAFETY: the digest is valid.
        unsafe { api!(RedisModule_DigestEndSequence)(self.raw.as_ptr()) };
    }
}
