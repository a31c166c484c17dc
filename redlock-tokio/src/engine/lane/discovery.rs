use std::{
    collections::BTreeMap, future::pending, panic::AssertUnwindSafe, sync::Arc, time::Duration,
};

use futures::FutureExt;
use redlock_core::{NodeId, NodeKind, OwnerRule, Rivals, Tenure, Timestamp};
use tokio::{runtime::Handle, sync::watch, task::AbortHandle, time::sleep};

use super::vetting::{OwnerNews, Vetting};
use crate::{
    Clock, NodeError, log,
    node::{Authority, AuthorityKind, NamedBy, News, Node, Reports},
};

/// How long an authority is left alone whose watch has ended.
const PAUSE: Duration = Duration::from_secs(1);

/// The authority that names the server of a node, and the watch of it.
#[derive(Clone)]
pub(crate) struct Discovery {
    pub(super) named_by: NamedBy,
    /// Ends with the last of the authority's lanes.
    _watch: Arc<WatchTask>,
}

/// A task that passes on what one authority reports. The task ends when this is dropped.
struct WatchTask(AbortHandle);

struct NamedNodes {
    authority: Arc<dyn Authority>,
    nodes: Vec<(NodeId, NamedBy)>,
}

impl Discovery {
    /// Watches each authority of the nodes once. `rule` decides which of the servers that they name vote.
    pub(crate) fn start_all<'a>(
        runtime: &Handle,
        clock: &Clock,
        vetting: &Arc<Vetting>,
        rule: OwnerRule,
        nodes: impl IntoIterator<Item = (NodeId, &'a Arc<dyn Node>)>,
    ) -> BTreeMap<NodeId, Self> {
        let mut discoveries = BTreeMap::new();
        for group in groups(nodes) {
            for (id, named_by) in &group.nodes {
                let mut electorate = vetting.electorate.lock();
                electorate.set_kind(*id, kind(named_by, rule));
            }
            let group = Arc::new(group);
            let (named, now, vetting) = (Arc::clone(&group), clock.clone(), Arc::clone(vetting));
            let reports = Reports::new(clock.clone(), rule.window(), move |news| {
                named.handle_news(now.now(), &news, &vetting);
            });
            let watch = WatchTask::spawn(runtime, Arc::clone(&group.authority), reports);
            let watch = Arc::new(watch);
            for (id, named_by) in &group.nodes {
                let (named_by, _watch) = (named_by.clone(), Arc::clone(&watch));
                discoveries.insert(*id, Self { named_by, _watch });
            }
        }
        discoveries
    }
}

impl NamedNodes {
    /// Takes what the authority says.
    fn handle_news(&self, now: Timestamp, news: &News, vetting: &Vetting) {
        for (node, named_by) in &self.nodes {
            if matches!(news, News::Report(index, _) if *index != named_by.index) {
                continue;
            }
            let OwnerNews { tenure, rivals } = vetting.handle_news(*node, now, news);
            if let Some(tenure) = tenure {
                self.log_owner(*node, named_by, &tenure, vetting);
            }
            if let Some(rivals) = rivals {
                log::error!(
                    node = %vetting.address(*node),
                    error = %two_authorities(&*self.authority, rivals),
                    "the node has no vote, because its addresses lead to two authorities"
                );
            }
        }
    }

    fn log_owner(&self, node: NodeId, named_by: &NamedBy, tenure: &Tenure, vetting: &Vetting) {
        let server = self.authority.name_of_owner(&tenure.owner);
        log::info!(
            node = %vetting.address(node), owner = %server, epoch = tenure.epoch,
            "a majority of the sentinels, or of the cluster's nodes, names this server as the master"
        );
        let shares = |(id, _): &&(NodeId, NamedBy)| {
            let other = vetting.tenure(*id);
            *id != node && other.is_some_and(|it| it.owner == tenure.owner)
        };
        let other = self.nodes.iter().find(shares);
        if let Some(first) = other.and_then(|(_, by)| by.kind.slot())
            && let Some(second) = named_by.kind.slot()
        {
            log::warn!(first, second, %server, "two voters are slots of one server: they fail together");
        }
    }
}

impl WatchTask {
    fn spawn(runtime: &Handle, authority: Arc<dyn Authority>, reports: Reports) -> Self {
        let task = runtime.spawn(async move {
            loop {
                // The code of the user may panic, and must not end the task.
                let watch = async { authority.watch(reports.clone()).await };
                let panicked = AssertUnwindSafe(watch).catch_unwind().await.is_err();
                log::error!(
                    panicked,
                    "the watch of an authority has ended, and starts again in a second"
                );
                sleep(PAUSE).await;
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A lane's view of the server that the authority of its node has confirmed last.
pub(super) struct Tenures(pub(super) watch::Receiver<Option<Tenure>>);

impl Tenures {
    /// Waits until any server is confirmed.
    pub(super) async fn first(&mut self) -> Tenure {
        loop {
            match self.current() {
                Some(tenure) => return tenure,
                None => self.reported().await,
            }
        }
    }

    /// Waits until another tenure than this one is confirmed.
    pub(super) async fn other_than(&mut self, tenure: Option<&Tenure>) {
        while self.is_current(tenure) {
            self.reported().await;
        }
    }

    /// Waits for the next report of any member. The tenure may be the same as before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no report.
    pub(super) async fn reported(&mut self) {
        // Without the authority there will be no report.
        if self.0.changed().await.is_err() {
            pending::<()>().await;
        }
    }

    pub(super) fn current(&self) -> Option<Tenure> {
        self.0.borrow().clone()
    }

    pub(super) fn is_current(&self, tenure: Option<&Tenure>) -> bool {
        self.0.borrow().as_ref() == tenure
    }
}

/// Returns the nodes whose servers an authority names, by authority.
fn groups<'a>(nodes: impl IntoIterator<Item = (NodeId, &'a Arc<dyn Node>)>) -> Vec<NamedNodes> {
    let mut groups: Vec<NamedNodes> = Vec::new();
    for (id, node) in nodes {
        let Some(named_by) = node.named_by() else {
            continue;
        };
        let known = groups
            .iter_mut()
            .find(|group| Arc::ptr_eq(&group.authority, &named_by.authority));
        match known {
            Some(group) => group.nodes.push((id, named_by)),
            None => groups.push(NamedNodes {
                authority: Arc::clone(&named_by.authority),
                nodes: vec![(id, named_by)],
            }),
        }
    }
    groups
}

pub(super) fn two_authorities(authority: &dyn Authority, rivals: Rivals) -> NodeError {
    let Rivals { member, other, .. } = rivals;
    NodeError::TwoAuthorities {
        member: authority.name_of(member).into(),
        other: authority.name_of(other).into(),
    }
}

fn kind(named_by: &NamedBy, rule: OwnerRule) -> NodeKind {
    let rule = rule.with_fewest_members(named_by.fewest_members);
    match named_by.kind {
        AuthorityKind::Sentinels => NodeKind::SentinelGroup(rule),
        AuthorityKind::Cluster {
            slot,
            may_share_server,
        } => NodeKind::ClusterSlot {
            rule,
            slot,
            may_share_server,
        },
    }
}
