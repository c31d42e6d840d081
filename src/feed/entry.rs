//! An entry of the feed: its fields, and the form in which it travels in an effect.

use seat_pool::Claim;
use smallvec::SmallVec;

use super::node;
use crate::config;
use crate::ffi::{Ctx, EntryId, OwnedStr, Str};
use crate::text::Sent;

/// A word that entries are made of: made once, since each entry has several.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$word_doc])* $word,)*
        }

        impl $name {
            fn text(self) -> &'static [u8] {
                match self {
                    $($name::$word => $text,)*
                }
            }

            /// The word as a string of the server's.
            pub(super) fn get(self) -> Str<'static> {
                thread_local! {
                    static WORDS: Vec<Str<'static>> = [$($name::$word),*]
                        .map(|word| OwnedStr::new(word.text()).leak())
                        .into();
                }
                WORDS.with(|words| words[self as usize])
            }
        }
    };
}

words! {
    /// What an entry is about.
    Event {
        /// A session was granted its seats.
        Acquired = b"acquired",
        /// A session gave its seats back.
        Released = b"released",
        /// The lease of a session expired, or it was silent for too long.
        Expired = b"expired",
        /// Somebody with the right to do so took a session's seats away.
        Revoked = b"revoked",
        /// Another session of its owner has taken a session's place.
        Replaced = b"replaced",
        /// A session left the queue, since its owner had reached its limit when its turn came.
        OwnerLimit = b"owner_limit",
        /// A session joined the queue.
        Queued = b"queued",
        /// A session left the queue without a seat.
        Left = b"left",
        /// The limit is another.
        Resized = b"resized",
        /// A session was adopted from the legacy keys.
        Imported = b"imported",
        /// The pool was given back to the legacy keys.
        Exported = b"exported",
        /// The pool came from another name.
        Renamed = b"renamed",
        /// A copy of another pool, or one that was restored or moved, came under the name.
        Copied = b"copied",
        /// The pool went by other means than its sessions' ends.
        Dropped = b"dropped",
        /// A call was refused: the one event of the denial feed.
        Denied = b"denied",
    }
}

words! {
    /// A field of an entry.
    Field {
        Event = b"event",
        Pool = b"pool",
        Session = b"session",
        Node = b"node",
        Used = b"used",
        Seats = b"seats",
        Owner = b"owner",
        Weight = b"weight",
        Metadata = b"metadata",
        HeldS = b"held_s",
        Heartbeats = b"heartbeats",
        WaitedMs = b"waited_ms",
        LeaseMs = b"lease_ms",
        DeadlineMs = b"deadline_ms",
        ReplacedBy = b"replaced_by",
        From = b"from",
        User = b"user",
        Reason = b"reason",
        Held = b"held",
        Max = b"max",
    }
}

/// An entry that is being made.
pub(crate) struct Entry<'a> {
    pool: Str<'a>,
    fields: Vec<(Field, Sent<'a>)>,
}

/// More fields than most entries have.
const USUAL_FIELDS: usize = 12;

impl<'a> Entry<'a> {
    /// One about a session, or about the pool itself. `used` are the seats that are taken then, and
    /// `seats` is the limit, where it is known.
    pub(crate) fn new(
        ctx: Ctx<'_>,
        event: Event,
        pool: Str<'a>,
        session: Option<Sent<'a>>,
        used: u64,
        seats: Option<i64>,
    ) -> Entry<'a> {
        let mut fields = Vec::with_capacity(USUAL_FIELDS);
        fields.push((Field::Event, Sent::Known(event.get())));
        fields.push((Field::Pool, Sent::Known(pool)));
        fields.extend(session.map(|session| (Field::Session, session)));
        fields.push((Field::Node, Sent::Known(node(ctx))));
        let mut entry = Entry { pool, fields };
        entry.add_number(Field::Used, used);
        if let Some(seats) = seats {
            entry.add_number(Field::Seats, seats);
        }
        entry
    }

    /// Whether it is about the pool of this name, even if there is none.
    pub(super) fn is_about(&self, name: Str<'_>) -> bool {
        self.pool.bytes() == name.bytes()
    }

    /// Adds a field.
    pub(crate) fn add(&mut self, field: Field, value: Sent<'a>) {
        self.fields.push((field, value));
    }

    /// Adds a field with a number.
    pub(crate) fn add_number(&mut self, field: Field, number: impl itoa::Integer) {
        self.add(field, Sent::number(number));
    }

    /// Adds the owner and the weight, where they are not those of a plain session.
    pub(crate) fn add_holder(&mut self, owner: Option<Sent<'a>>, weight: u32) {
        if let Some(owner) = owner {
            self.add(Field::Owner, owner);
        }
        if weight != Claim::PLAIN.weight {
            self.add_number(Field::Weight, weight);
        }
    }

    /// Adds how long a session has waited.
    pub(crate) fn add_wait(&mut self, now_ms: i64, since_ms: i64) {
        self.add_number(Field::WaitedMs, now_ms.saturating_sub(since_ms).max(0));
    }

    /// Adds the user, where there is one.
    pub(crate) fn add_user(&mut self, user: Option<&'a OwnedStr>) {
        if let Some(user) = user {
            self.add(Field::User, Sent::Known(user.get()));
        }
    }

    /// Names and values in turn, as a stream takes them.
    pub(super) fn strings(&self) -> SmallVec<[Str<'_>; 2 * USUAL_FIELDS]> {
        let mut strings = SmallVec::new();
        for (field, value) in &self.fields {
            strings.push(field.get());
            strings.push(value.get());
        }
        strings
    }

    /// The form in which the entry travels, see [`Travelling`].
    pub(super) fn travelling(&self, id: EntryId, keep: usize, stream: &[u8]) -> OwnedStr {
        let mut form = Form::new(id, keep);
        form.add(stream);
        for (field, value) in &self.fields {
            form.add(field.text());
            form.add(value.get().bytes());
        }
        OwnedStr::new(&form.text)
    }
}

