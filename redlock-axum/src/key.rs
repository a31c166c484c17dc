//! Where a request's key comes from.

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
    sources::{extension, header, idempotency_key, json_field, matched_path, path, query, typed},
};
pub(crate) use self::{layer_key::LayerKey, methods::Methods};
use crate::Request;

/// A source of keys for requests: what [`LockLayer`](crate::LockLayer) takes.
///
/// Implemented for what [`key`] makes, for closures `|request: &Request| ..`, and for tuples. A tuple makes
/// *several keys*, all of which are locked, and is not for one key of several parts, which is
/// `key("order", [header("x-tenant"), path("order")])`. The two accounts of a transfer are
/// `(key("account", path("from")), key("account", path("to")))`; they share a scope, since `from:7` and `to:7`
/// would be different resources. A tuple has two to four members. See [`ExtractKey`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key for a lock layer",
    note = "a part of a request becomes a key with the kind of resource: `key(\"order\", path(\"id\"))`; \
            for one key of several parts: `key(\"order\", [header(\"x-tenant\"), path(\"id\")])`",
    note = "a tuple of keys locks all of them; a closure takes `|request: &Request|`"
)]
pub trait RequestKey: ExtractKey<Request, Future: Send + 'static> + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<K> RequestKey for K where K: ExtractKey<Request, Future: Send + 'static> + Send + Sync + 'static
{}
