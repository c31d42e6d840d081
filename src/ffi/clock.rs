//! The server's clock, and one that never steps.

use std::mem::MaybeUninit;

use super::{Ctx, api};

/// Which clock: on Linux it goes on while the machine is suspended, as leases do.
#[cfg(target_os = "linux")]
const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

impl Ctx<'_> {
    /// As [`server_ms`].
    pub(crate) fn now_ms(self) -> i64 {
        server_ms()
    }
}

/// The server's clock, in milliseconds of unix time. It moves inside MULTI and scripts, too.
pub(crate) fn server_ms() -> i64 {
    // SAFETY: the function has no conditions.
    unsafe { api!(RedisModule_Milliseconds)() }
}

/// Milliseconds since some moment in the past. Whoever sets the server's clock does not move this
/// one.
pub(crate) fn uptime_ms() -> i64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the pointer is to a structure of the right type, for which all zeros are a valid
    // value whatever the call does.
    let time = unsafe {
        libc::clock_gettime(CLOCK, time.as_mut_ptr());
        time.assume_init()
    };
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}
