//! The moment by which a command, a callback or the timer decides.

use seat_pool::Moment;

use crate::ffi::Ctx;

/// The present moment. All that decides about leases, tickets or grants goes by this one.
pub(crate) fn moment(ctx: Ctx<'_>) -> Moment {
    Moment::at(ctx.now_ms())
}
