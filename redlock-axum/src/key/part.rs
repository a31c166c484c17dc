use std::{fmt, sync::Arc};

use axum::http::request::Parts as Head;
use futures::future::{BoxFuture, FutureExt, ready};
use redlock_tower::KeyRejection;

use super::json::JsonField;

/// A part of a request that goes into a key.
///
/// Made by [`path`](crate::path), [`header`](crate::header), [`query`](crate::query),
/// [`extension`](crate::extension), [`json_field`](crate::json_field), [`matched_path`](crate::matched_path),
/// [`idempotency_key`](crate::idempotency_key) and [`typed`](crate::typed). A part alone is not a key, because order 7
/// and customer 7 would have the same one: [`key`](crate::key()) adds a scope.
///
/// The value is text. If a handler reads it as another type, several texts can mean one value: `42`, `042` and `+42`
/// are one number, but three keys. There, use [`typed`](crate::typed) with the type of the handler:
/// `typed(|Path(order): Path<u64>| order)`.
#[derive(Clone)]
pub struct KeyPart {
    /// For messages, such as "the header `x-tenant`".
    name: Arc<str>,
    source: Source,
}

/// The place of the value in the request.
#[derive(Clone)]
pub(super) enum Source {
    Head(Arc<ReadHead>),
    Json(JsonField),
}

pub(super) type ReadHead = dyn Fn(&mut Head) -> BoxFuture<'_, Found> + Send + Sync;

/// A value, or `None` for a request that needs no lock.
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

/// Lets [`key`](crate::key()) accept one part or several.
impl From<KeyPart> for Vec<KeyPart> {
    fn from(part: KeyPart) -> Self {
        vec![part]
    }
}
