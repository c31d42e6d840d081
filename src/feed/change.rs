//! The entries of what an effect does.

use seat_pool::{Effect, Freed, Grant, Holder, Lease, Moment, Pool};
use smallvec::SmallVec;

use super::entry::{Entry, Event, Field, has_metadata};
use super::{Feeds, News};
use crate::ffi::{Ctx, OwnedStr, Str};
use crate::text::{CallerText, Sent};

/// What an effect that has entries is about to change, as far as it cannot be seen afterwards.
pub(crate) struct Change {
    /// Whose seats it ends: of the session that it names.
    ends: Option<Hold>,
    /// Whose seats it ends as well: of the session that a grant replaces.
    replaces: Option<Hold>,
    /// Since when that session has waited by its ticket.
    waits_since_ms: Option<i64>,
}

/// A session's hold on its seats.
struct Hold {
    owner: Option<OwnedStr>,
    weight: u32,
    held_s: Option<u64>,
    heartbeats: i64,
    deadline_ms: Option<i64>,
}

impl Hold {
    fn of(pool: &Pool, session: &[u8], now_ms: i64) -> Option<Hold> {
        // Before all deadlines, so that an expired one is found as well.
        let session = pool.get(Moment::at(i64::MIN), session)?;
        let Holder { owner, weight, .. } = pool.holder_of(session);
        let held_s = session.acquired_at().map(|acquired_at| {
            u64::try_from(now_ms / 1000 - i64::from(acquired_at)).unwrap_or_default()
        });
        Some(Hold {
            owner: owner.map(OwnedStr::new),
            weight,
            held_s,
            heartbeats: session.heartbeat_count().unwrap_or_default(),
            deadline_ms: session.deadline_ms(),
        })
    }
}

/// Where a change takes place, and by whom.
pub(crate) struct Scene<'a> {
    pub(crate) feeds: Feeds,
    /// The pool's name.
    pub(crate) pool: Str<'a>,
    /// What the command says by which it comes.
    pub(crate) caller: CallerText<'a>,
    pub(crate) now_ms: i64,
    /// Seats that are taken after it.
    pub(crate) used: u64,
    /// The pool's limit after it.
    pub(crate) seats: i64,
    /// The user whose client it is about.
    pub(crate) user: Option<OwnedStr>,
    /// Since when the client waits that is served.
    pub(crate) waits_since_ms: Option<i64>,
}

/// The entries that were written for an effect.
#[derive(Default)]
pub(crate) struct Wrote {
    /// The forms in which they travel.
    pub(crate) arguments: Arguments,
    pub(crate) news: SmallVec<[News; MOST_ENTRIES]>,
}

/// Entries of one effect, as they travel in it.
pub(crate) type Arguments = SmallVec<[OwnedStr; MOST_ENTRIES]>;

/// A grant may reclaim what its session had, and replace another.
const MOST_ENTRIES: usize = 3;

impl Change {
    /// What an effect is about to do to a pool. `None` if it has no entries.
    pub(crate) fn of(effect: &Effect<'_>, pool: &Pool, now_ms: i64) -> Option<Change> {
        match effect {
            Effect::Grant(grant) | Effect::Import(grant) => {
                let ticket = pool.any_ticket(grant.session);
                let replaces = grant.replaces;
                Some(Change {
                    ends: Hold::of(pool, grant.session, now_ms),
                    replaces: replaces.and_then(|session| Hold::of(pool, session, now_ms)),
                    waits_since_ms: ticket.map(|ticket| ticket.waiting.since_ms),
                })
            }
            Effect::Free { session, .. } => Some(Change {
                ends: Hold::of(pool, session, now_ms),
                replaces: None,
                waits_since_ms: None,
            }),
            Effect::Resize(_) => Some(Change {
                ends: None,
                replaces: None,
                waits_since_ms: None,
            }),
            Effect::Heartbeat(_)
            | Effect::Token { .. }
            | Effect::Renew { .. }
            | Effect::Join(_)
            | Effect::Leave { .. }
            | Effect::Seats(_) => None,
        }
    }

