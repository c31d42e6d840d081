//! The module's settings: arguments of `loadmodule` on every server, and `CONFIG GET|SET seat.*` since Redis 7.0.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use redis_module::raw;
use seat_pool::{MAX_METADATA_BYTES, MAX_SESSION_BYTES};

use crate::ffi::{Args, Ctx};

/// The longest metadata that a caller may send, in bytes.
pub(crate) static MAX_METADATA: Number = Number {
    name: c"max-metadata-bytes",
    least: 2,
    most: MAX_METADATA_BYTES as i64,
    value: AtomicI64::new(16_384),
};

/// The longest session id that a caller may send, in bytes.
pub(crate) static MAX_SESSION: Number = Number {
    name: c"max-session-bytes",
    least: 1,
    most: MAX_SESSION_BYTES as i64,
    value: AtomicI64::new(1024),
};

/// How many may wait for a pool's seats.
pub(crate) static MAX_QUEUE_LENGTH: Number = Number {
    name: c"max-queue-length",
    least: 0,
    most: 10_000_000,
    value: AtomicI64::new(100_000),
};

/// The longest that a ticket may be valid after a poll, in milliseconds.
pub(crate) static MAX_QUEUE_MS: Number = Number {
    name: c"max-queue-ms",
    least: 1,
    most: 1 << 52,
    value: AtomicI64::new(86_400_000),
};

/// Whether clients may send internal commands, to pipe an AOF by hand.
pub(crate) static ALLOW_EFFECTS: Switch = Switch {
    name: c"allow-effects",
    value: AtomicBool::new(false),
};

static NUMBERS: [&Number; 4] = [
    &MAX_METADATA,
    &MAX_SESSION,
    &MAX_QUEUE_LENGTH,
    &MAX_QUEUE_MS,
];
static SWITCHES: [&Switch; 1] = [&ALLOW_EFFECTS];

/// A setting with a whole number.
pub(crate) struct Number {
    name: &'static CStr,
    least: i64,
    most: i64,
    value: AtomicI64,
}

impl Number {
    pub(crate) fn get(&self) -> usize {
        usize::try_from(self.value.load(Relaxed)).unwrap_or(0)
    }
}

/// A setting that is `yes` or `no`.
pub(crate) struct Switch {
    name: &'static CStr,
    value: AtomicBool,
}

impl Switch {
    pub(crate) fn get(&self) -> bool {
        self.value.load(Relaxed)
    }
}

/// Takes the arguments of `loadmodule`, which become the defaults, and registers the settings where the server has such.
pub(crate) fn init(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), String> {
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let name = String::from_utf8_lossy(name.bytes()).to_ascii_lowercase();
        let value = args
            .next()
            .ok_or_else(|| format!("argument {name} of loadmodule lacks a value"))?;
        set(&name, &String::from_utf8_lossy(value.bytes()))?;
    }
    register(ctx)
}

fn set(name: &str, value: &str) -> Result<(), String> {
    let name = name.strip_prefix("seat.").unwrap_or(name);
    let is_named = |known: &CStr| known.to_bytes() == name.as_bytes();
    if let Some(number) = NUMBERS.iter().find(|number| is_named(number.name)) {
        let (least, most) = (number.least, number.most);
        let parsed = value.parse::<i64>().ok();
        let parsed = parsed
            .filter(|value| (least..=most).contains(value))
            .ok_or_else(|| format!("argument {name} of loadmodule must be in {least}..{most}"))?;
        number.value.store(parsed, Relaxed);
    } else if let Some(switch) = SWITCHES.iter().find(|switch| is_named(switch.name)) {
        let parsed = match value.to_ascii_lowercase().as_str() {
            "yes" => true,
            "no" => false,
            _ => return Err(format!("argument {name} of loadmodule must be yes or no")),
        };
        switch.value.store(parsed, Relaxed);
    } else {
        return Err(format!("loadmodule has no argument {name}"));
    }
    Ok(())
}

fn register(ctx: Ctx<'_>) -> Result<(), String> {
    const OK: c_int = raw::Status::Ok as c_int;
    // SAFETY: the statics are set once before the module is loaded; servers before 7.0 lack the functions.
    let (Some(register_number), Some(register_switch), Some(load)) = (unsafe {
        (
            raw::RedisModule_RegisterNumericConfig,
            raw::RedisModule_RegisterBoolConfig,
            raw::RedisModule_LoadConfigs,
        )
    }) else {
        return Ok(());
    };
    let refused = |name: &CStr| format!("cannot register the setting {}", name.to_string_lossy());
    for number in NUMBERS {
        // SAFETY: the context is valid, the callbacks fit their types, and the data is a static of the type that they expect.
        let status = unsafe {
            register_number(
                ctx.as_ptr(),
                number.name.as_ptr(),
                number.value.load(Relaxed),
                raw::REDISMODULE_CONFIG_DEFAULT,
                number.least,
                number.most,
                Some(get_number),
                Some(set_number),
                None,
                std::ptr::from_ref(number).cast_mut().cast(),
            )
        };
        if status != OK {
            return Err(refused(number.name));
        }
    }
    for switch in SWITCHES {
        // SAFETY: as above.
        let status = unsafe {
            register_switch(
                ctx.as_ptr(),
                switch.name.as_ptr(),
                switch.get().into(),
                raw::REDISMODULE_CONFIG_DEFAULT,
                Some(get_switch),
                Some(set_switch),
                None,
                std::ptr::from_ref(switch).cast_mut().cast(),
            )
        };
        if status != OK {
            return Err(refused(switch.name));
        }
    }
    // SAFETY: the context is valid, and all settings are registered.
    if unsafe { load(ctx.as_ptr()) } != OK {
        return Err("the configuration has a bad seat.* setting".into());
    }
    Ok(())
}

unsafe extern "C" fn get_number(_: *const c_char, data: *mut c_void) -> c_longlong {
    // SAFETY: `register` passed a static of this type.
    let number = unsafe { &*data.cast::<Number>() };
    number.value.load(Relaxed)
}

unsafe extern "C" fn set_number(
    _: *const c_char,
    value: c_longlong,
    data: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: `register` passed a static of this type. The server has checked the range.
    let number = unsafe { &*data.cast::<Number>() };
    number.value.store(value, Relaxed);
    raw::Status::Ok as c_int
}

unsafe extern "C" fn get_switch(_: *const c_char, data: *mut c_void) -> c_int {
    // SAFETY: `register` passed a static of this type.
    let switch = unsafe { &*data.cast::<Switch>() };
    switch.get().into()
}

unsafe extern "C" fn set_switch(
    _: *const c_char,
    value: c_int,
    data: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: `register` passed a static of this type.
    let switch = unsafe { &*data.cast::<Switch>() };
    switch.value.store(value != 0, Relaxed);
    raw::Status::Ok as c_int
}

/// All settings with their values, for the log.
pub(crate) fn describe() -> String {
    let numbers = NUMBERS
        .iter()
        .map(|number| (number.name, number.get().to_string()));
    let switches = SWITCHES.iter().map(|switch| {
        let value = if switch.get() { "yes" } else { "no" };
        (switch.name, value.to_owned())
    });
    let all = numbers.chain(switches);
    all.map(|(name, value)| format!("{} {value}", name.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(", ")
}
