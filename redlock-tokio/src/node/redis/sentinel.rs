mod builder;
mod group;
mod question;
mod roster;
mod url;

use std::sync::Arc;

pub use self::builder::SentinelNodeBuilder;
use self::group::{Group, Sentinels};
use super::address::Endpoint;
use crate::node::{AuthorityKind, NamedBy};

/// The master of a group that sentinels watch.
pub(super) struct SentinelNode(Arc<Group>);

impl SentinelNode {
    /// Returns what logs call the node.
    pub(super) fn address(&self) -> String {
        let addresses: Vec<_> = self.0.listed.iter().map(Endpoint::to_string).collect();
        format!("{}@{}", self.0.name, addresses.join(","))
    }

    pub(super) fn named_by(&self) -> NamedBy {
        let authority = Arc::new(Sentinels(Arc::clone(&self.0)));
        let named_by = NamedBy::new(authority, 0, AuthorityKind::Sentinels);
        named_by.with_fewest_members(self.0.listed.len())
    }
}
