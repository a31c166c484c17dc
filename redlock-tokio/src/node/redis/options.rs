use super::{
    address::AddressMap, connect::StreamCallback, credentials::CredentialsCallback, tls::TlsOptions,
};

/// The options of a builder for all nodes that are given by URL.
#[derive(Clone, Default)]
pub(crate) struct NodeOptions {
    pub(crate) credentials: Option<CredentialsCallback>,
    pub(crate) tls: Option<TlsOptions>,
    pub(crate) stream: Option<StreamCallback>,
    pub(crate) map: Option<AddressMap>,
}
