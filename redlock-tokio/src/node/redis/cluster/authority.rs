use std::{collections::BTreeSet, sync::Arc};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use redlock_core::{MemberId, Owner, Tenure};

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
