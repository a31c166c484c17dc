//! Keys of requests.

mod body;
mod composite;
mod json;
mod layer_key;
mod methods;
mod part;
mod sources;

use redlock_tower::ExtractKey;

pub use self::{
    body::BodyLimit,
    composite::{CompositeKey, key},
    part::KeyPart,
    sources::{header, json_field, matched_path, path, query, typed},
};
pub(crate) use self::{layer_key::LayerKey, methods::Methods};
use crate::Request;

/// A source of keys for [`LockLayer`](crate::LockLayer).
///
/// Implemented for the result of [`key`], for closures `|request: &Request| ..`, and for tuples of two to four
/// sources. See [`ExtractKey`].
///
/// A tuple makes *several keys*, and all of them are locked. It is not one key of several parts, which is
/// `key("order", [header("x-tenant"), path("order")])`. The two accounts of a transfer are two keys of one scope,
/// since `from:7` and `to:7` would be different resources:
///
/// ```
/// # use redlock_axum::{LockLayer, key, path};
/// # use redlock_tokio::Redlock;
/// # fn layer(redlock: Redlock) {
/// let account = |name| key("account", path(name).parse::<u64>());
/// let layer = LockLayer::new(redlock, (account("from"), account("to")));
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key for a lock layer",
    note = "a part of a request needs a scope to become a key: `key(\"order\", path(\"id\"))`; \
            one key of several parts: `key(\"order\", [header(\"x-tenant\"), path(\"id\")])`",
    note = "a tuple of keys locks all of them; a closure has the form `|request: &Request| ..`"
)]
pub trait RequestKey: ExtractKey<Request> + Clone + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<K> RequestKey for K where K: ExtractKey<Request> + Clone + Send + Sync + 'static {}
