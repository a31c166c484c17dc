use std::{fmt, sync::Arc};

use axum::http::request::Parts as Head;
use futures::future::{BoxFuture, FutureExt, ready};
use redlock_tower::KeyRejection;

use super::json::JsonField;

/// A part of a request that goes into a key: made by [`path`](crate::path), [`header`](crate::header),
/// [`query`](crate::query), [`extension`](crate::extension), [`json_field`](crate::json_field),
/// [`matched_path`](crate::matched_path), [`idempotency_key`](crate::idempotency_key) and
/// [`typed`](crate::typed).
///
/// It is no key by itself: order 7 and customer 7 would have the same. [`key`](crate::key) makes one of it.
///
/// The value is taken as text. Where a handler reads it as something else, several texts may mean the same:
/// `42`, `042` and `+42` are one number and three keys. Take [`typed`](crate::typed) there, with the type
/// that the handler takes: `typed(|Path(order): Path<u64>| order)`.
#[derive(Clone)]
pub struct KeyPart {
    /// For messages, with what it is.
    name: Arc<str>,
    source: Source,
}

/// Where the value is.
#[derive(Clone)]
pub(super) enum Source {
    Head(Arc<ReadHead>),
    Json(JsonField),
}

pub(super) type ReadHead = dyn Fn(&mut Head) -> BoxFuture<'_, Found> + Send + Sync;

/// A value, or none for a request that needs no lock.
pub(super) type Found = Result<Option<String>, KeyRejection>;

impl KeyPart {
    pub(super) fn new(
        name: impl Into<Arc<str>>,
        read: impl Fn(&mut Head) -> BoxFuture<'_, Found> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            source: Source::Head(Arc::new(read)),
        }
    }

    pub(super) fn at_once(
        name: impl Into<Arc<str>>,
        read: impl Fn(&Head) -> Found + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |head| ready(read(head)).boxed())
    }

    pub(super) fn json(name: impl Into<Arc<str>>, field: JsonField) -> Self {
        Self {
            name: name.into(),
            source: Source::Json(field),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }
}

impl fmt::Debug for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyPart").field(&self.name).finish()
    }
}

/// For what takes one part or several.
impl From<KeyPart> for Vec<KeyPart> {
    fn from(part: KeyPart) -> Self {
        vec![part]
    }
}
