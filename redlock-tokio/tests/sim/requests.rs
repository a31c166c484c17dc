//! The requests for each key, in the order in which users made them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

/// The requests of all processes. Clones are handles of the same book.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
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
    keys: Vec<String>,
    order: Order,
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

/// Whether the end of a request is known before a later request of the same process can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Watched,
    /// Another task hears of the end, and says so later.
    Unwatched,
    /// A reader, which others may overtake, but for writers.
    Reader,
    /// A writer, in the queue of readers and writers.
    Writer,
}

impl Order {
    /// Returns whether a request must not have its turn before an earlier one that waits.
    fn must_follow(self, earlier: Self) -> bool {
        match self {
            Self::Watched => earlier == Self::Watched,
            Self::Unwatched => false,
            Self::Reader => earlier == Self::Writer,
            Self::Writer => matches!(earlier, Self::Reader | Self::Writer),
        }
    }
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
}

/// A request that has not ended. It ends when this is dropped.
pub(crate) struct OpenRequest {
    pub(crate) id: RequestId,
    requests: Requests,
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
    pub(crate) fn new_service(&self) -> ServiceId {
        let mut book = self.lock();
        book.next += 1;
        ServiceId(book.next)
    }

    /// Notes a request that joins the queue at this moment.
    pub(crate) fn begin(
        &self,
        service: ServiceId,
        keys: Vec<String>,
        order: Order,
        now: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> OpenRequest {
        let mut book = self.lock();
        book.next += 1;
        let id = RequestId(book.next);
        let order = match keys.len() {
            1 => order,
            _ => Order::Unwatched,
        };
        let request = Request {
            service,
            keys,
            order,
            since: now(),
            state: State::Waiting,
            streaks_of_others: BTreeMap::new(),
        };
        book.requests.insert(id, request);
        OpenRequest {
            id,
            requests: self.clone(),
            now: Box::new(now),
        }
    }

    /// Forgets requests that ended before this time.
    pub(crate) fn forget_before(&self, time: u64) {
        self.lock().requests.retain(|_, it| it.is_alive(time));
    }

    /// Returns what may be in the tables of a service: the requests that have not ended, or that ended after this
    /// time.
    pub(crate) fn alive(&self, service: ServiceId, since: u64) -> Alive {
        let book = self.lock();
        let of_service = book.requests.values().filter(|it| it.service == service);
        let mut alive = Alive {
            requests: 0,
            keys: 0,
        };
        for request in of_service.filter(|it| it.is_alive(since)) {
            alive.requests += 1;
            alive.keys += request.keys.len();
        }
        alive
    }

    /// Returns how many requests of a service have not ended.
    pub(crate) fn open(&self, service: ServiceId) -> usize {
        self.alive(service, u64::MAX).requests
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().expect("no code panics under this lock")
    }
}

impl OpenRequest {
    /// Notes that the request has its lock. Returns a request of the same process for the same key that came earlier,
    /// and still waits.
    ///
    /// A request for several keys counts neither as the one that came earlier nor as the one that came later: it has
    /// its turn when all of its keys are free, and others may go first until then.
    pub(crate) fn granted(&self) -> Option<RequestId> {
        let mut book = self.requests.lock();
        let request = book.requests.get_mut(&self.id)?;
        let state = std::mem::replace(&mut request.state, State::Held);
        let (service, keys, order) = (request.service, request.keys.clone(), request.order);
        if state != State::Waiting {
            return None;
        }
        let mut earlier = book.requests.range(..self.id);
        let overtaken = earlier.find(|(_, it)| {
            it.service == service
                && it.keys == keys
                && it.state == State::Waiting
                && order.must_follow(it.order)
        });
        overtaken.map(|(id, _)| *id)
    }

    /// Notes that the service got its lock from the nodes. Returns how often one other service got it in the meantime.
    pub(crate) fn note_streak(&self) -> u32 {
        let mut book = self.requests.lock();
        let Some(own) = book.requests.get(&self.id) else {
            return 0;
        };
        let most = own.streaks_of_others.values().max().copied();
        let (service, keys) = (own.service, own.keys.clone());
        for request in book.requests.values_mut().filter(|it| it.keys == keys) {
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
            let are_readers = own.order == Order::Reader && other.order == Order::Reader;
            !are_readers || own.service == other.service
        })
    }

    /// The same for requests of this process alone.
    pub(crate) fn has_rival_in_process(&self, reach: u64) -> bool {
        self.any_other(reach, |own, other| own.service == other.service)
    }

    /// Returns when the request was made, in true time.
    pub(crate) fn since(&self) -> u64 {
        let book = self.requests.lock();
        book.requests.get(&self.id).map_or(0, |it| it.since)
    }

    fn any_other(&self, reach: u64, is_rival: impl Fn(&Request, &Request) -> bool) -> bool {
        let book = self.requests.lock();
        let Some(own) = book.requests.get(&self.id) else {
            return false;
        };
        let others = book.requests.iter().filter(|(id, _)| **id != self.id);
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
