//! Getting rid of hints, of which there may be very many.

use std::thread::Builder;

/// Hints that may be freed in the main thread at once.
const FREED_AT_ONCE: usize = 1000;

/// Frees hints, `count` of them. Many are freed in a thread, as the server does with what FLUSHALL ASYNC leaves behind.
pub(crate) fn free<T: Send + 'static>(hints: T, count: usize) {
    if count > FREED_AT_ONCE {
        free_by(Builder::new(), hints);
    }
}

fn free_by<T: Send + 'static>(thread: Builder, hints: T) {
    // Where no thread can be made, what it would have owned is dropped here and now.
    let _ = thread.spawn(move || drop(hints));
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
    fn hints_are_freed_in_a_thread_and_at_once_where_none_can_be_made() {
        let (sender, freed_in) = channel();
        free_by(Builder::new(), TellsWhere(sender.clone()));
        assert_ne!(freed_in.recv(), Ok(thread::current().id()));
        // No machine has room for this stack.
        free_by(Builder::new().stack_size(1 << 60), TellsWhere(sender));
        assert_eq!(freed_in.try_recv(), Ok(thread::current().id()));
    }
}
