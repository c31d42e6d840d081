//! The module's settings: arguments of `loadmodule` on every server, and `CONFIG GET|SET seat.*`
//! since Redis 7.0.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{OnceLock, RwLock};

use redis_module::raw;
use seat_pool::{MAX_METADATA_BYTES, MAX_SESSION_BYTES};

use crate::ffi::{Args, Ctx, OwnedStr, ServerEvent, TextSetting};
use crate::sha::{Sha, sha_of_hex};

/// The longest metadata that a caller may send, in bytes.
pub(crate) static MAX_METADATA: Number = Number {
    name: c"max-metadata-bytes",
    least: 2,
    most: MAX_METADATA_BYTES as i64,
    value: AtomicI64::new(16_384),
};

/// The longest session id that a caller may send, in bytes.
pub(crate) static MAX_SESSION: Number = Number {
    name: c"max-session-bytes",
    least: 1,
    most: MAX_SESSION_BYTES as i64,
    value: AtomicI64::new(1024),
};

/// How many may wait for a pool's seats.
pub(crate) static MAX_QUEUE_LENGTH: Number = Number {
    name: c"max-queue-length",
    least: 0,
    most: 10_000_000,
    value: AtomicI64::new(100_000),
};

/// The longest that a ticket may be valid after a poll, in milliseconds.
pub(crate) static MAX_QUEUE_MS: Number = Number {
    name: c"max-queue-ms",
    least: 1,
    most: 1 << 52,
    value: AtomicI64::new(86_400_000),
};

/// For how long no lease expires after the server was away, in milliseconds; 0 is not at all.
pub(crate) static LEASE_GRACE: Number = Number {
    name: c"lease-grace",
    least: 0,
    most: 86_400_000,
    value: AtomicI64::new(30_000),
};

/// For how long nobody is granted a seat after what may have lost grants, in milliseconds; 0 is
/// not at all.
pub(crate) static GRANT_HOLD: Number = Number {
    name: c"grant-hold",
    least: 0,
    most: 86_400_000,
    value: AtomicI64::new(0),
};

/// How many entries of the feed are kept.
pub(crate) static FEED_MAXLEN: Number = Number {
    name: c"feed-maxlen",
    least: 1,
    most: 1 << 40,
    value: AtomicI64::new(1_000_000),
};

/// How many entries of the denial feed are kept.
pub(crate) static DENIAL_FEED_MAXLEN: Number = Number {
    name: c"denial-feed-maxlen",
    least: 1,
    most: 1 << 40,
    value: AtomicI64::new(100_000),
};

/// Whether the entries of grants have the sessions' metadata.
pub(crate) static FEED_METADATA: Switch = Switch {
    name: c"feed-metadata",
    value: AtomicBool::new(false),
};

/// The stream to which every change of a pool is appended.
pub(crate) static FEED: StreamName = StreamName::new(c"feed");
/// The stream to which refusals are appended.
pub(crate) static DENIAL_FEED: StreamName = StreamName::new(c"denial-feed");

/// Whether clients may send internal commands, to pipe an AOF by hand.
pub(crate) static ALLOW_EFFECTS: Switch = Switch {
    name: c"allow-effects",
    value: AtomicBool::new(false),
};

/// Whether sessions in the legacy keys are adopted by whatever writes to their pool.
pub(crate) static SCRIPT_KEYS: Switch = Switch {
    name: c"script-keys",
    value: AtomicBool::new(false),
};

/// Whether readers of the legacy keys are answered from the pool.
pub(crate) static SCRIPT_VIEW: Switch = Switch {
    name: c"script-view",
    value: AtomicBool::new(false),
};

/// The scripts that are carried out as ACQUIRE.
pub(crate) static ACQUIRE_SHA: ShaList = ShaList::new(c"acquire-sha");
/// The scripts that are carried out as RELEASE.
pub(crate) static RELEASE_SHA: ShaList = ShaList::new(c"release-sha");
/// The scripts that are carried out as HEARTBEAT.
pub(crate) static HEARTBEAT_SHA: ShaList = ShaList::new(c"heartbeat-sha");

static NUMBERS: [&Number; 8] = [
    &MAX_METADATA,
    &MAX_SESSION,
    &MAX_QUEUE_LENGTH,
    &MAX_QUEUE_MS,
    &LEASE_GRACE,
    &GRANT_HOLD,
    &FEED_MAXLEN,
    &DENIAL_FEED_MAXLEN,
];
static SWITCHES: [&Switch; 4] = [&ALLOW_EFFECTS, &SCRIPT_KEYS, &SCRIPT_VIEW, &FEED_METADATA];
static STREAMS: [&StreamName; 2] = [&FEED, &DENIAL_FEED];
static LISTS: [&ShaList; 3] = [&ACQUIRE_SHA, &RELEASE_SHA, &HEARTBEAT_SHA];

/// Whether one of [`LISTS`] was set since [`warn_of_missing_lists`].
static ARE_LISTS_NEW: AtomicBool = AtomicBool::new(false);

