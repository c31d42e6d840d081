//! Migration: a team moves from the Lua scripts to the pool while their callers, readers and data
//! go on.
//!
//! The scripts keep a pool in two legacy keys whose names they make from an argument. Three
//! settings let the two live side by side: listed scripts are carried out as commands of the module
//! ([`rewrite`]), what others put into the legacy keys is adopted by the next command that writes
//! to the pool ([`adoption`]), and readers of those keys are answered from the pool ([`view`]).
//!
//! Whatever writes to a pool opens it by [`open_for_write`], so that no decision is made without
//! the sessions in its legacy keys.

mod adoption;
mod entries;
mod export;
mod import;
mod invalid_entries;
mod legacy_keys;
mod names;
mod rewrite;
mod rights;
mod view;

pub(crate) use adoption::{Caller, open_as_known, open_for_write, remove_invalid};
pub(crate) use export::Export;
pub(crate) use import::Import;
pub(crate) use invalid_entries::InvalidEntries;
pub(crate) use legacy_keys::{
    databases_swapped, flushed, follow, forget_invalid, is_subscribed_to_keys,
};
pub(crate) use rewrite::{is_outdated, rewrite_reader, rewrite_script, rewrites_commands};
pub(crate) use view::View;

use crate::ffi::Ctx;

/// Makes what has to be made once, when the module is loaded.
pub(crate) fn register() {
    rewrite::make_names();
}

/// Has what the settings say take effect.
pub(crate) fn settings_changed(ctx: Ctx<'_>) {
    legacy_keys::settings_changed(ctx);
}
