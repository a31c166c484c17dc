use std::error::Error;

use axum::body::{Body, to_bytes};
use futures::{FutureExt, future::BoxFuture};
use http_body_util::LengthLimitError;
use redlock_tower::{ExtractKey, Extracted, KeyRejection, LockRequest};
use serde_json::Value;

use super::part::key_of;
use crate::Request;

/// Takes the key from a field of a JSON body, such as `json_field("account", 64 * 1024)`. The field must
/// be a string or a number, and is taken as it is written: `42` and `42.0` are two keys. `order.id` is the
/// field `id` of the object `order`.
///
/// The body is read whole, before the lock is waited for, and given back to the handler. One with more
/// than `limit` bytes is answered with 413.
pub fn json_field(field: impl Into<String>, limit: usize) -> JsonKey {
    let field = field.into();
    JsonKey {
        scope: field.clone(),
        field,
        limit,
    }
}

/// Takes the key from a field of a JSON body. Made by [`json_field`].
#[derive(Clone, Debug)]
pub struct JsonKey {
    scope: String,
    field: String,
    limit: usize,
}

impl JsonKey {
    /// Sets what goes in front of the value, instead of the field's name.
    #[must_use]
    pub fn scope(self, scope: impl Into<String>) -> Self {
        Self {
            scope: scope.into(),
            ..self
        }
    }

    fn unreadable(&self, error: &axum::Error) -> KeyRejection {
        let is_too_large = error.source().is_some_and(|it| it.is::<LengthLimitError>());
        if is_too_large {
            KeyRejection::TooLarge { limit: self.limit }
        } else {
            KeyRejection::request(format!("the body cannot be read: {error}"))
        }
    }

    fn find(&self, body: &[u8]) -> Result<LockRequest, KeyRejection> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| KeyRejection::request(format!("the body is not JSON: {error}")))?;
        let mut names = self.field.split('.');
        let value = match names.try_fold(&body, |value, name| value.get(name)) {
            Some(Value::String(value)) => value.clone(),
            Some(Value::Number(value)) => value.to_string(),
            Some(_) => {
                return Err(KeyRejection::request(format!(
                    "the field `{}` is neither a string nor a number",
                    self.field
                )));
            }
            None => {
                return Err(KeyRejection::request(format!(
                    "the body has no field `{}`",
                    self.field
                )));
            }
        };
        key_of(&self.scope, &[value])
    }
}

impl ExtractKey<Request> for JsonKey {
    type Future = BoxFuture<'static, (Request, Extracted)>;

    fn extract(&self, request: Request) -> Self::Future {
        let it = self.clone();
        async move {
            let (head, body) = request.into_parts();
            match to_bytes(body, it.limit).await {
                Ok(bytes) => {
                    let wanted = it.find(&bytes).map(Some);
                    (Request::from_parts(head, Body::from(bytes)), wanted)
                }
                Err(error) => {
                    let rejection = it.unreadable(&error);
                    (Request::from_parts(head, Body::empty()), Err(rejection))
                }
            }
        }
        .boxed()
    }
}