/// A form in which an entry travels, as it is written.
struct Form {
    text: Vec<u8>,
    digits: itoa::Buffer,
}

impl Form {
    /// Most are shorter.
    const CAPACITY: usize = 384;

    fn new(id: EntryId, keep: usize) -> Form {
        let mut form = Form {
            text: Vec::with_capacity(Form::CAPACITY),
            digits: itoa::Buffer::new(),
        };
        for number in [id.ms, id.seq, keep as u64] {
            let digits = form.digits.format(number);
            form.text.extend_from_slice(digits.as_bytes());
            form.text.push(b' ');
        }
        form
    }

    fn add(&mut self, string: &[u8]) {
        let digits = self.digits.format(string.len());
        self.text.extend_from_slice(digits.as_bytes());
        self.text.push(b':');
        self.text.extend_from_slice(string);
    }
}

/// Whether the entries of grants have the sessions' metadata.
pub(crate) fn has_metadata() -> bool {
    config::FEED_METADATA.get()
}

/// An entry as it travels: `ms seq keep ` and then the stream's name and the fields' names and
/// values, each as its length, a colon and its bytes.
///
/// So whoever follows appends the same entry, and trims as far, whatever its own settings say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Travelling<'a> {
    pub(super) id: EntryId,
    /// How many entries stay in the stream.
    pub(super) keep: usize,
    pub(super) stream: &'a [u8],
    /// Names and values in turn.
    pub(super) fields: Vec<&'a [u8]>,
}

impl<'a> Travelling<'a> {
    /// Reads it back. `None` if it is not such a form.
    pub(crate) fn read(text: &'a [u8]) -> Option<Travelling<'a>> {
        let mut rest = text;
        let ms = take_number(&mut rest, b' ')?;
        let seq = take_number(&mut rest, b' ')?;
        let keep = take_number(&mut rest, b' ')?;
        let stream = take_string(&mut rest)?;
        let mut fields = Vec::with_capacity(2 * USUAL_FIELDS);
        while !rest.is_empty() {
            fields.push(take_string(&mut rest)?);
        }
        let is_whole = !stream.is_empty() && !fields.is_empty() && fields.len().is_multiple_of(2);
        is_whole.then_some(Travelling {
            id: EntryId { ms, seq },
            keep: usize::try_from(keep).ok()?,
            stream,
            fields,
        })
    }
}

/// A number in its one form, and what ends it.
fn take_number(rest: &mut &[u8], end: u8) -> Option<u64> {
    let at = rest.iter().position(|&byte| byte == end)?;
    let text = std::str::from_utf8(&rest[..at]).ok()?;
    let number: u64 = text.parse().ok()?;
    let is_strict = itoa::Buffer::new().format(number) == text;
    *rest = &rest[at + 1..];
    is_strict.then_some(number)
}

fn take_string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_number(rest, b':')?).ok()?;
    let (string, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(string)
}

#[cfg(test)]
mod tests {
    use super::{EntryId, Travelling};

    #[test]
    fn only_the_form_that_is_written_is_read() {
        let form = b"17 0 3 4:feed5:event8:acquired4:pool3:a:b";
        let read = Travelling::read(form).expect("it is the form");
        assert_eq!(read.id, EntryId { ms: 17, seq: 0 });
        assert_eq!((read.keep, read.stream), (3, &b"feed"[..]));
        assert_eq!(read.fields, [&b"event"[..], b"acquired", b"pool", b"a:b"]);
        for other in [
            &b""[..],
            b"17 0 3 ",
            b"17 0 3 4:feed",
            b"17 0 3 4:feed5:event",
            b"17 0 3 0:5:event8:acquired",
            b"17 0 3 4:feed5:event9:acquired",
            b"17 0 3 4:feed5:event08:acquired",
            b"17 0 3 4:feed5:event8:acquired4",
            b"017 0 3 4:feed5:event8:acquired",
            b"-1 0 3 4:feed5:event8:acquired",
            b"17 0 3 4:feed5:event18446744073709551616:acquired",
            b"18446744073709551616 0 3 4:feed5:event8:acquired",
        ] {
            assert_eq!(Travelling::read(other), None, "{other:?}");
        }
    }
}
