//! Freeing what there may be very much of, without holding up the event loop.

use std::thread::Builder;

/// How many entries may be freed in the main thread at once.
const FREED_AT_ONCE: usize = 1000;

/// Frees a collection of `count` entries. Many are freed in a thread, as the server does with what
/// FLUSHALL ASYNC leaves behind.
pub(crate) fn free<T: Send + 'static>(entries: T, count: usize) {
    if count > FREED_AT_ONCE {
        free_by(Builder::new(), entries);
    }
}

fn free_by<T: Send + 'static>(thread: Builder, entries: T) {
    // Where no thread can be made, what it would have owned is dropped here and now.
    let _ = thread.spawn(move || drop(entries));
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{self, Builder, ThreadId};

    use super::free_by;

    struct TellsWhere(Sender<ThreadId>);

    impl Drop for TellsWhere {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).expect("a listener");
        }
    }

    #[test]
    fn entries_are_freed_at_once_where_no_thread_can_be_made() {
        let (sender, freed_in) = channel();
        free_by(Builder::new(), TellsWhere(sender.clone()));
        assert_ne!(freed_in.recv(), Ok(thread::current().id()));
        // No machine has room for this stack.
        free_by(Builder::new().stack_size(1 << 60), TellsWhere(sender));
        assert_eq!(freed_in.try_recv(), Ok(thread::current().id()));
    }
}
