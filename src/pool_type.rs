//! The data type `seat-pool`: what the server does with a pool as a value.

use std::ffi::c_int;
use std::ptr;

use seat_pool::{Claim, DecodeError, Decoder, Holder, Moment, Pool};

use crate::data_sets::is_second_loading;
use crate::effects::emit_to_aof;
use crate::ffi::{DataType, Digest, Io, OwnedStr, Str, Value, with_module_context};
use crate::{arrivals, deadlines, feed, queue, server, stats};

/// The version of the RDB encoding that is written. The layout within has a version of its own,
/// `seat_pool`'s.
const ENCODING_VERSION: i32 = 1;

/// The type, registered when the module is loaded.
pub(crate) static POOL_TYPE: DataType<Pool> = DataType::new("seat-pool", ENCODING_VERSION);

/// Nothing in a pool belongs to a thread.
impl Value for Pool {
    fn load(io: Io<'_>, version: c_int) -> Option<Pool> {
        if version > ENCODING_VERSION {
            io.log_error("a seat-pool of a newer version of the module");
            return None;
        }
        load(io)
            .inspect_err(|error| io.log_error(&format!("not a seat-pool: {error}")))
            .ok()
    }

    fn save(&self, io: Io<'_>) {
        if let Some(key) = io.key() {
            queue::value_saved(address(self), key.bytes());
        }
        for blob in self.encode() {
            io.save_blob(&blob);
        }
    }

    fn rewrite(&self, io: Io<'_>, key: Str<'_>) {
        // The key is an object on the server's stack, which 6.2 cannot keep in a command.
        let key = OwnedStr::new(key.bytes());
        for effect in self.rebuilding() {
            emit_to_aof(io, key.get(), &effect);
        }
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }

    /// Each persisted field of each session counts; the order of the sessions does not, since a
    /// reload may change it. The tickets count in their order. What a session has or asks for
    /// beyond a seat counts only where it does, so that other pools keep their digests.
    fn digest(&self, digest: Digest<'_>) {
        let optional = |value: Option<i64>| {
            digest.integer(value.is_some().into());
            digest.integer(value.unwrap_or_default());
        };
        digest.integer(self.seats());
        digest.end_sequence();
        for session in self.iter() {
            let lease = self.lease_of(session);
            digest.bytes(session.id());
            digest.bytes(session.metadata().unwrap_or_default());
            optional(session.acquired_at().map(i64::from));
            optional(session.last_heartbeat().map(i64::from));
            optional(session.heartbeat_count());
            optional(lease.map(|lease| lease.length_ms as i64));
            optional(lease.map(|lease| lease.deadline_ms));
            let holder = self.holder_of(session);
            if holder != Holder::PLAIN {
                digest.bytes(holder.owner.unwrap_or_default());
                digest.integer(holder.weight.into());
                optional(holder.token.map(|token| token as i64));
            }
            digest.end_sequence();
        }
        for ticket in self.all_tickets() {
            digest.bytes(ticket.session());
            digest.integer(ticket.waiting.since_ms);
            digest.integer(ticket.waiting.length_ms as i64);
            digest.integer(ticket.waiting.deadline_ms);
            digest.integer(self.figure_of(ticket));
            let claim = self.claim_of(ticket);
            if claim != Claim::PLAIN {
                // A word, so that no claim looks like another ticket.
                digest.bytes(b"claim");
                digest.bytes(claim.owner.unwrap_or_default());
                optional(claim.max_per_owner.map(|max| max as i64));
                digest.integer(claim.takeover.into());
                digest.integer(claim.weight.into());
            }
        }
        digest.end_sequence();
    }

    fn allocations(&self) -> usize {
        self.allocations().max(1)
    }

    fn copied(&self, key: Str<'_>, database: Option<c_int>) -> Pool {
        feed::copying(address(self), key.bytes());
        if let Some(database) = database {
            server::copies_from(database);
        }
        let copy = self.clone();
        stats::add_tickets(copy.tickets() as i64);
        copy
    }

    fn made(&self) {
        queue::value_made(address(self));
    }

    /// Whoever is blocked at the name is served under what comes after the value.
    fn unlinked(&self, key: Str<'_>, database: Option<c_int>) {
        let key = key.bytes();
        match database {
            Some(database) => deadlines::forget(database, key),
            None => with_module_context(|ctx| {
                deadlines::forget_somewhere(ctx, key, self.has_deadlines());
            }),
        }
        queue::value_left(address(self));
        if !self.is_empty() {
            queue::value_deleted(address(self), key);
            if feed::unlinked(address(self), key, database) {
                with_module_context(deadlines::run_soon);
            }
        }
        with_module_context(|ctx| queue::schedule_check(ctx, key));
    }

    fn freed(self) {
        stats::add_tickets(-(self.tickets() as i64));
    }
}

/// By which a pool is known wherever it moves.
fn address(pool: &Pool) -> usize {
    ptr::from_ref(pool).addr()
}

fn load(io: Io<'_>) -> Result<Pool, DecodeError> {
    let blob = || io.load_blob().ok_or(DecodeError::Malformed);
    let mut decoder = Decoder::new(blob()?.bytes())?;
    while decoder.wants_more() {
        decoder.batch(blob()?.bytes())?;
    }
    let pool = decoder.finish()?;
    stats::add_loaded_tickets(pool.tickets() as i64);
    if !is_second_loading() {
        arrivals::value_read();
    } else if let Some((database, key)) = io.database_and_key()
        && let Some(deadline_ms) = pool.earliest_deadline_ms(Moment::at(i64::MIN))
    {
        // No event can report it, since the key does not show yet.
        deadlines::note_loaded(database, key.bytes(), deadline_ms);
    }
    if let Some(arrival) = pool.last_arrival() {
        queue::note_arrival(arrival);
    }
    queue::note_token(pool.last_token());
    Ok(pool)
}
