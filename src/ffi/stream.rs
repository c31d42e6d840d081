//! Streams: appending an entry, and trimming.

use std::ffi::{c_int, c_longlong};
use std::io;
use std::ptr::NonNull;

use redis_module::raw;

use super::{Ctx, Mode, Str, api};
use crate::error::Error;

/// The id of an entry. Ids are ordered as entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId {
    pub(crate) ms: u64,
    pub(crate) seq: u64,
}

/// Why an entry was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendError {
    /// The stream has an entry of this id or of a higher one, or had one.
    IdTooLow,
    /// The stream has reached the last of all ids.
    Full,
}

const OK: c_int = raw::Status::Ok as c_int;

/// A key that is open to be appended to, and holds a stream or nothing.
pub(crate) struct OpenStream {
    handle: NonNull<raw::RedisModuleKey>,
}

impl OpenStream {
    /// Opens a key of the selected database. That does not count as a use of it. An error if it
    /// holds another type.
    pub(crate) fn open(ctx: Ctx<'_>, key: Str<'_>) -> Result<OpenStream, Error> {
        let flags = Mode::Tend.flags();
        // SAFETY: context and key are valid.
        let handle = unsafe { api!(RedisModule_OpenKey)(ctx.as_ptr(), key.as_ptr(), flags) };
        let handle = NonNull::new(handle.cast()).ok_or(Error::Internal)?;
        let stream = OpenStream { handle };
        // SAFETY: the key is open.
        let kind = unsafe { api!(RedisModule_KeyType)(stream.handle.as_ptr()) } as isize;
        match [
            raw::REDISMODULE_KEYTYPE_EMPTY,
            raw::REDISMODULE_KEYTYPE_STREAM,
        ]
        .contains(&kind)
        {
            true => Ok(stream),
            false => Err(Error::WrongType),
        }
    }

    /// Appends an entry of this id. `fields` are names and values in turn. A missing stream is
    /// created. Who waits for entries is served once the key is closed. O(1).
    pub(crate) fn append(&mut self, id: EntryId, fields: &[Str<'_>]) -> Result<(), AppendError> {
        self.add(0, id, fields).map(|_| ())
    }

    /// As [`OpenStream::append`], with an id that is above all others and no less than the clock's,
    /// which is returned.
    pub(crate) fn append_next(&mut self, fields: &[Str<'_>]) -> Result<EntryId, AppendError> {
        let id = EntryId { ms: 0, seq: 0 };
        self.add(raw::REDISMODULE_STREAM_ADD_AUTOID as c_int, id, fields)
    }

    fn add(
        &mut self,
        flags: c_int,
        id: EntryId,
        fields: &[Str<'_>],
    ) -> Result<EntryId, AppendError> {
        let mut id = raw::RedisModuleStreamID {
            ms: id.ms,
            seq: id.seq,
        };
        // SAFETY: the key is open for writing, and holds a stream or nothing. A `Str` is a pointer
        // to a string, of which there are two a field; the server copies what it keeps.
        let status = unsafe {
            api!(RedisModule_StreamAdd)(
                self.handle.as_ptr(),
                flags,
                &raw mut id,
                fields.as_ptr().cast_mut().cast(),
                fields.len() as i64 / 2,
            )
        };
        if status == OK {
            return Ok(EntryId {
                ms: id.ms,
                seq: id.seq,
            });
        }
        Err(match io::Error::last_os_error().raw_os_error() {
            Some(libc::EDOM) => AppendError::IdTooLow,
            _ => AppendError::Full,
        })
    }

    /// How long the key has still to live, in milliseconds, if that is limited. O(1).
    pub(crate) fn time_left_ms(&self) -> Option<i64> {
        // SAFETY: the key is open.
        let kind = unsafe { api!(RedisModule_KeyType)(self.handle.as_ptr()) } as isize;
        if kind == raw::REDISMODULE_KEYTYPE_EMPTY {
            // 8.2 crashes if it is asked here.
            return None;
        }
        // SAFETY: the key is open and holds a value.
        let left_ms = unsafe { api!(RedisModule_GetExpire)(self.handle.as_ptr()) };
        (left_ms != raw::REDISMODULE_NO_EXPIRE as i64).then_some(left_ms)
    }

    /// The number of entries. O(1).
    pub(crate) fn len(&self) -> usize {
        // SAFETY: the key is open.
        unsafe { api!(RedisModule_ValueLength)(self.handle.as_ptr()) }
    }

    /// Removes the oldest entries until there are `len`, and returns whether there were more. O(1)
    /// an entry that is removed, and O(1) for the node in which the last of them was.
    pub(crate) fn trim(&mut self, len: usize) -> bool {
        if self.len() <= len {
            return false;
        }
        let len = c_longlong::try_from(len).unwrap_or(c_longlong::MAX);
        // SAFETY: the key is open for writing and holds a stream, since it has entries.
        unsafe { api!(RedisModule_StreamTrimByLength)(self.handle.as_ptr(), 0, len) > 0 }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        // SAFETY: the handle is open and not used again.
        unsafe { api!(RedisModule_CloseKey)(self.handle.as_ptr()) };
    }
}
