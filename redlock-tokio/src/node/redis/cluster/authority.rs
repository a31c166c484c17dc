use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use redlock_core::{MemberId, Owner, Tenure};
use thiserror::Error;

use super::{directory::Directory, identity::member_id, member::Member};
use crate::node::{
    Authority, NodeError, Reports, Session,
    redis::{
        address::{AddressMap, Endpoint},
        connect::ConnectionSettings,
        key_slot::KeySlot,
        key_tag::KeyTag,
        roll_call::RollCall,
        server_error::connect_error_at,
        session::RedisSession,
    },
};

/// Two voters of a cluster that are slots of one server, so that they would fail together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "slots {first} and {second} of a cluster are both on server {server}, so that two of {voters} voters would fail \
     together, in a cluster of {shards} shards: name a cluster by one URL only, move one of the slots to another \
     server, or accept that by allow_shared_servers=true; voters=1 and other tags are only for a fleet of which \
     no process runs, since they do not exclude processes that have the present voters"
)]
pub struct SharedServerError {
    first: u16,
    second: u16,
    server: Arc<str>,
    voters: usize,
    shards: usize,
}

/// The nodes of a cluster, which name the owner of each voter's slot.
pub(crate) struct ClusterAuthority {
    settings: ConnectionSettings,
    directory: Arc<Directory>,
    slots: Arc<[KeySlot]>,
    /// The tags of the voters, in the same order.
    tags: Box<[KeyTag]>,
}

impl ClusterAuthority {
    /// Creates the authority for voters with these tags. `map` makes addresses that this client can reach of
    /// those that the nodes announce.
    pub(super) fn new(
        seeds: Vec<Endpoint>,
        settings: ConnectionSettings,
        tags: &[String],
        map: Option<AddressMap>,
    ) -> Self {
        Self {
            directory: Arc::new(Directory::new(seeds, settings.uses_tls(), map)),
            settings,
            slots: tags.iter().map(|tag| KeySlot::of(tag.as_bytes())).collect(),
            tags: tags.iter().map(|tag| KeyTag::in_braces(tag)).collect(),
        }
    }

    /// Refuses two voters that are slots of one server, whichever URLs they are from, if the owners are known by now.
    pub(crate) fn refuse_shared_servers(clusters: &[Arc<Self>]) -> Result<(), SharedServerError> {
        let mut slots = BTreeMap::new();
        for Self {
            directory,
            slots: own,
            ..
        } in clusters.iter().map(|it| &**it)
        {
            let Some(owners) = directory.owners(own) else {
                continue;
            };
            for (slot, member) in own.iter().zip(owners.members) {
                if let Some(first) = slots.insert(member, slot.number()) {
                    return Err(SharedServerError {
                        first,
                        second: slot.number(),
                        server: directory.name_of(member).into(),
                        voters: clusters.iter().map(|it| it.slots.len()).sum(),
                        shards: owners.shards,
                    });
                }
            }
        }
        Ok(())
    }

    async fn open(&self, index: usize, tenure: &Tenure) -> Result<Box<dyn Session>, NodeError> {
        let no_address = || {
            let text = format!(
                "no node of the cluster knows the address of {}",
                tenure.owner
            );
            NodeError::Unreachable(text.into())
        };
        let owner = member_id(tenure.owner.as_str().as_bytes()).ok_or_else(no_address)?;
        let endpoint = self.directory.endpoint_of(owner);
        let endpoint = endpoint.unwrap_or_else(|| Err(no_address()))?;
        let session = async {
            let opened = self.settings.open(&endpoint).await?;
            RedisSession::open(opened, self.tags[index].clone(), Some(owner)).await
        };
        let session = session
            .await
            .map_err(|error| connect_error_at(&endpoint, error))?;
        Ok(Box::new(session))
    }
}

impl Authority for ClusterAuthority {
    fn watch(&self, reports: Reports) -> BoxFuture<'static, ()> {
        let (directory, slots) = (Arc::clone(&self.directory), Arc::clone(&self.slots));
        let settings = self.settings.clone();
        let roll_call = Arc::new(RollCall::new(&directory.seeds));
        async move {
            let mut asked = BTreeSet::new();
            let mut members = FuturesUnordered::new();
            loop {
                for endpoint in directory.endpoints() {
                    if asked.insert(endpoint.clone()) {
                        let member = Member {
                            endpoint,
                            settings: settings.clone(),
                            directory: Arc::clone(&directory),
                            roll_call: Arc::clone(&roll_call),
                            slots: Arc::clone(&slots),
                            reports: reports.clone(),
                        };
                        members.push(member.run());
                    }
                }
                tokio::select! {
                    biased; // After either, the members that are missing are added.
                    Some(endpoint) = members.next() => { asked.remove(&endpoint); }
                    () = directory.changed.notified() => {}
                }
            }
        }
        .boxed()
    }

    fn connect(
        &self,
        index: usize,
        tenure: &Tenure,
    ) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        let tenure = tenure.clone();
        async move { self.open(index, &tenure).await }.boxed()
    }

    fn objection(&self, index: usize) -> Option<NodeError> {
        self.directory.objection(self.slots[index])
    }

    fn name_of(&self, member: MemberId) -> String {
        self.directory.name_of(member)
    }

    fn name_of_owner(&self, owner: &Owner) -> String {
        let member = member_id(owner.as_str().as_bytes());
        member.map_or_else(|| owner.to_string(), |it| self.name_of(it))
    }
}
