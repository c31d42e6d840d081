//! Commands before the server looks at them.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use redis_module::raw;

use super::{Ctx, OwnedStr, Str, api, guard};

/// A command that the server is about to run, or to queue in a transaction.
///
/// Only replacing and deleting arguments is offered: up to 6.2 a script's call keeps the room of
/// its arguments, so that one that a filter made longer would overflow the next.
///
/// Replacing or deleting an argument may free it, so what was read must be done with before:
/// reading borrows, changing borrows mutably, and there is no second handle of the same command.
pub(crate) struct Incoming<'a> {
    raw: NonNull<raw::RedisModuleCommandFilterCtx>,
    callback: PhantomData<&'a mut ()>,
}

impl Incoming<'_> {
    fn as_ptr(&self) -> *mut raw::RedisModuleCommandFilterCtx {
        self.raw.as_ptr()
    }

    /// Arguments with the command's name.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: the server passes a valid structure for the length of this callback, here and
        // below.
        let len = unsafe { api!(RedisModule_CommandFilterArgsCount)(self.as_ptr()) };
        usize::try_from(len).unwrap_or(0)
    }

    /// The argument at `index`.
    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        let index = c_int::try_from(index).ok()?;
        // SAFETY: the server answers an index that it does not have with null, and an argument
        // lasts until it is replaced or deleted, for which the borrow must have ended.
        unsafe {
            let argument = api!(RedisModule_CommandFilterArgGet)(self.as_ptr(), index);
            (!argument.is_null()).then(|| Str::new(argument).bytes())
        }
    }

    /// Puts `text` instead of the first argument, the command's name.
    pub(crate) fn rename(&mut self, text: &OwnedStr) {
        let name = text.get().as_ptr();
        // SAFETY: the string is valid; the server gives up one reference to it later, which is
        // added here.
        unsafe {
            api!(RedisModule_RetainString)(ptr::null_mut(), name);
            api!(RedisModule_CommandFilterArgReplace)(self.as_ptr(), 0, name);
        }
    }

    /// Takes the argument at `index` out.
    pub(crate) fn delete(&mut self, index: c_int) {
        // SAFETY: the server refuses an index that it does not have.
        unsafe { api!(RedisModule_CommandFilterArgDelete)(self.as_ptr(), index) };
    }
}

/// What sees each command, and the server's handle of it.
type Filter = (fn(&mut Incoming<'_>), *mut raw::RedisModuleCommandFilter);

thread_local! {
    static FILTER: Cell<Option<Filter>> = const { Cell::new(None) };
}

impl Ctx<'_> {
    /// Has `filter` see each command from now on, those of this module's own calls excepted, or
    /// none any more.
    pub(crate) fn filter_commands(self, filter: Option<fn(&mut Incoming<'_>)>) {
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
    let Some(raw) = NonNull::new(command) else {
        return;
    };
    guard("a command's filter", || {
        if let Some((filter, _)) = FILTER.get() {
            filter(&mut Incoming {
                raw,
                callback: PhantomData,
            });
        }
    });
}
