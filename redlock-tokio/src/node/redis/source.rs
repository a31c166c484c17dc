use super::{
    address::Endpoint, connect::ConnectionSettings, factory::Factory, opened::Opened, pool::Pools,
    sentinel::SentinelNode,
};
use crate::node::NodeError;

/// Where a node's connections come from.
pub(super) enum Source {
    Pools(Pools),
    /// Each connection asks for credentials of its own, which a pool cannot do.
    Settings {
        settings: Box<ConnectionSettings>,
        endpoint: Endpoint,
    },
    Factory(Factory),
    /// Sentinels know where the server is.
    Group(SentinelNode),
}

impl Source {
    /// Opens a connection. `node` is for the log.
    pub(super) async fn open(&self, node: &str) -> Result<Opened, NodeError> {
        match self {
            Self::Pools(pools) => pools.open().await,
            Self::Settings { settings, endpoint } => settings.open(endpoint).await,
            Self::Factory(factory) => factory.open(node).await,
            Self::Group(_) => Err(NodeError::Unreachable(
                "the sentinels name the master: connect through `named_by`".into(),
            )),
        }
    }
}
