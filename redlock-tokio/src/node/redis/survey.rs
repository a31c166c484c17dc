//! Asks all members of an authority which servers are the masters, again and again.

mod roll_call;
mod roster;
mod view;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use deadpool_redis::redis::{Pipeline, Value, aio::MultiplexedConnection};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use redlock_core::{MemberId, MemberList, MemberReport, Owner, Tenure, Timestamp};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use self::{roll_call::RollCall, roster::Standing};
pub(super) use self::{
    roster::{Poll, Roster},
    view::{Place, View, member_id},
};
use super::{
    address::{AddressMap, Endpoint},
    connect::{ConnectionSettings, send},
    key_tag::KeyTag,
    server_error::{connect_error_at, disconnected},
    session::RedisSession,
};
use crate::node::{Authority, NodeError, Reports, Session};

/// The members of an authority, and the masters that they name: a Sentinel group, or a cluster.
pub(super) trait Topology: Send + Sync + 'static {
    /// What messages call the authority.
    const NAME: &'static str;

    /// What messages call a member.
    const MEMBER: &'static str;

    /// The channel on which a member says that a node may have another master, if there is one.
    const SWITCHES: Option<&'static str>;

    /// Returns how to connect to a member.
    fn member_settings(&self) -> &ConnectionSettings;

    /// Returns what each member is asked.
    fn question(&self) -> Pipeline;

    /// Reads the replies of the member that was reached at this address.
    ///
    /// # Errors
    ///
    /// Says what must be changed, if the member refuses to answer.
    fn read(&self, replies: Vec<Value>, reached: &Endpoint) -> Result<View, NodeError>;

    /// Returns how to connect to the owner of the node at `index`.
    ///
    /// # Errors
    ///
    /// Says why nobody knows where the owner is.
    fn master(
        &self,
        index: usize,
        tenure: &Tenure,
        roster: &Roster,
    ) -> Result<Master<'_>, NodeError>;

    /// Returns why no majority names a master of the node at `index`, if that is known.
    fn objection(&self, index: usize, poll: Poll) -> Option<NodeError>;

    /// Logs what has changed at a member. `None` if it names the masters again.
    fn log(&self, at: &Endpoint, error: Option<&NodeError>);

    /// Logs that too few members answer.
    fn log_shortage(&self, _error: &NodeError) {}
}

/// How to connect to a master.
pub(super) struct Master<'a> {
    pub(super) endpoint: Endpoint,
    pub(super) settings: &'a ConnectionSettings,
    /// In front of all keys of the node.
    pub(super) tag: &'a KeyTag,
    /// Who must answer there, if it is a member itself.
    pub(super) member: Option<MemberId>,
}

/// The survey of one authority.
pub(super) struct Survey<T> {
    topology: Arc<T>,
    roster: Arc<Roster>,
}

/// A survey that is under way.
struct Watch<T> {
    topology: Arc<T>,
    roster: Arc<Roster>,
    reports: Reports,
    roll_call: RollCall,
    /// Told by any member that there may be other masters.
    hint: Arc<Notify>,
    /// Told when all configured addresses were heard of: only then it is known which members answer at none of them.
    roll_called: Notify,
}

/// One address that is asked.
struct Contact {
    at: Endpoint,
    connection: Option<MultiplexedConnection>,
    /// The member that has answered last, and what it has named.
    last: Option<(MemberId, Vec<Option<Tenure>>)>,
    /// When the member was first heard to name these masters, if it named others before.
    changed_at: Option<Timestamp>,
}

impl<T: Topology> Survey<T> {
    /// Creates the survey of an authority, whose members are at the `listed` addresses, and where these say that others
    /// are. `map` makes addresses that this client can reach of those that members announce.
    pub(super) fn new(topology: T, listed: Vec<Endpoint>, map: Option<AddressMap>) -> Self {
        Self {
            topology: Arc::new(topology),
            roster: Arc::new(Roster::new(listed, map)),
        }
    }
}

impl<T: Topology> Authority for Survey<T> {
    fn watch(&self, reports: Reports) -> BoxFuture<'static, ()> {
        let watch = Watch {
            topology: Arc::clone(&self.topology),
            roll_call: RollCall::new(self.roster.listed()),
            roster: Arc::clone(&self.roster),
            reports,
            hint: Arc::default(),
            roll_called: Notify::new(),
        };
        async move { watch.run().await }.boxed()
    }

    fn connect(
        &self,
        index: usize,
        tenure: &Tenure,
    ) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        let master = self.topology.master(index, tenure, &self.roster);
        async move {
            let master = master?;
            let session = async {
                let opened = master.settings.open(&master.endpoint).await?;
                RedisSession::open(opened, master.tag.clone(), master.member).await
            };
            let session = session.await;
            let session = session.map_err(|error| connect_error_at(&master.endpoint, error))?;
            Ok(Box::new(session) as Box<dyn Session>)
        }
        .boxed()
    }

    fn objection(&self, index: usize) -> Option<NodeError> {
        self.topology.objection(index, self.roster.poll(index))
    }

    fn name_of(&self, member: MemberId) -> String {
        self.roster.name_of(member)
    }

    fn name_of_owner(&self, owner: &Owner) -> String {
        let member = member_id(owner.as_str());
        member.map_or_else(|| owner.to_string(), |it| self.name_of(it))
    }
}

