//! Keyspace events, as a client hears them that has subscribed to them.

use super::{Dialog, Server};

/// A subscriber, and a client that marks the present.
pub struct Events {
    listener: Dialog,
    marker: Dialog,
}

impl Events {
    /// Those of all classes and databases, from now on.
    #[track_caller]
    pub fn of(server: &Server) -> Self {
        Self::matching(server, "EA", "__keyevent@*__:*")
    }

    /// Those of some classes, as `notify-keyspace-events` names them, in channels that match.
    #[track_caller]
    pub fn matching(server: &Server, classes: &str, pattern: &str) -> Self {
        let (mut listener, mut marker) = (Dialog::with(server), Dialog::with(server));
        marker.expect(
            &format!("CONFIG SET notify-keyspace-events {classes}"),
            "+OK",
        );
        listener.begins(&format!("PSUBSCRIBE {pattern}"), r#"["psubscribe", "#);
        Self { listener, marker }
    }

    /// The next one, as `event key`, whichever of the two its channel is named for. One of another
    /// database than 0 has its number as well.
    #[track_caller]
    pub fn next(&mut self) -> String {
        let message = self.listener.read();
        let mut parts = message.trim_end_matches(']').rsplit(", ");
        let mut part = || parts.next().expect("a message").trim_matches('"');
        let (payload, channel) = (part(), part());
        let (kind, name) = channel.split_once("__:").expect("an event");
        let event = match kind.starts_with("__keyspace@") {
            true => format!("{payload} {name}"),
            false => format!("{name} {payload}"),
        };
        match kind.split_once('@') {
            Some((_, "0")) => event,
            _ => format!("{event} in {kind}"),
        }
    }

    /// The next ones, so many.
    #[track_caller]
    pub fn take(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next()).collect()
    }

    /// All until now, of a subscriber to [`Events::of`].
    #[track_caller]
    pub fn until_now(&mut self) -> Vec<String> {
        self.marker.expect("PUBLISH __keyevent@0__:end here", "1");
        let events = std::iter::from_fn(|| Some(self.next()));
        events.take_while(|event| event != "end here").collect()
    }
}
