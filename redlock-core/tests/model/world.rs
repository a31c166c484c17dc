//! The state of a small world: masters, clients with real leases, messages between them.

use std::{fmt, ops::Range};

use redlock_core::{
    Access, AcquireFailure, Eligibility, FencingToken, Lease, LossReason, NodeId, Operation, Reply,
    RoundId, Timestamp, Token, Voter,
};

/// How many keys there are: those of one lock, or the slots of a semaphore.
pub(crate) const KEYS: usize = 2;

/// How many masters there are.
pub(crate) const MASTERS: usize = 3;

/// One tick is a millisecond, the smallest unit of a ttl.
const TICK: u64 = 1_000_000;

/// How many fencing tokens there are in a tick.
pub(crate) const MICROS_PER_TICK: u64 = TICK / 1000;

/// Everything that can change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// True time, in ticks.
    pub(crate) now: u8,
    pub(crate) masters: [Master; MASTERS],
    pub(crate) clients: Vec<Client>,
    /// What may still go wrong.
    pub(crate) faults: Faults,
    /// The fencing tokens in the order in which they were given out.
    pub(crate) fences: Vec<FencingToken>,
    /// The lock that was given away.
    pub(crate) given: Option<Given>,
}

/// A lock that was given away, and who got it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Given {
    pub(crate) token: Token,
    /// The end of the giver's validity, in true time.
    pub(crate) until: u8,
    /// How many clients have adopted it.
    pub(crate) adoptions: u8,
    /// A client that did not adopt it has got the lock since.
    pub(crate) others: bool,
    /// It was adopted after that.
    pub(crate) adopted_after_others: bool,
}

/// How often each fault may still happen in the whole world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// A message that stays under way for as long as it likes.
    pub(crate) stragglers: u8,
    /// A message that is lost, or whose answer is.
    pub(crate) losses: u8,
    /// A fenced SET whose second half is lost: the key is set, and the counter is not raised.
    pub(crate) halves: u8,
    /// A message that is carried out twice.
    pub(crate) repeats: u8,
    /// A master that forgets its keys.
    pub(crate) restarts: u8,
    /// A master whose place is taken by a replica that lacks its keys. Connections go on.
    pub(crate) promotions: u8,
    /// A master that nobody reaches any more.
    pub(crate) outages: u8,
    /// A tick that a client's clock misses.
    pub(crate) stalls: u8,
    /// A client that stands still for a while.
    pub(crate) pauses: u8,
    /// A client that ends without a word.
    pub(crate) crashes: u8,
    /// A new reader that a master denies because of the mark of a writer. A mark is advice, so it may be anywhere at
    /// any time.
    pub(crate) marks: u8,
}

impl Faults {
    pub(crate) const NONE: Self = Self {
        stragglers: 0,
        losses: 0,
        halves: 0,
        repeats: 0,
        restarts: 0,
        promotions: 0,
        outages: 0,
        stalls: 0,
        pauses: 0,
        crashes: 0,
        marks: 0,
    };
}

