use std::sync::Arc;

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};

use super::authority::ClusterAuthority;
use crate::node::{AuthorityKind, NamedBy, Node, NodeError, Session};

/// A slot of a cluster, which votes as a node.
pub(super) struct ClusterVoter {
    pub(super) address: Box<str>,
    pub(super) authority: Arc<ClusterAuthority>,
    pub(super) index: usize,
}

impl Node for ClusterVoter {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        let text = "the nodes of the cluster name the server of a slot";
        ready(Err(NodeError::Unreachable(text.into()))).boxed()
    }

    fn named_by(&self) -> Option<NamedBy> {
        let authority = Arc::clone(&self.authority);
        let kind = AuthorityKind::Cluster {
            // Two voters can come together on one server at any time. The check at the start names them.
            may_share_server: true,
        };
        Some(NamedBy::new(authority, self.index, kind))
    }
}