impl<T: Topology> Watch<T> {
    /// Asks at all configured addresses, and at others where members are that answer at none of these.
    async fn run(&self) {
        let mut asked = BTreeSet::new();
        let mut contacts = FuturesUnordered::new();
        let mut due: BTreeSet<_> = self.roster.listed().iter().cloned().collect();
        loop {
            for at in due {
                if asked.insert(at.clone()) {
                    contacts.push(self.attend(Contact::at(at)));
                }
            }
            tokio::select! {
                biased; // A contact that ends is not due again, so the ends cannot starve the others.
                Some(at) = contacts.next() => { asked.remove(&at); }
                () = self.roll_called.notified() => {}
            }
            due = self.roster.missing();
        }
    }

    /// Asks at one address again and again. Ends if no answer comes, and nobody says that a member is there.
    async fn attend(&self, mut contact: Contact) -> Endpoint {
        let interval = self.reports.interval();
        // However many hints come, a member is asked at most ten times as often as without.
        let pause = interval / 10;
        loop {
            // A hint during the question counts too: the answer may be from before.
            let hinted = self.hint.notified();
            let outcome = self.ask(&mut contact).await;
            let error = outcome.err();
            if self.roster.note_outcome(&contact.at, error.clone()) {
                self.topology.log(&contact.at, error.as_ref());
            }
            if error.is_some() {
                contact.connection = None;
                if self.roster.has_become_short()
                    && let Some(error) = self.topology.objection(0, self.roster.poll(0))
                {
                    self.topology.log_shortage(&error);
                }
                if !self.roster.has(&contact.at) {
                    self.roster.forget(&contact.at);
                    return contact.at;
                }
            }
            sleep(pause).await;
            tokio::select! {
                biased; // Any order would do: either ends the pause.
                () = hinted => {}
                () = sleep(interval - pause) => {}
            }
        }
    }

    /// Asks once, and passes the answer on.
    async fn ask(&self, contact: &mut Contact) -> Result<(), NodeError> {
        // An answer that is older than the window counts for nothing. A connection may take longer.
        let limit = (3 * self.reports.interval()).max(Duration::from_secs(1));
        let answer = timeout(limit, self.question(contact)).await;
        let (asked_at, outcome) = match answer.unwrap_or(Err(NodeError::TimedOut(limit))) {
            Ok((asked_at, view)) => (asked_at, self.pass_on(contact, asked_at, view)),
            Err(error) => (self.reports.now(), Err(error)),
        };
        let is_over = self.roll_call.note(&self.reports, &contact.at, asked_at);
        // Not after each answer: there may be hundreds of members.
        if is_over && self.roster.listed().contains(&contact.at) {
            self.roll_called.notify_one();
        }
        outcome
    }

    /// Asks over the connection, or over a new one if there is none. Returns the answer, and a time before the question.
    async fn question(&self, contact: &mut Contact) -> Result<(Timestamp, View), NodeError> {
        let connection = match &mut contact.connection {
            Some(connection) => connection,
            none => none.insert(self.open(&contact.at).await?),
        };
        let asked_at = self.reports.now();
        let replies = send(connection, &self.topology.question()).await;
        let replies = replies.map_err(|error| disconnected(&error))?;
        Ok((asked_at, self.topology.read(replies, &contact.at)?))
    }

    /// Opens a connection on which the member also reports switches, if it does so and speaks RESP3.
    async fn open(&self, at: &Endpoint) -> Result<MultiplexedConnection, NodeError> {
        let hint = Arc::clone(&self.hint);
        let settings = self.topology.member_settings();
        let connection = settings.open_listening(at, move || hint.notify_waiters());
        let mut connection = connection.await?;
        if let Some(switches) = T::SWITCHES {
            // Without RESP3, or without the right to subscribe, the next question finds the new master.
            let _ = connection.subscribe(switches).await;
        }
        Ok(connection)
    }

    /// Passes on what a member says of each node, if the answer is worth it.
    fn pass_on(
        &self,
        contact: &mut Contact,
        asked_at: Timestamp,
        view: View,
    ) -> Result<(), NodeError> {
        let (kind, member) = (T::MEMBER, view.myself);
        let standing = self.roster.note_answer(&contact.at, &view);
        if standing == Standing::Unknown {
            let text = format!("a {kind} that no other knows is at this address: {member}");
            return Err(NodeError::Unreachable(text.into()));
        }
        let age = contact.age(self.reports.now(), &view);
        let members: MemberList = view.members.into_keys().collect();
        for (index, tenure) in view.tenures.into_iter().enumerate() {
            let report = MemberReport {
                asked_at,
                member,
                members: members.clone(),
                tenure,
                age,
            };
            self.reports.deliver(index, report);
        }
        if standing == Standing::Foreign {
            let name = T::NAME;
            let text = format!("a {kind} of another {name} is at this address: {member}");
            return Err(NodeError::Misconfigured(text.into()));
        }
        Ok(())
    }
}

impl Contact {
    const fn at(at: Endpoint) -> Self {
        Self {
            at,
            connection: None,
            last: None,
            changed_at: None,
        }
    }

    /// Returns for how long a member has named these masters, at least.
    ///
    /// A sentinel that was cut off while the master was a replica for a moment has missed that, and reports an age from
    /// before. So an age counts at most from when a change was heard.
    fn age(&mut self, now: Timestamp, view: &View) -> Duration {
        match &self.last {
            Some((member, tenures)) if *member == view.myself => {
                if *tenures != view.tenures {
                    self.changed_at = Some(now);
                }
            }
            _ => self.changed_at = None,
        }
        self.last = Some((view.myself, view.tenures.clone()));
        let heard_for = self.changed_at.map(|at| now.saturating_duration_since(at));
        heard_for.map_or(view.age, |most| view.age.min(most))
    }
}
