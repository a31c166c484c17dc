//! Where a request's key comes from.

mod body;
mod part;
mod parts;
mod wanted;

use redlock_tower::ExtractKey;

pub(crate) use self::wanted::{HeldKeys, Methods, Wanted, WantedKeys};
pub use self::{
    body::{JsonKey, json_field},
    part::{PartKey, extension, header, idempotency_key, matched_path, path, query, typed},
    parts::Parts,
};
use crate::Request;

/// A source of keys for requests: what [`LockLayer`](crate::LockLayer) takes.
///
/// Implemented for what [`path`], [`header`] and the like make, for [`Parts`] of one key, for closures
/// `|request: &Request| ..`, and for tuples of two to four of these, whose keys are locked together:
/// `(path("from").scope("account"), path("to").scope("account"))`. Without the scope that they share,
/// `from:7` and `to:7` would be different resources. See [`ExtractKey`].
pub trait RequestKey: ExtractKey<Request, Future: Send + 'static> + Send + Sync + 'static {}

impl<K> RequestKey for K where K: ExtractKey<Request, Future: Send + 'static> + Send + Sync + 'static
{}