/// What runs when a setting has changed, as given to [`init`].
static ON_CHANGE: OnceLock<fn()> = OnceLock::new();

fn changed() {
    if let Some(on_change) = ON_CHANGE.get() {
        on_change();
    }
}

/// A setting with a whole number.
pub(crate) struct Number {
    name: &'static CStr,
    least: i64,
    most: i64,
    value: AtomicI64,
}

impl Number {
    pub(crate) fn get(&self) -> usize {
        usize::try_from(self.value.load(Relaxed)).unwrap_or(0)
    }

    /// A number of milliseconds.
    pub(crate) fn get_ms(&self) -> i64 {
        self.value.load(Relaxed)
    }
}

/// A setting that is `yes` or `no`.
pub(crate) struct Switch {
    name: &'static CStr,
    value: AtomicBool,
}

impl Switch {
    pub(crate) fn get(&self) -> bool {
        self.value.load(Relaxed)
    }
}

/// A setting with the SHA1s of scripts, separated by commas or spaces.
pub(crate) struct ShaList {
    name: &'static CStr,
    hashes: RwLock<Vec<Sha>>,
}

impl ShaList {
    const fn new(name: &'static CStr) -> ShaList {
        ShaList {
            name,
            hashes: RwLock::new(Vec::new()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.read(Vec::is_empty)
    }

    pub(crate) fn contains(&self, sha: Sha) -> bool {
        self.read(|hashes| hashes.contains(&sha))
    }

    fn read<T>(&self, look: impl FnOnce(&Vec<Sha>) -> T) -> T {
        look(
            &self
                .hashes
                .read()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }

    /// A script is carried out as one command, so its hash may stand in one list only.
    fn set(&self, value: &str) -> Result<(), String> {
        let words = value.split([',', ' ']).filter(|word| !word.is_empty());
        let hashes: Option<Vec<Sha>> = words.map(|word| sha_of_hex(word.as_bytes())).collect();
        let hashes = hashes.ok_or("must be SHA1s of 40 hexadecimal digits, separated by commas")?;
        for other in LISTS.iter().filter(|other| other.name != self.name) {
            if hashes.iter().any(|&sha| other.contains(sha)) {
                let other = other.name.to_string_lossy();
                return Err(format!("has a SHA1 that {other} has already"));
            }
        }
        *self
            .hashes
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner()) = hashes;
        ARE_LISTS_NEW.store(true, Relaxed);
        Ok(())
    }

    fn describe(&self) -> String {
        let hex = |sha: &Sha| {
            sha.iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        self.read(|hashes| hashes.iter().map(hex).collect::<Vec<_>>().join(","))
    }
}

/// Whether the server is a node of a cluster.
static IS_IN_CLUSTER: AtomicBool = AtomicBool::new(false);

/// A setting with the name of a stream; empty is off.
pub(crate) struct StreamName {
    name: &'static CStr,
    is_on: AtomicBool,
    value: RwLock<String>,
}

impl StreamName {
    const fn new(name: &'static CStr) -> StreamName {
        StreamName {
            name,
            is_on: AtomicBool::new(false),
            value: RwLock::new(String::new()),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// The name of the stream, if there is one.
    pub(crate) fn get(&self) -> Option<OwnedStr> {
        self.is_on()
            .then(|| self.read(|name| OwnedStr::new(name.as_bytes())))
    }

    fn read<T>(&self, look: impl FnOnce(&str) -> T) -> T {
        look(
            &self
                .value
                .read()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }

    /// A cluster keeps a stream in one slot and the pools in others, so that the two would part
    /// when slots move.
    fn set(&self, value: &str) -> Result<(), String> {
        let is_on = !value.is_empty();
        if is_on && IS_IN_CLUSTER.load(Relaxed) {
            return Err(
                "must be empty in a cluster: a stream is in one slot, its pools are in others"
                    .into(),
            );
        }
        value.clone_into(
            &mut self
                .value
                .write()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        );
        self.is_on.store(is_on, Relaxed);
        Ok(())
    }
}

/// The two feeds differ in what pushes their entries out.
fn check_streams() -> Result<(), String> {
    let [one, other] = STREAMS;
    match one.is_on() && one.text() == other.text() {
        true => Err("must not be the stream of the other feed".into()),
        false => Ok(()),
    }
}

/// Takes the arguments of `loadmodule`, which become the defaults, and registers the settings where
/// the server has such. `on_change` runs whenever a setting may have changed.
pub(crate) fn init(ctx: Ctx<'_>, args: Args<'_>, on_change: fn()) -> Result<(), String> {
    ON_CHANGE.get_or_init(|| on_change);
    IS_IN_CLUSTER.store(ctx.is_in_cluster(), Relaxed);
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let name = String::from_utf8_lossy(name.bytes()).to_ascii_lowercase();
        let value = args
            .next()
            .ok_or_else(|| format!("argument {name} of loadmodule lacks a value"))?;
        set(&name, &String::from_utf8_lossy(value.bytes()))?;
    }
    register(ctx)
}

fn set(name: &str, value: &str) -> Result<(), String> {
    let name = name.strip_prefix("seat.").unwrap_or(name);
    let is_named = |known: &CStr| known.to_bytes() == name.as_bytes();
    if let Some(number) = NUMBERS.iter().find(|number| is_named(number.name)) {
        let (least, most) = (number.least, number.most);
        let parsed = value.parse::<i64>().ok();
        let parsed = parsed
            .filter(|value| (least..=most).contains(value))
            .ok_or_else(|| format!("argument {name} of loadmodule must be in {least}..{most}"))?;
        number.value.store(parsed, Relaxed);
    } else if let Some(switch) = SWITCHES.iter().find(|switch| is_named(switch.name)) {
        let parsed = match value.to_ascii_lowercase().as_str() {
            "yes" => true,
            "no" => false,
            _ => return Err(format!("argument {name} of loadmodule must be yes or no")),
        };
        switch.value.store(parsed, Relaxed);
    } else if let Some(list) = LISTS.iter().find(|list| is_named(list.name)) {
        let refused = |error| format!("argument {name} of loadmodule {error}");
        list.set(value).map_err(refused)?;
    } else if let Some(stream) = STREAMS.iter().find(|stream| is_named(stream.name)) {
        let refused = |error| format!("argument {name} of loadmodule {error}");
        stream.set(value).map_err(refused)?;
    } else {
        return Err(format!("loadmodule has no argument {name}"));
    }
    Ok(())
}

fn register(ctx: Ctx<'_>) -> Result<(), String> {
    let refused = |error| format!("seat.feed {error}");
    if !ctx.has_settings() {
        return check_streams().map_err(refused);
    }
    let taken = |name: &CStr, is_taken: bool| match is_taken {
        true => Ok(()),
        false => Err(format!(
            "cannot register the setting {}",
            name.to_string_lossy()
        )),
    };
    for number in NUMBERS {
        let is_taken = ctx.add_number(number.name, number.least, number.most, &number.value);
        taken(number.name, is_taken)?;
    }
    for switch in SWITCHES {
        taken(
            switch.name,
            ctx.add_switch(switch.name, &switch.value, changed),
        )?;
    }
    for list in LISTS {
        taken(list.name, ctx.add_text(list.name, list))?;
    }
    for stream in STREAMS {
        taken(stream.name, ctx.add_text(stream.name, stream))?;
    }
    if !ctx.load_settings() {
        return Err("the configuration has a bad seat.* setting".into());
    }
    check_streams().map_err(refused)
}

impl TextSetting for ShaList {
    fn text(&self) -> String {
        self.describe()
    }

    fn set_text(&self, text: &str) -> Result<(), String> {
        self.set(text)?;
        changed();
        Ok(())
    }
}

impl TextSetting for StreamName {
    fn text(&self) -> String {
        self.read(str::to_owned)
    }

    fn set_text(&self, text: &str) -> Result<(), String> {
        self.set(text)?;
        changed();
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        check_streams()
    }
}

/// Called for each `CONFIG SET`, of the server's own settings too. A server before 7.0 does not
/// tell.
pub(crate) fn listen(ctx: Ctx<'_>) {
    ctx.subscribe_to_server_events(raw::REDISMODULE_EVENT_CONFIG, on_change);
}

fn on_change(ctx: Ctx<'_>, _: ServerEvent) {
    changed();
    warn_of_missing_lists(ctx);
}

/// Warns if some of the lists of scripts were set and others are empty, so that none takes effect.
pub(crate) fn warn_of_missing_lists(ctx: Ctx<'_>) {
    if !ARE_LISTS_NEW.swap(false, Relaxed) {
        return;
    }
    let missing: Vec<_> = LISTS
        .iter()
        .filter(|list| list.is_empty())
        .map(|list| format!("seat.{}", list.name.to_string_lossy()))
        .collect();
    if !missing.is_empty() && missing.len() < LISTS.len() {
        let missing = missing.join(" and ");
        ctx.log_warning(&format!(
            "no script is carried out as a command until all three lists are set; missing: {missing}"
        ));
    }
}

/// All settings with their values, for the log.
pub(crate) fn describe() -> String {
    let numbers = NUMBERS
        .iter()
        .map(|number| (number.name, number.get().to_string()));
    let switches = SWITCHES.iter().map(|switch| {
        let value = if switch.get() { "yes" } else { "no" };
        (switch.name, value.to_owned())
    });
    let lists = LISTS.iter().map(|list| {
        let count = list.read(Vec::len);
        (list.name, format!("({count})"))
    });
    let streams = STREAMS
        .iter()
        .map(|stream| (stream.name, format!("{:?}", stream.text())));
    let all = numbers.chain(switches).chain(lists).chain(streams);
    all.map(|(name, value)| format!("{} {value}", name.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(", ")
}
