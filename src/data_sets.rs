//! What is kept outside the key space: of the data set that is shown, and of a second one.
//!
//! A replica that loads its primary's data set with `repl-diskless-load swapdb` has two data sets
//! meanwhile. Which of them is shown in the end depends on whether the load succeeds; see
//! [`crate::events`].

use std::cell::Cell;
use std::mem;

thread_local! {
    /// Whether the data set that is being loaded is not the one that is shown. It belongs to the
    /// main thread.
    static IS_SECOND_LOADING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the data set that is being loaded is not the one that is shown.
pub(crate) fn is_second_loading() -> bool {
    IS_SECOND_LOADING.get()
}

/// Notes that the load of a data set that is not shown begins, or is over.
pub(crate) fn set_second_loading(is_loading: bool) {
    IS_SECOND_LOADING.set(is_loading);
}

/// What happens to the second data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    /// It is made, empty, to be loaded while the old one is shown: 7.0 and later.
    Made,
    /// It is the old one, set aside while another is loaded and shown: 6.2.
    SetAside,
    /// It replaces the one that is shown, which goes.
    Shown,
    /// It goes.
    Dropped,
}

/// A `T` for each data set that there is.
pub(crate) struct DataSets<T> {
    /// Of the data set that is shown: the one that commands and events are about.
    pub(crate) shown: T,
    /// Of the one that is loaded meanwhile (7.0 and later).
    pub(crate) loaded: Option<T>,
    /// Of the one that was set aside (6.2).
    pub(crate) set_aside: Option<T>,
}

impl<T: Default> DataSets<T> {
    pub(crate) const fn new(shown: T) -> DataSets<T> {
        DataSets {
            shown,
            loaded: None,
            set_aside: None,
        }
    }

    /// Follows the second data set, and returns what belongs to none any more. O(1).
    #[must_use = "it may be long, and is to be freed elsewhere"]
    pub(crate) fn follow(&mut self, second: Second) -> Option<T> {
        match second {
            Second::Made => self.loaded.replace(T::default()),
            Second::SetAside => self.set_aside.replace(mem::take(&mut self.shown)),
            Second::Shown => {
                let shown = self.loaded.take().or_else(|| self.set_aside.take())?;
                Some(mem::replace(&mut self.shown, shown))
            }
            Second::Dropped => self.loaded.take().or_else(|| self.set_aside.take()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DataSets, Second};

    #[test]
    fn what_is_loaded_is_shown_once_it_is_complete() {
        let mut sets = DataSets::new(1);
        assert_eq!(sets.follow(Second::Made), None);
        assert_eq!((sets.shown, sets.loaded), (1, Some(0)));
        sets.loaded = Some(2);
        assert_eq!(sets.follow(Second::Shown), Some(1));
        assert_eq!((sets.shown, sets.loaded), (2, None));
    }

    #[test]
    fn what_is_loaded_goes_when_the_load_breaks_off() {
        let mut sets = DataSets::new(1);
        assert_eq!(sets.follow(Second::Made), None);
        assert_eq!(sets.follow(Second::Dropped), Some(0));
        assert_eq!((sets.shown, sets.loaded), (1, None));
    }

    #[test]
    fn what_was_set_aside_comes_back_or_goes() {
        let mut sets = DataSets::new(1);
        assert_eq!(sets.follow(Second::SetAside), None);
        assert_eq!((sets.shown, sets.set_aside), (0, Some(1)));
        sets.shown = 2;
        assert_eq!(sets.follow(Second::Shown), Some(2));
        assert_eq!((sets.shown, sets.set_aside), (1, None));
        assert_eq!(sets.follow(Second::SetAside), None);
        assert_eq!(sets.follow(Second::Dropped), Some(1));
        assert_eq!((sets.shown, sets.set_aside), (0, None));
    }

    #[test]
    fn without_a_second_data_set_nothing_changes() {
        let mut sets = DataSets::new(1);
        assert_eq!(sets.follow(Second::Shown), None);
        assert_eq!(sets.follow(Second::Dropped), None);
        assert_eq!(sets.shown, 1);
    }
}
