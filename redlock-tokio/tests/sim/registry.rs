//! The holds of all processes: until when each is valid by its own clock, and how it ended. The registry tells the
//! judge, and watches that a hold that is lost before the end of its validity is told at once, and never becomes valid
//! again.

mod forced;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::FutureExt;
use redlock_tokio::{Candidate, ExtendError, FencingToken, Hold, Key, Token};

use self::forced::Forced;
use crate::{
    clock::MILLI,
    host::Host,
    judge::{End, Grant, HoldId, Judge},
    trace::Seconds,
    violation::{Kind, Violation},
};

/// How much later than the end of validity, or than an earlier loss, a holder may be told of the loss: tokio's timers
/// tick once in a millisecond, and round up.
const TOLERANCE: Duration = Duration::from_millis(2);

/// How long after its time a later release comes at the latest.
const PROMPT: u64 = 50 * MILLI;

/// Holds that are over are looked at once in so many looks.
const RARELY: u64 = 64;

/// The holds of all processes.
pub(crate) struct Registry {
    judge: Judge,
    open: BTreeMap<HoldId, Open>,
    over: Vec<Over>,
    forced: Forced,
    /// The processes with locks that are to be released later, and when these have ended at the latest.
    later: Vec<(String, u64)>,
    candidates: Vec<Weak<Candidate>>,
    /// The largest token that each resource has seen.
    resources: BTreeMap<String, FencingToken>,
    failures: Vec<Violation>,
    looks: u64,
}

/// A hold that its user has not given back.
struct Open {
    host: Arc<Host>,
    hold: Hold,
    is_shared: bool,
    is_watched: bool,
    /// Whether its user has asked for a later release, and does not know yet whether there will be one.
    is_leaving: bool,
    /// In true time.
    valid_until: u64,
    /// When the registry saw for the first time that it is not valid.
    invalid_since: Option<u64>,
}

/// A hold that has ended. A clone of it is kept, as a careless user might.
struct Over {
    hold: Hold,
    host: Arc<Host>,
    end: End,
    /// Whether it was valid until its end.
    was_valid: bool,
    /// In true time.
    forget_at: u64,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            judge: Judge::new(TOLERANCE),
            open: BTreeMap::new(),
            over: Vec::new(),
            forced: Forced::default(),
            later: Vec::new(),
            candidates: Vec::new(),
            resources: BTreeMap::new(),
            failures: Vec::new(),
            looks: 0,
        }
    }
}

impl Registry {
    /// Notes that a process has a lock from now on. `is_watched` says that [`lost`](Self::lost) will be called at its
    /// loss, or else [`release`](Self::release) before.
    pub(crate) fn begin(
        &mut self,
        host: &Arc<Host>,
        hold: &Hold,
        is_shared: bool,
        is_watched: bool,
    ) -> HoldId {
        let at = host.now();
        let valid_until = valid_until(host, hold).unwrap_or(at);
        let id = self.judge.granted(Grant {
            client: host.name(),
            keys: keys_on_nodes(hold),
            at,
            valid_until,
            fence: hold.fencing_token(),
            is_shared,
        });
        self.forced.note_hold(id, hold.token());
        self.open.insert(
            id,
            Open {
                host: Arc::clone(host),
                hold: hold.view(),
                is_shared,
                is_watched,
                is_leaving: false,
                valid_until,
                invalid_since: None,
            },
        );
        id
    }

    /// Notes whether the user waits for the answer to its request for a later release.
    pub(crate) fn note_leaving(&mut self, id: HoldId, is_leaving: bool) {
        if let Some(open) = self.open.get_mut(&id) {
            open.is_leaving = is_leaving;
        }
    }

    /// Notes that a writer becomes a reader.
    pub(crate) fn share(&mut self, id: HoldId) {
        if let Some(open) = self.open.get_mut(&id) {
            open.is_shared = true;
            let at = open.host.now();
            self.judge.shared(id, at);
        }
    }

    /// Returns whether a reader of another process has this key.
    pub(crate) fn is_read_elsewhere(&self, host: &Arc<Host>, key: &str) -> bool {
        self.open.values().any(|it| {
            let is_elsewhere = it.is_shared && !Arc::ptr_eq(&it.host, host) && it.is_valid();
            is_elsewhere && keys_on_nodes(&it.hold).iter().any(|it| it == key)
        })
    }

