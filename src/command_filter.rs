//! The command filter, which sees each command before the server does.
//!
//! It is there only while somebody needs it, since it costs each command of every client some
//! nanoseconds.

use crate::ffi::{Ctx, Incoming, with_module_context};
use crate::{memory, migration};

/// Has commands be filtered from now on, or not, as the settings ask for it.
pub(crate) fn settings_changed(ctx: Ctx<'_>) {
    let is_needed = migration::rewrites_commands() || memory::needs_filter(ctx);
    ctx.filter_commands(is_needed.then_some(on_command));
}

fn on_command(command: &mut Incoming<'_>) {
    let Some(name) = command.get(0) else { return };
    match name.len() {
        // EVAL, EXEC and EVALSHA.
        4 | 7 if name[0].eq_ignore_ascii_case(&b'e') => {
            with_module_context(|ctx| memory::note(ctx, command));
            migration::rewrite_script(command);
        }
        // From HGET to SISMEMBER.
        4..=9 if matches!(name[0], b'h' | b'H' | b's' | b'S') => migration::rewrite_reader(command),
        _ => {}
    }
}