    /// Writes the entries, once the effect is carried out.
    pub(crate) fn write(self, ctx: Ctx<'_>, effect: &Effect<'_>, scene: &Scene<'_>) -> Wrote {
        let mut wrote = Wrote::default();
        match effect {
            Effect::Grant(grant) => {
                let replaced = self.replaces.as_ref().map_or(0, |hold| hold.weight);
                wrote.expiry_of_same(ctx, scene, grant, self.ends, replaced);
                wrote.end_of_replaced(ctx, scene, grant, self.replaces);
                let since_ms = scene.waits_since_ms.or(self.waits_since_ms);
                let mut entry = entry_of_grant(ctx, scene, Event::Acquired, grant);
                if let Some(since_ms) = since_ms {
                    entry.add_wait(scene.now_ms, since_ms);
                }
                entry.add_user(scene.user.as_ref());
                wrote.add(ctx, scene, &entry);
            }
            Effect::Import(grant) => {
                wrote.expiry_of_same(ctx, scene, grant, self.ends, 0);
                wrote.add(
                    ctx,
                    scene,
                    &entry_of_grant(ctx, scene, Event::Imported, grant),
                );
            }
            Effect::Free { session, why } => {
                let event = match why {
                    Freed::Released => Event::Released,
                    Freed::Revoked => Event::Revoked,
                    Freed::Expired => Event::Expired,
                };
                let mut entry = entry_of_session(ctx, scene, event, session, scene.used);
                add_hold(&mut entry, event, self.ends);
                if *why != Freed::Expired {
                    entry.add_user(scene.user.as_ref());
                }
                wrote.add(ctx, scene, &entry);
            }
            Effect::Resize(_) => {
                let (used, seats) = (scene.used, Some(scene.seats));
                let mut entry = Entry::new(ctx, Event::Resized, scene.pool, None, used, seats);
                entry.add_user(scene.user.as_ref());
                wrote.add(ctx, scene, &entry);
            }
            _ => {}
        }
        wrote
    }
}

impl Wrote {
    fn add(&mut self, ctx: Ctx<'_>, scene: &Scene<'_>, entry: &Entry<'_>) {
        if let Some(appended) = scene.feeds.append(ctx, entry) {
            self.arguments.push(appended.argument);
            self.news.push(appended.news);
        }
    }

    /// A grant takes back the seats that its session still had when its lease expired, before it
    /// ends a session of so many seats.
    fn expiry_of_same(
        &mut self,
        ctx: Ctx<'_>,
        scene: &Scene<'_>,
        grant: &Grant<'_>,
        hold: Option<Hold>,
        replaced: u32,
    ) {
        if let Some(hold) = hold {
            let event = Event::Expired;
            let used = scene.used_before(grant) + u64::from(replaced);
            let mut entry = entry_of_session(ctx, scene, event, grant.session, used);
            add_hold(&mut entry, event, Some(hold));
            self.add(ctx, scene, &entry);
        }
    }

    /// A grant ends the session that it replaces.
    fn end_of_replaced(
        &mut self,
        ctx: Ctx<'_>,
        scene: &Scene<'_>,
        grant: &Grant<'_>,
        hold: Option<Hold>,
    ) {
        if let (Some(session), Some(hold)) = (grant.replaces, hold) {
            let event = Event::Replaced;
            let used = scene.used_before(grant);
            let mut entry = entry_of_session(ctx, scene, event, session, used);
            add_hold(&mut entry, event, Some(hold));
            let successor = Sent::of(grant.session, scene.caller.session);
            entry.add(Field::ReplacedBy, successor);
            entry.add_user(scene.user.as_ref());
            self.add(ctx, scene, &entry);
        }
    }
}

impl Scene<'_> {
    /// Seats that are taken before a grant, once what makes way for it has ended.
    fn used_before(&self, grant: &Grant<'_>) -> u64 {
        self.used.saturating_sub(grant.holder.weight.into())
    }
}

fn entry_of_session<'a>(
    ctx: Ctx<'_>,
    scene: &Scene<'a>,
    event: Event,
    session: &[u8],
    used: u64,
) -> Entry<'a> {
    let session = Sent::of(session, scene.caller.session);
    let seats = Some(scene.seats);
    Entry::new(ctx, event, scene.pool, Some(session), used, seats)
}

fn entry_of_grant<'a>(
    ctx: Ctx<'_>,
    scene: &Scene<'a>,
    event: Event,
    grant: &Grant<'_>,
) -> Entry<'a> {
    let mut entry = entry_of_session(ctx, scene, event, grant.session, scene.used);
    let owner = grant.holder.owner;
    let owner = owner.map(|owner| Sent::of(owner, scene.caller.owner));
    entry.add_holder(owner, grant.holder.weight);
    if let Some(Lease {
        length_ms,
        deadline_ms,
    }) = grant.lease
    {
        entry.add_number(Field::LeaseMs, length_ms);
        entry.add_number(Field::DeadlineMs, deadline_ms);
    }
    if let Some(metadata) = grant.metadata.filter(|_| has_metadata()) {
        entry.add(Field::Metadata, Sent::of(metadata, scene.caller.metadata));
    }
    entry
}

/// Adds what is known of a hold that has ended.
fn add_hold(entry: &mut Entry<'_>, event: Event, hold: Option<Hold>) {
    let Some(hold) = hold else { return };
    entry.add_holder(hold.owner.map(Sent::Copied), hold.weight);
    if let Some(held_s) = hold.held_s {
        entry.add_number(Field::HeldS, held_s);
    }
    entry.add_number(Field::Heartbeats, hold.heartbeats);
    if let Some(deadline_ms) = hold.deadline_ms.filter(|_| event == Event::Expired) {
        entry.add_number(Field::DeadlineMs, deadline_ms);
    }
}