    /// Returns the valid holds of a key or of its permits, with their tokens.
    pub(crate) fn holders(&self, key: &str) -> BTreeMap<HoldId, Token> {
        let is_meant = |name: &String| {
            let rest = name.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(":slot:"))
        };
        let holders = self
            .open
            .iter()
            .filter(|(_, it)| it.is_valid() && keys_on_nodes(&it.hold).iter().any(is_meant));
        holders.map(|(id, it)| (*id, it.hold.token())).collect()
    }

    /// Notes that a lock is released by force from now on. Its holder may learn of it later.
    pub(crate) fn force(&mut self, token: Token, at: u64) {
        self.forced.order(token, at);
    }

    /// Returns whether a lock may have been released by force.
    pub(crate) fn was_forced(&self, token: Token) -> bool {
        self.forced.contains(token)
    }

    /// Notes that a user gives a lock back, or no longer relies on it.
    pub(crate) fn release(&mut self, id: HoldId) {
        let at = self.open.get(&id).map(|it| it.host.now());
        if let Some(at) = at {
            self.end(id, End::Released, at);
        }
    }

    /// Notes that a user is done with a lock, which nobody else has before this time.
    pub(crate) fn release_at(&mut self, id: HoldId, until: u64) {
        if self.open.contains_key(&id) {
            self.judge.extended(id, until);
            self.end(id, End::Released, until);
        }
    }

    /// Notes that a process keeps a lock until this time, though none of its users has it.
    pub(crate) fn keep(&mut self, host: &Host, end: u64) {
        self.later.push((host.name(), end));
    }

    /// Notes a candidate of the one election that there is.
    pub(crate) fn campaign(&mut self, candidate: &Arc<Candidate>) {
        self.candidates.push(Arc::downgrade(candidate));
    }

    /// Returns how many locks that a process is to release later may not have ended.
    pub(crate) fn to_release_later(&self, host: &Host) -> usize {
        let (client, now, resumed_at) = (host.name(), host.now(), host.resumed_at());
        let of_client = self.later.iter().filter(|(it, _)| *it == client);
        let open = of_client.filter(|(_, end)| now < resumed_at.max(*end) + PROMPT);
        open.count()
    }

    /// Notes that a user was told of the loss of its lock.
    pub(crate) fn lost(&mut self, id: HoldId) {
        let told = self.open.get(&id).map(|it| (it.host.now(), it.is_valid()));
        if let Some((told, is_valid)) = told {
            if is_valid {
                self.fail(format!(
                    "{id:?} is valid, and its user was told that it is lost"
                ));
            }
            self.end(id, End::Lost { told }, told);
        }
    }

    /// Notes that a process has ended.
    pub(crate) fn end_all_of(&mut self, host: &Arc<Host>) {
        let open = self.open.iter();
        let ids: Vec<_> = open
            .filter(|(_, it)| Arc::ptr_eq(&it.host, host) && it.is_watched)
            .map(|(id, _)| *id)
            .collect();
        let at = host.now();
        for id in ids {
            self.end(id, End::Died, at);
        }
    }

    /// Returns how many holds of a process the registry has.
    pub(crate) fn holds_of(&self, host: &Arc<Host>) -> usize {
        let open = self.open.values().map(|it| &it.host);
        let over = self.over.iter().map(|it| &it.host);
        open.chain(over).filter(|it| Arc::ptr_eq(it, host)).count()
    }

    /// Notes that a process stood still.
    pub(crate) fn note_stop(&mut self, host: &Host, from: u64, until: u64) {
        self.judge.stood_still(&host.name(), from, until);
    }

    /// Writes to the resource that a lock protects. Returns whether the resource has seen no larger token.
    pub(crate) fn write(&mut self, id: HoldId, key: &str, token: FencingToken) -> bool {
        let largest = self.resources.entry(key.to_owned()).or_insert(token);
        if token >= *largest {
            *largest = token;
            return true;
        }
        let largest = *largest;
        let open = self.open.get(&id).filter(|it| it.is_valid());
        if open.is_some_and(|it| !self.forced.contains(it.hold.token())) {
            let text = format!(
                "{key} refuses a write by its valid holder: {token} is smaller than {largest}"
            );
            self.failures.push(Violation::new(Kind::Fencing, text));
        }
        false
    }

    /// Looks until when the locks of a process are valid by now. Call this as soon as the process has sent something:
    /// what it has sent may be a release, and its clock may go on before the world does.
    pub(crate) fn look_at(&mut self, host: &Arc<Host>) {
        self.look_at_all(|it| Arc::ptr_eq(it, host));
    }

    /// Looks until when each lock is valid by now. Call this after each step of the processes. Returns holds to be dropped
    /// outside of the lock of the registry: the last handle of a lease may be among them.
    #[must_use]
    pub(crate) fn look(&mut self, at: u64) -> Vec<Hold> {
        self.look_at_all(|_| true);
        self.count_leaders();
        self.looks += 1;
        if self.looks.is_multiple_of(RARELY) {
            self.look_back(at)
        } else {
            Vec::new()
        }
    }

    /// Takes all holds, to be dropped outside of the lock of the registry.
    #[must_use]
    pub(crate) fn take_all(&mut self) -> Vec<Hold> {
        let open = std::mem::take(&mut self.open).into_values();
        let over = std::mem::take(&mut self.over).into_iter();
        open.map(|it| it.hold)
            .chain(over.map(|it| it.hold))
            .collect()
    }

    /// Returns everything that must not have happened.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let judged = self.judge.violations();
        let judged = judged.iter().filter(|it| !self.forced.excuses(it));
        let judged = judged.map(Violation::from);
        judged.chain(self.failures.iter().cloned()).collect()
    }

    fn look_at_all(&mut self, is_meant: impl Fn(&Arc<Host>) -> bool) {
        let tolerance = TOLERANCE.as_nanos() as u64;
        let mut ended = Vec::new();
        let is_meant = |it: &Open| is_meant(&it.host) && !it.is_leaving;
        for (id, open) in self.open.iter_mut().filter(|(_, it)| is_meant(it)) {
            match (valid_until(&open.host, &open.hold), open.invalid_since) {
                (Some(until), None) => {
                    open.valid_until = open.valid_until.max(until);
                    self.judge.extended(*id, until);
                }
                (None, None) => {
                    let at = open.host.now();
                    open.invalid_since = Some(at);
                    if !open.is_watched {
                        ended.push((*id, at));
                    }
                }
                (None, Some(since)) => {
                    let now = open.host.now();
                    let due = since.max(open.host.resumed_at()) + tolerance;
                    if open.is_watched && !open.host.stands_still() && due < now {
                        ended.push((*id, now));
                        let text = format!(
                            "{id:?} is not valid since {}, and its user was not told by {}",
                            Seconds(since),
                            Seconds(now)
                        );
                        self.failures.push(Violation::new(Kind::LateLoss, text));
                    }
                }
                (Some(_), Some(_)) => {
                    let text = format!("{id:?} was lost, and is valid again");
                    self.failures.push(Violation::new(Kind::Statement, text));
                }
            }
        }
        for (id, at) in ended {
            self.end(id, End::Released, at);
        }
    }

    fn count_leaders(&mut self) {
        self.candidates.retain(|it| it.strong_count() > 0);
        let candidates = self.candidates.iter().filter_map(Weak::upgrade);
        let leaders = candidates.filter(|it| it.is_leader()).count();
        if leaders > 1 {
            let text = format!("{leaders} processes lead at one instant");
            self.failures.push(Violation::new(Kind::TwoHolders, text));
        }
    }

    /// Looks at the holds that are over. Returns those that need no further look.
    fn look_back(&mut self, at: u64) -> Vec<Hold> {
        for over in &self.over {
            self.failures.extend(over.contradiction());
        }
        let forgotten = self.over.extract_if(.., |it| it.forget_at < at);
        forgotten.map(|it| it.hold).collect()
    }

    fn end(&mut self, id: HoldId, end: End, at: u64) {
        let Some(open) = self.open.remove(&id) else {
            return;
        };
        let at = open.invalid_since.map_or(at, |since| at.min(since));
        self.judge.ended(id, end, at);
        if end != End::Died {
            // A hold that would come back to life would do so while its validity would have lasted.
            let forget_at = open.valid_until + 100 * MILLI;
            let Open { host, hold, .. } = open;
            self.over.push(Over {
                was_valid: hold.is_valid(),
                hold,
                host,
                end,
                forget_at,
            });
        }
    }

    /// Notes something that must not happen.
    pub(crate) fn fail(&mut self, text: String) {
        self.failures.push(Violation::new(Kind::Statement, text));
    }
}

