//! Settings that `CONFIG GET` shows and `CONFIG SET` changes, since Redis 7.0.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use redis_module::raw;

use super::callback::only;
use super::{Ctx, OwnedStr, Str, guard};

const OK: c_int = raw::Status::Ok as c_int;

/// A setting whose value is a text.
pub(crate) trait TextSetting: Sync {
    /// The value.
    fn text(&self) -> String;

    /// Takes another value over, or says what is wrong with it.
    fn set_text(&self, text: &str) -> Result<(), String>;

    /// Says what is wrong with the value beside those of other settings, once all are set that are
    /// set together. The server then puts the old ones back.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Ctx<'_> {
    /// Whether the server lets a module have settings.
    pub(crate) fn has_settings(self) -> bool {
        // SAFETY: the statics are set once before the module is loaded.
        unsafe { raw::RedisModule_RegisterNumericConfig }.is_some()
    }

    /// Adds a setting whose value, the default at first, is a number of a range. Returns whether
    /// the server has taken it.
    pub(crate) fn add_number(
        self,
        name: &'static CStr,
        least: i64,
        most: i64,
        value: &'static AtomicI64,
    ) -> bool {
        // SAFETY: the context is valid, the callbacks fit their types, and the data is a static of
        // the type that they expect. The function is absent before 7.0.
        let status = unsafe {
            raw::RedisModule_RegisterNumericConfig.map(|register| {
                register(
                    self.as_ptr(),
                    name.as_ptr(),
                    value.load(Relaxed),
                    raw::REDISMODULE_CONFIG_DEFAULT,
                    least,
                    most,
                    Some(get_number),
                    Some(set_number),
                    None,
                    ptr::from_ref(value).cast_mut().cast(),
                )
            })
        };
        status == Some(OK)
    }

    /// Adds a setting that is `yes` or `no`, with its default; `on_change` runs whenever it is set.
    /// Returns whether the server has taken it.
    pub(crate) fn add_switch<F: Fn() + Copy>(
        self,
        name: &'static CStr,
        value: &'static AtomicBool,
        _on_change: F,
    ) -> bool {
        // SAFETY: as above.
        let status = unsafe {
            raw::RedisModule_RegisterBoolConfig.map(|register| {
                register(
                    self.as_ptr(),
                    name.as_ptr(),
                    value.load(Relaxed).into(),
                    raw::REDISMODULE_CONFIG_DEFAULT,
                    Some(get_switch),
                    Some(set_switch::<F>),
                    None,
                    ptr::from_ref(value).cast_mut().cast(),
                )
            })
        };
        status == Some(OK)
    }

    /// Adds a setting that is a text, with its default. Returns whether the server has taken it.
    pub(crate) fn add_text<T: TextSetting>(self, name: &'static CStr, setting: &'static T) -> bool {
        let default = CString::new(setting.text()).unwrap_or_default();
        // SAFETY: as above; the server copies the default.
        let status = unsafe {
            raw::RedisModule_RegisterStringConfig.map(|register| {
                register(
                    self.as_ptr(),
                    name.as_ptr(),
                    default.as_ptr(),
                    raw::REDISMODULE_CONFIG_DEFAULT,
                    Some(get_text::<T>),
                    Some(set_text::<T>),
                    Some(check_text::<T>),
                    ptr::from_ref(setting).cast_mut().cast(),
                )
            })
        };
        status == Some(OK)
    }

    /// Has the settings that were added be what the configuration says. Returns whether it is
    /// right.
    pub(crate) fn load_settings(self) -> bool {
        // SAFETY: the context is valid, and the function is absent before 7.0.
        let status = unsafe { raw::RedisModule_LoadConfigs.map(|load| load(self.as_ptr())) };
        status == Some(OK)
    }
}

unsafe extern "C" fn get_number(_: *const c_char, value: *mut c_void) -> c_longlong {
    // SAFETY: `add_number` passed a static of this type.
    let value = unsafe { &*value.cast::<AtomicI64>() };
    value.load(Relaxed)
}

/// The server has checked the range.
unsafe extern "C" fn set_number(
    _: *const c_char,
    number: c_longlong,
    value: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: `add_number` passed a static of this type.
    let value = unsafe { &*value.cast::<AtomicI64>() };
    value.store(number, Relaxed);
    OK
}

unsafe extern "C" fn get_switch(_: *const c_char, value: *mut c_void) -> c_int {
    // SAFETY: `add_switch` passed a static of this type.
    let value = unsafe { &*value.cast::<AtomicBool>() };
    value.load(Relaxed).into()
}

unsafe extern "C" fn set_switch<F: Fn() + Copy>(
    _: *const c_char,
    is_on: c_int,
    value: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: `add_switch` passed a static of this type.
    let value = unsafe { &*value.cast::<AtomicBool>() };
    value.store(is_on != 0, Relaxed);
    // SAFETY: `add_switch` was given such a value.
    guard("a setting", || unsafe { only::<F>() }());
    OK
}

thread_local! {
    /// The text that the server was last given of a setting: it stays the module's.
    static SHOWN: RefCell<Option<OwnedStr>> = const { RefCell::new(None) };
}

unsafe extern "C" fn get_text<T: TextSetting>(
    _: *const c_char,
    setting: *mut c_void,
) -> *mut raw::RedisModuleString {
    guard("a setting", || {
        // SAFETY: `add_text` passed a static of this type.
        let setting = unsafe { &*setting.cast::<T>() };
        let shown = OwnedStr::new(setting.text().as_bytes());
        let text = shown.get().as_ptr();
        SHOWN.set(Some(shown));
        text
    })
    .unwrap_or(ptr::null_mut())
}

unsafe extern "C" fn set_text<T: TextSetting>(
    _: *const c_char,
    text: *mut raw::RedisModuleString,
    setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let outcome = guard("a setting", || {
        // SAFETY: `add_text` passed a static of this type, and the server passes a string.
        let (setting, text) = unsafe { (&*setting.cast::<T>(), Str::new(text)) };
        let text = str::from_utf8(text.bytes()).map_err(|_| "must be UTF-8")?;
        setting.set_text(text)
    });
    // SAFETY: the server passes a place for the error.
    unsafe { answer(outcome, error) }
}

unsafe extern "C" fn check_text<T: TextSetting>(
    _: *mut raw::RedisModuleCtx,
    setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: `add_text` passed a static of this type.
    let outcome = guard("a setting", || unsafe { &*setting.cast::<T>() }.check());
    // SAFETY: the server passes a place for the error.
    unsafe { answer(outcome, error) }
}

/// # Safety
/// `error` must be a place for a string, which whoever reads it frees.
unsafe fn answer(
    outcome: Option<Result<(), String>>,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    match outcome {
        Some(Ok(())) => OK,
        Some(Err(why)) => {
            // SAFETY: by this function's contract.
            unsafe { *error = OwnedStr::new(why.as_bytes()).into_raw() };
            raw::Status::Err as c_int
        }
        None => raw::Status::Err as c_int,
    }
}
