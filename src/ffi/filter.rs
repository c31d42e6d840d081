//! Commands before the server looks at them.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;

use redis_module::raw;

use super::{Ctx, OwnedStr, Str, api, guard};

/// A command that the server is about to run, or to queue in a transaction.
///
/// Only replacing and deleting arguments is offered: up to 6.2 a script's call keeps the room of its arguments, so that one that
/// a filter made longer would overflow the next.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    raw: &'a raw::RedisModuleCommandFilterCtx,
}

impl<'a> Incoming<'a> {
    fn as_ptr(self) -> *mut raw::RedisModuleCommandFilterCtx {
        ptr::from_ref(self.raw).cast_mut()
    }

    /// Arguments with the command's name.
    pub(crate) fn len(self) -> usize {
        // SAFETY: the server passes a valid structure for the length of this callback, here and below.
        let len = unsafe { api!(RedisModule_CommandFilterArgsCount)(self.as_ptr()) };
        usize::try_from(len).unwrap_or(0)
    }

    /// The argument at `index`, valid until it is replaced or deleted.
    pub(crate) fn get(self, index: usize) -> Option<&'a [u8]> {
        let index = c_int::try_from(index).ok()?;
        // SAFETY: the server answers an index that it does not have with null.
        unsafe {
            let argument = api!(RedisModule_CommandFilterArgGet)(self.as_ptr(), index);
            (!argument.is_null()).then(|| Str::new(argument).bytes())
        }
    }

    /// Puts `text` in the place of the first argument, the command's name.
    pub(crate) fn rename(self, text: &OwnedStr) {
        let name = text.get().as_ptr();
        // SAFETY: the string is valid; the server gives up one reference to it later, which is added here.
        unsafe {
            api!(RedisModule_RetainString)(ptr::null_mut(), name);
            api!(RedisModule_CommandFilterArgReplace)(self.as_ptr(), 0, name);
        }
    }

    /// Takes the argument at `index` out.
    pub(crate) fn delete(self, index: c_int) {
        // SAFETY: the server refuses an index that it does not have.
        unsafe { api!(RedisModule_CommandFilterArgDelete)(self.as_ptr(), index) };
    }
}

/// What sees each command, and the server's handle of it.
type Filter = (fn(Incoming<'_>), *mut raw::RedisModuleCommandFilter);

thread_local! {
    static FILTER: Cell<Option<Filter>> = const { Cell::new(None) };
}

impl Ctx<'_> {
    /// Has `filter` see each command from now on, those of this module's own calls excepted, or none any more.
    pub(crate) fn filter_commands(self, filter: Option<fn(Incoming<'_>)>) {
        match (FILTER.get(), filter) {
            (None, Some(filter)) => {
                let flags = raw::REDISMODULE_CMDFILTER_NOSELF as c_int;
                // SAFETY: the context is valid, and the callback has the right type.
                let handle = unsafe {
                    api!(RedisModule_RegisterCommandFilter)(self.as_ptr(), Some(on_command), flags)
                };
                FILTER.set(Some((filter, handle)));
            }
            (Some((_, handle)), None) => {
                FILTER.set(None);
                // SAFETY: the handle is that of the registered filter, and is forgotten.
                unsafe { api!(RedisModule_UnregisterCommandFilter)(self.as_ptr(), handle) };
            }
            _ => {}
        }
    }
}

unsafe extern "C" fn on_command(command: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: the server passes a valid structure for the length of this callback.
    let raw = unsafe { &*command };
    let incoming = Incoming { raw };
    guard("a command's filter", || {
        if let Some((filter, _)) = FILTER.get() {
            filter(incoming);
        }
    });
}