impl Open {
    fn is_valid(&self) -> bool {
        self.invalid_since.is_none() && self.hold.is_valid()
    }
}

impl Over {
    /// Returns what the hold says of itself that must not be.
    fn contradiction(&self) -> Option<Violation> {
        let hold = &self.hold;
        let is_right = match hold.extend().now_or_never() {
            Some(Err(ExtendError::Released)) => !matches!(self.end, End::Lost { .. }),
            Some(Err(ExtendError::Lost(_))) => !self.was_valid,
            _ => false,
        };
        let is_over = !hold.is_valid() && hold.remaining().is_zero();
        let (key, client) = (hold.key(), self.host.name());
        (!is_right || !is_over).then(|| {
            let text = format!("a hold of {key:?} by {client} has ended, and does not say so");
            Violation::new(Kind::Statement, text)
        })
    }
}

/// Returns the names that nodes have for the keys of a hold. Of a permit, that is its slot: if no two clients hold the
/// same one, there are no more holders than permits.
pub(crate) fn keys_on_nodes(hold: &Hold) -> Vec<String> {
    let text = |key: &Key| String::from_utf8_lossy(key.as_bytes()).into_owned();
    let names = hold.keys().map(text);
    match hold.slot() {
        Some(slot) => names.map(|name| format!("{name}:slot:{slot}")).collect(),
        None => names.collect(),
    }
}

/// Returns until when a hold is valid, in true time, if it is valid.
fn valid_until(host: &Host, hold: &Hold) -> Option<u64> {
    let remaining = hold.remaining();
    let end = host.timestamp().saturating_add(remaining);
    (!remaining.is_zero()).then(|| host.when(end))
}
