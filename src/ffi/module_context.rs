//! A context of the module's own, for callbacks that come without one.

use std::cell::Cell;
use std::ptr;

use redis_module::raw;

use super::{Ctx, api};

thread_local! {
    /// Null until the context is made. It belongs to the main thread.
    static MODULE_CONTEXT: Cell<*mut raw::RedisModuleCtx> = const { Cell::new(ptr::null_mut()) };
}

impl Ctx<'_> {
    /// Makes the module's own context, which lasts for ever.
    pub(crate) fn make_module_context(self) {
        // SAFETY: the context is valid.
        let context = unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(self.as_ptr()) };
        MODULE_CONTEXT.set(context);
    }
}

/// Runs `body` with the module's own context, or not at all before that is made.
pub(crate) fn with_module_context(body: impl FnOnce(Ctx<'_>)) {
    let context = MODULE_CONTEXT.get();
    if !context.is_null() {
        // SAFETY: the context was made at load and lasts as long as the module.
        body(unsafe { Ctx::new(context) });
    }
}
