//! The feed: every change of a pool as an entry of a stream, and refusals as entries of another.

mod arrivals;
mod denials;
mod entries;
mod failures;
mod followers;
mod history;
mod holders;
mod ids;
mod kills;
mod queue;
mod readers;
mod settings;
mod trimming;

use crate::support::{Builder, Dialog, Server, eventually, total};

/// Fields whose values depend on when the test runs.
const TIMES: [&str; 3] = ["deadline_ms", "waited_ms", "held_s"];

/// A server that writes the feed to `feed`, and takes effects from clients.
fn with_feed() -> Builder {
    Server::builder().module_args("feed feed allow-effects yes")
}

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    id: String,
    fields: Vec<(String, String)>,
}

impl Entry {
    /// The value of a field, if the entry has it.
    fn get(&self, field: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(name, _)| name == field);
        found.map(|(_, value)| value.as_str())
    }

    /// The value of a field that the entry must have.
    #[track_caller]
    fn field(&self, field: &str) -> &str {
        self.get(field)
            .unwrap_or_else(|| panic!("no {field} in {self:?}"))
    }

    #[track_caller]
    fn number(&self, field: &str) -> i64 {
        self.field(field).parse().expect("a number")
    }

    /// The id's two numbers.
    fn id(&self) -> (u64, u64) {
        let (ms, seq) = self.id.split_once('-').expect("an id");
        let number = |text: &str| text.parse().expect("a number");
        (number(ms), number(seq))
    }

    /// As `event pool session used/seats`, a dash for what is not there, and then the other fields
    /// in their order, without the node, and with an underscore for what depends on the time.
    fn line(&self) -> String {
        let or_dash = |field| self.get(field).unwrap_or("-");
        let mut line = format!(
            "{} {} {} {}/{}",
            self.field("event"),
            self.field("pool"),
            or_dash("session"),
            self.field("used"),
            or_dash("seats"),
        );
        for (name, value) in &self.fields {
            match name.as_str() {
                "event" | "pool" | "session" | "used" | "seats" | "node" => {}
                time if TIMES.contains(&time) => {
                    assert!(value.parse::<u64>().is_ok(), "{self:?}");
                    line += &format!(" {name}=_");
                }
                _ => line += &format!(" {name}={value}"),
            }
        }
        line
    }
}

/// The entries of a stream in the selected database.
#[track_caller]
fn entries_of(dialog: &mut Dialog, stream: &str) -> Vec<Entry> {
    let found: Vec<(String, Vec<(String, String)>)> = dialog.query(&format!("XRANGE {stream} - +"));
    let entries = found.into_iter().map(|(id, fields)| Entry { id, fields });
    entries.collect()
}

/// Those of the feed.
#[track_caller]
fn entries(dialog: &mut Dialog) -> Vec<Entry> {
    entries_of(dialog, "feed")
}

/// Reads a stream of database 0 from its present end.
struct Reader {
    dialog: Dialog,
    stream: String,
    last: String,
}

impl Reader {
    #[track_caller]
    fn of(server: &Server, stream: &str) -> Reader {
        let mut reader = Reader {
            dialog: Dialog::with(server),
            stream: stream.to_owned(),
            last: "0-0".to_owned(),
        };
        reader.now();
        reader
    }

    /// What has come since, with what is still put off for as long as `more` wants more.
    #[track_caller]
    fn until(&mut self, what: &str, enough: impl Fn(&[Entry]) -> bool) -> Vec<Entry> {
        let mut new = self.now();
        eventually(what, || {
            if enough(&new) {
                return true;
            }
            new.extend(self.now());
            enough(&new)
        });
        new
    }

    /// What has come since.
    #[track_caller]
    fn now(&mut self) -> Vec<Entry> {
        let command = format!("XRANGE {} ({} +", self.stream, self.last);
        let found: Vec<(String, Vec<(String, String)>)> = self.dialog.query(&command);
        let entries = found.into_iter().map(|(id, fields)| Entry { id, fields });
        let entries: Vec<Entry> = entries.collect();
        if let Some(last) = entries.last() {
            self.last.clone_from(&last.id);
        }
        entries
    }

    /// What has come since must be this, the timer's part included, each as [`Entry::line`] says.
    #[track_caller]
    fn hears(&mut self, expected: &[&str]) -> Vec<Entry> {
        let what = format!("entries such as {expected:?}");
        let new = self.until(&what, |new| new.len() >= expected.len());
        let lines: Vec<String> = new.iter().map(Entry::line).collect();
        assert_eq!(lines, expected);
        new
    }
}

/// Every entry could be appended.
#[track_caller]
fn nothing_failed(server: &Server) {
    assert_eq!(total(server, "seat_feed_errors"), 0);
}

/// The node's name in its entries.
#[track_caller]
fn node_of(server: &Server) -> String {
    server.info("server")["run_id"][..8].to_owned()
}
