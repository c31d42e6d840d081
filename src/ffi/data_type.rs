//! A data type of the module's, and the keys that hold its values.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use redis_module::native_types::RedisType;
use redis_module::raw;

use super::{Ctx, Digest, Io, Mode, Str, api, guard};
use crate::error::Error;

/// What the server does with the values of a data type. A value stays where it is in memory for as
/// long as it lives.
///
/// All of it runs on the main thread but for [`Value::freed`], which may run in a background
/// thread, and [`Value::save`] and [`Value::rewrite`], which may run in a child that was forked.
pub(crate) trait Value: Sized + Send + 'static {
    /// Reads a value that was written in this version of the encoding. `None` if that is not to be
    /// had, for which the reason is logged.
    fn load(io: Io<'_>, version: c_int) -> Option<Self>;

    /// Writes the value.
    fn save(&self, io: Io<'_>);

    /// Writes the commands that make the value to an AOF that is being rewritten.
    fn rewrite(&self, io: Io<'_>, key: Str<'_>);

    /// The bytes that it takes.
    fn memory_bytes(&self) -> usize;

    /// Adds all that is persisted to a digest.
    fn digest(&self, digest: Digest<'_>);

    /// The number of allocations, by which the server decides whether to free a value in the
    /// background. 0 would mean always.
    fn allocations(&self) -> usize;

    /// A value for a copy of the key. `database` is that of the key, where the server tells it:
    /// from 7.0 on.
    fn copied(&self, key: Str<'_>, database: Option<c_int>) -> Self;

    /// The value was made, and has its place in memory.
    fn made(&self);

    /// The value goes from the name of a key, whatever the reason. `database` is that of the key,
    /// where the server tells it: from 7.0 on.
    fn unlinked(&self, key: Str<'_>, database: Option<c_int>);

    /// The server gives the value up.
    fn freed(self);
}

/// A data type whose values are `T`.
pub(crate) struct DataType<T> {
    inner: RedisType,
    values: PhantomData<fn() -> T>,
}

impl<T: Value> DataType<T> {
    /// A type of this name, which writes `version` of its encoding.
    pub(crate) const fn new(name: &'static str, version: i32) -> DataType<T> {
        let methods = raw::RedisModuleTypeMethods {
            version: raw::REDISMODULE_TYPE_METHOD_VERSION as u64,
            rdb_load: Some(rdb_load::<T>),
            rdb_save: Some(rdb_save::<T>),
            aof_rewrite: Some(aof_rewrite::<T>),
            mem_usage: Some(mem_usage::<T>),
            digest: Some(digest::<T>),
            free: Some(free::<T>),
            free_effort: Some(free_effort::<T>),
            copy: Some(copy::<T>),
            aux_load: None,
            aux_save: None,
            aux_save_triggers: 0,
            unlink: Some(unlink::<T>),
            defrag: None,
            mem_usage2: None,
            free_effort2: None,
            unlink2: Some(unlink2::<T>),
            copy2: Some(copy2::<T>),
            aux_save2: None,
        };
        DataType {
            inner: RedisType::new(name, version, methods),
            values: PhantomData,
        }
    }

    /// Makes the type known to the server, when the module is loaded.
    pub(crate) fn register(&self, ctx: Ctx<'_>) -> Result<(), &str> {
        self.inner.create_data_type(ctx.as_ptr())
    }

    fn raw(&self) -> *mut raw::RedisModuleType {
        *self.inner.raw_type.borrow()
    }
}

/// A value as the server keeps it.
fn into_raw<T: Value>(value: T) -> NonNull<T> {
    let value = NonNull::from(Box::leak(Box::new(value)));
    // SAFETY: the value was just made, and nobody else knows it.
    unsafe { value.as_ref() }.made();
    value
}

/// # Safety
/// `value` must come from [`into_raw`] and not be freed or changed during `'a`.
unsafe fn from_raw<'a, T: Value>(value: *const c_void) -> &'a T {
    // SAFETY: by this function's contract.
    unsafe { &*value.cast::<T>() }
}

fn to_server<T: Value>(value: Option<T>) -> *mut c_void {
    value.map_or(ptr::null_mut(), |value| into_raw(value).as_ptr().cast())
}

unsafe extern "C" fn rdb_load<T: Value>(
    io: *mut raw::RedisModuleIO,
    version: c_int,
) -> *mut c_void {
    guard("rdb_load", || {
        // SAFETY: the server passes the io of this call.
        let io = unsafe { Io::new(io) };
        to_server(T::load(io, version))
    })
    .unwrap_or(ptr::null_mut())
}

unsafe extern "C" fn rdb_save<T: Value>(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    guard("rdb_save", || {
        // SAFETY: the server passes the io of this call and a value of this type, unchanged during
        // the call.
        let (io, value) = unsafe { (Io::new(io), from_raw::<T>(value)) };
        value.save(io);
    });
}

unsafe extern "C" fn aof_rewrite<T: Value>(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    guard("aof_rewrite", || {
        // SAFETY: the server passes the io of this call, and a key and a value of this type,
        // unchanged during the call.
        let (io, key, value) = unsafe { (Io::new(io), Str::new(key), from_raw::<T>(value)) };
        value.rewrite(io, key);
    });
}

unsafe extern "C" fn mem_usage<T: Value>(value: *const c_void) -> usize {
    guard("mem_usage", || {
        // SAFETY: the server passes a value of this type, unchanged during the call.
        let value = unsafe { from_raw::<T>(value) };
        value.memory_bytes()
    })
    .unwrap_or(0)
}

unsafe extern "C" fn digest<T: Value>(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guard("digest", || {
        // SAFETY: the server passes the digest of this call and a value of this type, unchanged
        // during the call.
        let (digest, value) = unsafe { (Digest::new(digest), from_raw::<T>(value)) };
        value.digest(digest);
    });
}

unsafe extern "C" fn free<T: Value>(value: *mut c_void) {
    guard("free", || {
        // SAFETY: the value comes from `into_raw`, and the server gives it up.
        let value = unsafe { Box::from_raw(value.cast::<T>()) };
        value.freed();
    });
}

unsafe extern "C" fn free_effort<T: Value>(
    _: *mut raw::RedisModuleString,
    value: *const c_void,
) -> usize {
    guard("free_effort", || {
        // SAFETY: the server passes a value of this type, unchanged during the call.
        let value = unsafe { from_raw::<T>(value) };
        value.allocations()
    })
    .unwrap_or(1)
}

/// Since 7.0.
unsafe extern "C" fn unlink2<T: Value>(key: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    guard("unlink", || {
        // SAFETY: the server passes the key's context, and the functions to read it exist where
        // this callback is called.
        let (database, key) = unsafe {
            let database = raw::RedisModule_GetDbIdFromOptCtx.map_or(0, |database| database(key));
            let name = raw::RedisModule_GetKeyNameFromOptCtx.map(|name| name(key));
            (database, name.map(|name| Str::new(name.cast_mut())))
        };
        if let Some(key) = key {
            // SAFETY: the server passes a value of this type, unchanged during the call.
            unsafe { from_raw::<T>(value) }.unlinked(key, Some(database));
        }
    });
}

/// Up to 6.2.
unsafe extern "C" fn unlink<T: Value>(key: *mut raw::RedisModuleString, value: *const c_void) {
    guard("unlink", || {
        // SAFETY: the server passes a key and a value of this type, unchanged during the call.
        let (key, value) = unsafe { (Str::new(key), from_raw::<T>(value)) };
        value.unlinked(key, None);
    });
}

/// Since 7.0.
unsafe extern "C" fn copy2<T: Value>(
    key: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
) -> *mut c_void {
    guard("copy", || {
        // SAFETY: the server passes the key's context, the functions to read it exist where this
        // callback is called, and the value is of this type, unchanged during the call.
        let (name, database, value) = unsafe {
            let name = raw::RedisModule_GetKeyNameFromOptCtx.map(|name| name(key));
            let database = raw::RedisModule_GetDbIdFromOptCtx.map(|database| database(key));
            let name = Str::new(name.unwrap_or(ptr::null()).cast_mut());
            (name, database, from_raw::<T>(value))
        };
        to_server(Some(value.copied(name, database)))
    })
    .unwrap_or(ptr::null_mut())
}

/// Up to 6.2.
unsafe extern "C" fn copy<T: Value>(
    key: *mut raw::RedisModuleString,
    _: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    guard("copy", || {
        // SAFETY: the server passes a key and a value of this type, unchanged during the call.
        let (key, value) = unsafe { (Str::new(key), from_raw::<T>(value)) };
        to_server(Some(value.copied(key, None)))
    })
    .unwrap_or(ptr::null_mut())
}

/// An open key for values of one type.
pub(crate) struct OpenKey<T> {
    /// Absent for a missing key that was opened for reading, and once it is closed.
    handle: Option<NonNull<raw::RedisModuleKey>>,
    /// The value of the open key.
    value: Option<NonNull<T>>,
}

impl<T: Value> OpenKey<T> {
    /// Opens a key, and returns its database as well. What it holds is looked for by
    /// [`OpenKey::find`].
    pub(crate) fn open(ctx: Ctx<'_>, name: Str<'_>, mode: Mode) -> (OpenKey<T>, c_int) {
        // SAFETY: context and name are valid; the handle is closed by `close`.
        let handle =
            unsafe { api!(RedisModule_OpenKey)(ctx.as_ptr(), name.as_ptr(), mode.flags()) };
        // SAFETY: the handle is open, or null.
        let database = unsafe { ctx.database_of(handle.cast()) };
        let key = OpenKey {
            handle: NonNull::new(handle.cast()),
            value: None,
        };
        (key, database)
    }

    /// Finds the value, if the key has one.
    pub(crate) fn find(&mut self, data_type: &DataType<T>) -> Result<(), Error> {
        let Some(handle) = self.handle else {
            return Ok(());
        };
        let handle = handle.as_ptr();
        // SAFETY: the handle is open, and a value of this type comes from `into_raw`.
        unsafe {
            if api!(RedisModule_KeyType)(handle) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int {
                return Ok(());
            }
            if api!(RedisModule_ModuleTypeGetType)(handle) != data_type.raw() {
                return Err(Error::WrongType);
            }
            let value: *mut c_void = api!(RedisModule_ModuleTypeGetValue)(handle);
            self.value = NonNull::new(value.cast::<T>());
        }
        Ok(())
    }

    /// The value.
    pub(crate) fn value(&self) -> Option<&T> {
        // SAFETY: the open key keeps its value alive, which is changed or freed by `&mut self`
        // only.
        self.value.map(|value| unsafe { value.as_ref() })
    }

    /// The value, to be changed. The key must be open for writing.
    pub(crate) fn value_mut(&mut self) -> Option<&mut T> {
        // SAFETY: the open key keeps its value alive, and `&mut self` makes this the only
        // reference.
        self.value.map(|mut value| unsafe { value.as_mut() })
    }

    /// Where the value is in memory, by which it is known wherever it moves; 0 without one.
    pub(crate) fn address(&self) -> usize {
        self.value.map_or(0, |value| value.addr().get())
    }

    /// Gives a key that is open for writing and empty a value.
    pub(crate) fn insert(&mut self, data_type: &DataType<T>, value: T) {
        let Some(handle) = self.handle else { return };
        let value = into_raw(value);
        // SAFETY: the key is open; the server owns the value from now on.
        unsafe {
            let (handle, value) = (handle.as_ptr(), value.as_ptr().cast());
            api!(RedisModule_ModuleTypeSetValue)(handle, data_type.raw(), value);
        }
        self.value = Some(value);
    }

    /// Takes the time to live from a key that is open for writing and has a value.
    pub(crate) fn persist(&mut self) {
        const NO_EXPIRE: i64 = raw::REDISMODULE_NO_EXPIRE as i64;
        if let Some(handle) = self.handle {
            // SAFETY: the key is open for writing and holds a value.
            unsafe { api!(RedisModule_SetExpire)(handle.as_ptr(), NO_EXPIRE) };
        }
    }

    /// Removes the value of a key that is open for writing.
    pub(crate) fn delete(&mut self) {
        if let (Some(handle), Some(_)) = (self.handle, self.value.take()) {
            // SAFETY: the key is open, and no reference to the value is left.
            unsafe { api!(RedisModule_DeleteKey)(handle.as_ptr()) };
        }
    }

    /// As [`OpenKey::delete`], and leaves a large value to be freed in the background. Returns
    /// whether there was one.
    pub(crate) fn unlink(&mut self) -> bool {
        if let (Some(handle), Some(_)) = (self.handle, self.value.take()) {
            // SAFETY: the key is open, and no reference to the value is left.
            unsafe { api!(RedisModule_UnlinkKey)(handle.as_ptr()) };
            return true;
        }
        false
    }

    /// Closes the key, at which there is nothing to be seen any more.
    pub(crate) fn close(&mut self) {
        self.value = None;
        if let Some(handle) = self.handle.take() {
            // SAFETY: the handle is open and not used again.
            unsafe { api!(RedisModule_CloseKey)(handle.as_ptr()) };
        }
    }
}

impl<T> Drop for OpenKey<T> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // SAFETY: the handle is open and not used again.
            unsafe { api!(RedisModule_CloseKey)(handle.as_ptr()) };
        }
    }
}
