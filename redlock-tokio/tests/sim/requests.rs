//! The requests for each key, in the order in which users made them.

use std::collections::BTreeMap;

use crate::shared::Shared;

/// The requests of all processes.
#[derive(Default)]
pub(crate) struct Requests {
    next: u64,
    requests: BTreeMap<RequestId, Request>,
}

/// The number of a request, in the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestId(u64);

/// The number of a `Redlock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServiceId(u64);

/// The requests of a service that may be in its tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alive {
    pub(crate) requests: usize,
    /// Those that several requests want count several times.
    pub(crate) keys: usize,
}

struct Request {
    service: ServiceId,
    kind: Keys,
    keys: Vec<String>,
    /// In true time.
    since: u64,
    state: State,
    /// How often each other service has got the key from the nodes since this one got it last, or began to wait.
    streaks_of_others: BTreeMap<ServiceId, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Held,
    Over { at: u64 },
}

/// The keys that a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Keys {
    /// One key that others want, too.
    Shared,
    /// One key that no other request has.
    Alone,
    /// No lock can have this key.
    Bad,
    Several,
    /// A permit of a semaphore that others want, too.
    Permit,
    /// One key that others want, too, for a reader.
    Read,
    /// The same for a writer.
    Write,
    /// One key whose holder has given its lock away.
    Adopted,
    /// The key of a foreign client.
    Foreign,
}

/// A request that has not ended. It ends when this is dropped.
pub(crate) struct OpenRequest {
    pub(crate) id: RequestId,
    /// When the request was made, in true time.
    pub(crate) since: u64,
    requests: Shared<Requests>,
    now: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Keys {
    /// Returns which keys these are, if they are locked.
    pub(crate) fn of(keys: &[String]) -> Self {
        match keys {
            [key] if key.is_empty() => Self::Bad,
            [key] if key.starts_with("key-") => Self::Shared,
            [key] if key.starts_with("permits-") => Self::Permit,
            [_] => Self::Alone,
            _ => Self::Several,
        }
    }

    /// Returns whether a request must not have its turn before one of its process for the same keys that came earlier,
    /// and waits.
    fn must_follow(self, earlier: Self) -> bool {
        match self {
            Self::Shared | Self::Alone | Self::Bad => self == earlier,
            // Readers may overtake all but writers.
            Self::Read => earlier == Self::Write,
            Self::Write => matches!(earlier, Self::Read | Self::Write),
            // Others may go first until all keys are free. Requests for permits have their turns at once, and
            // adoptions and foreign clients wait for nobody.
            Self::Several | Self::Permit | Self::Adopted | Self::Foreign => false,
        }
    }
}

impl Request {
    /// Returns whether it has not ended before this time.
    fn is_alive(&self, since: u64) -> bool {
        match self.state {
            State::Over { at } => at >= since,
            State::Waiting | State::Held => true,
        }
    }
}

impl Requests {
    pub(crate) fn new_service(&mut self) -> ServiceId {
        self.next += 1;
        ServiceId(self.next)
    }

    /// Forgets requests that ended before this time.
    pub(crate) fn forget_before(&mut self, time: u64) {
        self.requests.retain(|_, it| it.is_alive(time));
    }

    /// Returns what may be in the tables of a service: the requests that have not ended, or that ended after this
    /// time.
    pub(crate) fn alive(&self, service: ServiceId, since: u64) -> Alive {
        let mut alive = Alive {
            requests: 0,
            keys: 0,
        };
        let of_service = self.requests.values().filter(|it| it.service == service);
        for request in of_service.filter(|it| it.is_alive(since)) {
            alive.requests += 1;
            alive.keys += request.keys.len();
        }
        alive
    }
}

impl OpenRequest {
    /// Notes a request that joins the queue at this moment.
    pub(crate) fn begin(
        requests: &Shared<Requests>,
        service: ServiceId,
        kind: Keys,
        keys: Vec<String>,
        now: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        let mut book = requests.lock();
        book.next += 1;
        let (id, since) = (RequestId(book.next), now());
        let request = Request {
            service,
            kind,
            keys,
            since,
            state: State::Waiting,
            streaks_of_others: BTreeMap::new(),
        };
        book.requests.insert(id, request);
        Self {
            id,
            since,
            requests: requests.clone(),
            now: Box::new(now),
        }
    }

    /// Notes that the request has its lock. Returns a request of the same process for the same key that came earlier,
    /// and still waits.
    pub(crate) fn granted(&self) -> Option<RequestId> {
        let requests = &mut self.requests.lock().requests;
        let own = requests.get_mut(&self.id)?;
        if std::mem::replace(&mut own.state, State::Held) != State::Waiting {
            return None;
        }
        let own = &requests[&self.id];
        let mut earlier = requests.range(..self.id);
        let overtaken = earlier.find(|(_, it)| {
            it.service == own.service
                && it.keys == own.keys
                && it.state == State::Waiting
                && own.kind.must_follow(it.kind)
        });
        overtaken.map(|(id, _)| *id)
    }

    /// Notes that the service got its lock from the nodes. Returns how often one other service got it in the meantime.
    pub(crate) fn note_streak(&self) -> u32 {
        let requests = &mut self.requests.lock().requests;
        let Some(own) = requests.get(&self.id) else {
            return 0;
        };
        let most = own.streaks_of_others.values().max().copied();
        let (service, keys) = (own.service, own.keys.clone());
        for request in requests.values_mut().filter(|it| it.keys == keys) {
            if request.service == service {
                request.streaks_of_others.clear();
            } else {
                *request.streaks_of_others.entry(service).or_default() += 1;
            }
        }
        most.unwrap_or(0)
    }

    /// Returns whether another request may have kept a key from this one: one that has not ended, or ended less than
    /// `reach` before this one began. Readers of different processes do not keep each other from a key.
    pub(crate) fn has_rival(&self, reach: u64) -> bool {
        self.any_other(reach, |own, other| {
            let are_readers = own.kind == Keys::Read && other.kind == Keys::Read;
            !are_readers || own.service == other.service
        })
    }

    /// The same for requests of this process alone.
    pub(crate) fn has_rival_in_process(&self, reach: u64) -> bool {
        self.any_other(reach, |own, other| own.service == other.service)
    }

    fn any_other(&self, reach: u64, is_rival: impl Fn(&Request, &Request) -> bool) -> bool {
        let requests = &self.requests.lock().requests;
        let Some(own) = requests.get(&self.id) else {
            return false;
        };
        let others = requests.iter().filter(|(id, _)| **id != self.id);
        let mut rivals = others.filter(|(_, it)| {
            it.keys.iter().any(|key| own.keys.contains(key)) && is_rival(own, it)
        });
        rivals.any(|(_, it)| it.is_alive(own.since.saturating_sub(reach)))
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let at = (self.now)();
        if let Some(request) = self.requests.lock().requests.get_mut(&self.id) {
            request.state = State::Over { at };
        }
    }
}
