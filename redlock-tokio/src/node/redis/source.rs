use super::{
    address::Endpoint, connect::ConnectionSettings, opened::Opened, pool::OwnPool,
    sentinel::SentinelNode,
};
use crate::node::NodeError;

/// Where a node's connections come from.
pub(super) enum Source {
    /// One address.
    Settings {
        settings: Box<ConnectionSettings>,
        endpoint: Endpoint,
    },
    Pool(OwnPool),
    /// Sentinels know where the server is.
    Group(SentinelNode),
}

impl Source {
    /// Opens a connection.
    pub(super) async fn open(&self) -> Result<Opened, NodeError> {
        match self {
            Self::Settings { settings, endpoint } => settings.open(endpoint).await,
            Self::Pool(pool) => pool.open().await,
            Self::Group(_) => Err(NodeError::Unreachable(
                "the sentinels name the master: connect through `named_by`".into(),
            )),
        }
    }
}
