//! What a reader of the feed knows, who has nothing else: who holds which seats.

use std::collections::{BTreeMap, VecDeque};

use redis::{Value, from_redis_value};

use super::Entry;
use crate::support::{Dialog, eventually};

/// A session's hold: its weight and its owner.
type Hold = (i64, Option<String>);

/// Who holds seats, by pool and session.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    pools: BTreeMap<String, BTreeMap<String, Hold>>,
    last: Option<(u64, u64)>,
    entries: usize,
    /// The last ones, for whoever has to find out what went wrong.
    recent: VecDeque<String>,
}

const RECENT: usize = 12;

fn hold_of(entry: &Entry) -> Hold {
    let weight = entry.get("weight").map_or(1, |_| entry.number("weight"));
    (weight, entry.get("owner").map(str::to_owned))
}

impl Holders {
    /// Entries that were read.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Reads on.
    #[track_caller]
    pub fn read(&mut self, entry: &Entry) {
        assert!(self.last < Some(entry.id()), "{:?}: {entry:?}", self.last);
        self.last = Some(entry.id());
        self.entries += 1;
        self.recent.push_back(entry.line());
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        let name = entry.field("pool").to_owned();
        let pool = self.pools.entry(name.clone()).or_default();
        let session = entry.get("session").map(str::to_owned);
        let mut says_used = true;
        match entry.field("event") {
            "acquired" | "imported" => {
                let before = pool.insert(session.expect("a session"), hold_of(entry));
                assert_eq!(before, None, "it had its seats already: {:#?}", self.recent);
            }
            "released" | "expired" | "revoked" | "replaced" => {
                let before = pool.remove(&session.expect("a session"));
                assert_eq!(before, Some(hold_of(entry)), "{:#?}", self.recent);
            }
            "dropped" => drop(self.pools.remove(&name)),
            "exported" => {
                self.pools.remove(&name);
                says_used = false;
            }
            event @ ("renamed" | "copied") => {
                let from = entry.field("from");
                let source = match event {
                    "renamed" => self.pools.remove(from),
                    _ => self.pools.get(from).cloned(),
                };
                self.pools.insert(name.clone(), source.unwrap_or_default());
            }
            // Nobody knows any more what was taken when a client that is gone left.
            "left" => says_used = entry.get("user").is_some(),
            "queued" | "owner_limit" | "resized" => {}
            event => panic!("an unknown event {event}: {entry:?}"),
        }
        if says_used {
            let pool = self.pools.get(&name);
            let held: i64 = pool.map_or(0, |pool| pool.values().map(|(weight, _)| weight).sum());
            // Less where leases are over whose ends are not written yet.
            assert!(
                entry.number("used") <= held,
                "{held} held: {:#?}",
                self.recent
            );
        }
        self.pools.retain(|_, pool| !pool.is_empty());
    }

    /// Forgets all but the position, as when the database was emptied.
    pub fn forget(&mut self) {
        self.pools.clear();
    }

    /// The feed is read to its end, and once nothing is left to reclaim it and the pools of these
    /// names must agree.
    #[track_caller]
    pub fn agree(&mut self, dialog: &mut Dialog, pools: &[String], context: &str) {
        let mut found = BTreeMap::new();
        eventually(&format!("the feed and the pools agree, {context}"), || {
            found = self.look(dialog, pools);
            found == self.pools
        });
    }

    /// What the pools hold, and the feed until then, at one moment.
    #[track_caller]
    fn look(
        &mut self,
        dialog: &mut Dialog,
        pools: &[String],
    ) -> BTreeMap<String, BTreeMap<String, Hold>> {
        let (ms, seq) = self.last.unwrap_or_default();
        let cleanups = pools.iter().map(|pool| format!("SEAT.CLEANUP {pool}"));
        let sessions = pools
            .iter()
            .map(|pool| format!("SEAT.SESSIONS {pool} WITHDETAILS"));
        let commands: Vec<String> = cleanups
            .chain(sessions)
            .chain([format!("XRANGE feed ({ms}-{seq} +")])
            .collect();
        dialog.expect("MULTI", "+OK");
        for command in &commands {
            dialog.expect(command, "+QUEUED");
        }
        let Value::Array(mut replies) = dialog.value(&["EXEC"]) else {
            panic!("EXEC answers no array");
        };
        let read: Vec<(String, Vec<(String, String)>)> =
            from_redis_value(replies.pop().expect("entries")).expect("entries");
        for (id, fields) in read {
            self.read(&Entry { id, fields });
        }
        let sessions = replies.split_off(pools.len());
        let pools = pools.iter().cloned().zip(sessions.into_iter().map(details));
        pools.filter(|(_, sessions)| !sessions.is_empty()).collect()
    }
}

/// The holds of the sessions in a reply WITHDETAILS.
#[track_caller]
fn details(reply: Value) -> BTreeMap<String, Hold> {
    let sessions: Vec<(String, Vec<(String, Value)>)> =
        from_redis_value(reply).expect("sessions with details");
    let hold = |details: Vec<(String, Value)>| -> Hold {
        let field = |name: &str| {
            let found = details.iter().find(|(other, _)| other == name);
            found.expect("a detail").1.clone()
        };
        let weight = from_redis_value(field("weight")).expect("a weight");
        (
            weight,
            from_redis_value(field("owner")).expect("an owner or nil"),
        )
    };
    let sessions = sessions.into_iter();
    sessions.map(|(id, details)| (id, hold(details))).collect()
}