/// These faults, and no others.
macro_rules! faults {
    ($($fault:ident: $times:literal),+) => {
        $crate::world::Faults { $($fault: $times,)+ ..$crate::world::Faults::NONE }
    };
}
pub(crate) use faults;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Master {
    /// In worlds with one key, there is only the first.
    pub(crate) keys: [Option<Key>; KEYS],
    /// The readers of the first key, in the order of their tokens.
    pub(crate) readers: Vec<Key>,
    /// The fencing counter.
    pub(crate) counter: Option<Counter>,
    /// A fence was raised after the counter had expired.
    pub(crate) counter_expired: bool,
    pub(crate) restarted: bool,
    pub(crate) is_gone: bool,
    /// When its history began, if that continues another: the replica was promoted then, and a
    /// client has written the marker right away.
    pub(crate) promoted_at: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) token: Token,
    pub(crate) expires_at: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Counter {
    pub(crate) fence: FencingToken,
    /// `u8::MAX` if it does not expire in this world.
    pub(crate) expires_at: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) lease: Lease,
    /// The keys that it wants, or the slots of which it wants one.
    pub(crate) keys: Range<usize>,
    /// Whether readers may hold the key beside it.
    pub(crate) reads: bool,
    pub(crate) phase: Phase,
    /// How far its clock is behind.
    pub(crate) lag: u8,
    /// It stands still; what comes in waits here.
    pub(crate) paused: Option<Vec<Heard>>,
    /// What the votes of each master are worth to this client.
    pub(crate) eligibility: [Eligibility; MASTERS],
    /// The proposal that a broken driver keeps.
    pub(crate) kept: Option<FencingToken>,
    /// What it has seen of each master, in worlds where masters are replaced.
    pub(crate) sights: Option<[Sight; MASTERS]>,
    /// The messages under way to each master, oldest first.
    pub(crate) links: [Vec<Message>; MASTERS],
    pub(crate) extended: bool,
    /// When its lock is released, by its clock: others are to find it held until then.
    pub(crate) release_at: Option<Timestamp>,
}

/// The way of messages from a client to a master.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) client: usize,
    pub(crate) master: usize,
}

/// What a client has seen of a master.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sight {
    pub(crate) voter: Voter,
    /// When the history began that it has seen last.
    pub(crate) promoted_at: Option<u8>,
}

/// A reply as it comes to a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Heard {
    pub(crate) round: RoundId,
    pub(crate) node: NodeId,
    pub(crate) reply: Reply,
    pub(crate) eligibility: Eligibility,
}

/// What has become of a client's one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    Acquiring,
    Held,
    Exhausted(AcquireFailure),
    Lost(LossReason),
    Released,
    /// It has given the lock away.
    Gave,
    Crashed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    /// `None` for what no lease asked for.
    pub(crate) round: Option<RoundId>,
    pub(crate) operation: Operation,
    /// Which key it is about.
    pub(crate) access: Access,
    /// It sets a key anew under a lock that is held.
    pub(crate) repairs: bool,
    /// It takes its time.
    pub(crate) late: bool,
    /// The client was told that there is no answer.
    pub(crate) given_up: bool,
}

pub(crate) fn ticks(ticks: u8) -> Timestamp {
    Timestamp::from_nanos(u64::from(ticks) * TICK)
}

pub(crate) fn node(index: usize) -> NodeId {
    NodeId::new(index).expect("there are three masters")
}

/// The client's name in a counterexample.
pub(crate) fn name(client: usize) -> char {
    (b'A' + client as u8) as char
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{}", name(self.client), self.master)
    }
}

impl World {
    /// The messages under way, oldest first.
    pub(crate) fn link(&self, link: Link) -> &[Message] {
        &self.clients[link.client].links[link.master]
    }

    pub(crate) fn link_mut(&mut self, link: Link) -> &mut Vec<Message> {
        &mut self.clients[link.client].links[link.master]
    }

    /// What the newest message asks for.
    fn newest(&self, link: Link) -> Option<Operation> {
        self.link(link).last().map(|message| message.operation)
    }

    /// Whether the newest message sets a key or adds a reader.
    pub(crate) fn sets(&self, link: Link) -> bool {
        self.newest(link).is_some_and(|it| it.sets_key())
    }

    /// Whether the newest message is an extension.
    pub(crate) fn extends(&self, link: Link) -> bool {
        matches!(self.newest(link), Some(Operation::Extend { .. }))
    }

    /// Whether the newest message is a release.
    pub(crate) fn releases(&self, link: Link) -> bool {
        matches!(self.newest(link), Some(Operation::Release { .. }))
    }

    pub(crate) fn live_keys(&self, master: usize) -> impl Iterator<Item = &Key> {
        let it = &self.masters[master];
        let keys = it.keys.iter().flatten().chain(&it.readers);
        keys.filter(|key| self.now < key.expires_at)
    }

    pub(crate) fn has_key(&self, master: usize) -> bool {
        self.live_keys(master).next().is_some()
    }

    pub(crate) fn wants_several(&self, client: usize) -> bool {
        self.clients[client].keys.len() > 1
    }

    /// The keys that a message of this client is about.
    pub(crate) fn keys_of(&self, client: usize, access: Access) -> Range<usize> {
        match access {
            Access::Slot(slot) => slot.index()..slot.index() + 1,
            _ => self.clients[client].keys.clone(),
        }
    }

    /// What a client's clock shows.
    pub(crate) fn local(&self, client: usize) -> u8 {
        self.now - self.clients[client].lag
    }

    /// Whether a client would say that it holds the lock, or is to release it later.
    pub(crate) fn is_valid(&self, client: usize) -> bool {
        let local = ticks(self.local(client));
        let it = &self.clients[client];
        if let Some(until) = it.release_at {
            return local < until;
        }
        it.phase != Phase::Crashed && it.lease.valid_until(local).is_some()
    }

    /// How many clients hold something.
    pub(crate) fn all_holders(&self) -> usize {
        let clients = 0..self.clients.len();
        clients.filter(|client| self.is_valid(*client)).count()
    }

    /// How many clients hold something that only readers may hold at once.
    pub(crate) fn readers(&self) -> usize {
        let clients = 0..self.clients.len();
        clients
            .filter(|client| self.clients[*client].reads && self.is_valid(*client))
            .count()
    }

    /// How many clients hold the key that most clients hold. All readers together are one.
    pub(crate) fn holders(&self) -> usize {
        let clients = 0..self.clients.len();
        let holds = |client: usize, key: usize| {
            let it = &self.clients[client];
            let is_its = match it.lease.slot() {
                Some(slot) => slot.index() == key,
                None => it.keys.contains(&key),
            };
            is_its && !it.reads && self.is_valid(client)
        };
        let holders = (0..KEYS).map(|key| clients.clone().filter(|&it| holds(it, key)).count());
        holders.max().unwrap_or(0) + self.readers().min(1)
    }

    /// Whether a client has ended in this way.
    pub(crate) fn has_any(&self, phase: Phase) -> bool {
        self.clients.iter().any(|it| it.phase == phase)
    }

    /// Whether a client has not seen yet that a master was replaced.
    pub(crate) fn is_deceived(&self, Link { client, master }: Link) -> bool {
        let it = &self.clients[client];
        let seen = it.sights.as_ref().map(|sights| sights[master].promoted_at);
        it.phase.is_active() && seen.is_some_and(|seen| seen != self.masters[master].promoted_at)
    }

    /// Whether any client has not seen yet that a master was replaced.
    pub(crate) fn is_anyone_deceived(&self) -> bool {
        let clients = 0..self.clients.len();
        clients
            .flat_map(|client| (0..MASTERS).map(move |master| Link { client, master }))
            .any(|link| self.is_deceived(link))
    }

    /// Which client's token this is.
    pub(crate) fn owner(&self, token: Token) -> Option<usize> {
        let nonce = |token: Token| token.to_ascii()[..32].to_vec();
        let is_owner = |client: &Client| nonce(client.lease.token()) == nonce(token);
        self.clients.iter().position(is_owner)
    }

    /// Whether nothing is under way any more.
    pub(crate) fn is_silent(&self) -> bool {
        self.clients
            .iter()
            .all(|client| client.links.iter().all(Vec::is_empty) && client.paused.is_none())
    }
}

impl Given {
    /// Notes that a client has got the lock.
    pub(crate) fn note_holder(&mut self, adopts: bool) {
        if adopts {
            self.adoptions += 1;
            self.adopted_after_others |= self.others;
        } else {
            self.others = true;
        }
    }
}

impl Phase {
    pub(crate) fn is_active(self) -> bool {
        matches!(self, Self::Acquiring | Self::Held)
    }

    pub(crate) fn has_ended(self) -> bool {
        self != Self::Idle && !self.is_active()
    }
}
