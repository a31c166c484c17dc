use std::{iter, sync::Arc};

use axum::{body::Body, http::request::Parts as Head};
use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{Key, KeyError};
use redlock_tower::{CallerDeadline, ExtractKey, Extracted, KeyRejection, LockRequest};

use super::{
    body::BodyLimit,
    json::JsonField,
    part::{Found, KeyPart, Source},
};
use crate::Request;

/// Makes one key of the scope, which says what kind of resource it is, and one part of the request or several,
/// which say which one: `key("order", path("id"))`, or `key("order", [header("x-tenant"), path("id")])`.
///
/// Parts of all kinds can be mixed. `key("order", [header("x-tenant"), json_field("order", 4096)])` is the key of
/// one order of a tenant. Without the scope, order 7 and customer 7 would be one resource. It is asked for and
/// not taken from the route, since a resource has many routes (`/orders/{id}`, `/v1/orders/{id}`,
/// `/orders/{id}/refund`), other services, and locks taken by hand, and all of them must mean the same lock.
///
/// The key is the scope and the values, joined by [`Key::parts`]: `order:acme:7`. A lock by hand makes the same
/// key with `Key::parts(["order", "acme", "7"])`. A value that is empty is answered with 400, since all requests
/// without it would share the lock.
///
/// A part by itself is no key, and does not compile as one:
///
/// ```compile_fail,E0277
/// # use redlock_axum::{LockLayer, path};
/// # fn layer(redlock: redlock_tokio::Redlock) {
/// let layer = LockLayer::new(redlock, path("id"));
/// # }
/// ```
///
/// Nor do parts in a tuple, which would lock the whole tenant beside the order. Here is one key of two parts, in
/// an array:
///
/// ```compile_fail,E0277
/// # use redlock_axum::{LockLayer, header, json_field};
/// # fn layer(redlock: redlock_tokio::Redlock) {
/// let layer = LockLayer::new(redlock, (header("x-tenant"), json_field("order", 4096)));
/// # }
/// ```
///
/// ```
/// # use redlock_axum::{LockLayer, header, json_field, key};
/// # fn layer(redlock: redlock_tokio::Redlock) {
/// let layer = LockLayer::new(redlock, key("order", [header("x-tenant"), json_field("order", 4096)]));
/// # }
/// ```
pub fn key(scope: impl Into<String>, parts: impl Into<Vec<KeyPart>>) -> CompositeKey {
    let scope: String = scope.into();
    CompositeKey {
        scope: scope.into(),
        parts: parts.into().into(),
    }
}

/// One key that is made of a scope and of parts of a request. Made by [`key`].
///
/// A tuple of these makes several keys, and locks all of them; see [`RequestKey`](crate::RequestKey).
#[derive(Clone, Debug)]
#[must_use]
pub struct CompositeKey {
    scope: Arc<str>,
    parts: Arc<[KeyPart]>,
}

impl CompositeKey {
    /// Makes the key, and gives the body back, unless it cannot be read.
    async fn find(
        &self,
        head: &mut Head,
        body: Body,
        caller: Option<CallerDeadline>,
    ) -> (Body, Extracted) {
        let mut values = match self.read_head(head).await {
            Ok(Some(values)) => values,
            Ok(None) => return (body, Ok(None)),
            Err(rejection) => return (body, Err(rejection)),
        };
        let limit = self.fields().map(|(_, field)| field.limit);
        let Some(limit) = limit.reduce(BodyLimit::and) else {
            return (body, self.join(&values).map(Some));
        };
        let body = match limit.read(body, caller).await {
            Ok(body) => body,
            Err(rejection) => return (Body::empty(), Err(rejection)),
        };
        for (index, field) in self.fields() {
            match field.find(&body) {
                Ok(value) => values[index] = value,
                Err(rejection) => return (body.into(), Err(rejection)),
            }
        }
        (body.into(), self.join(&values).map(Some))
    }

    /// Reads the parts in the head, and leaves room for those in the body. None for a request that needs no
    /// lock.
    async fn read_head(&self, head: &mut Head) -> Result<Option<Vec<String>>, KeyRejection> {
        let mut values = Vec::with_capacity(self.parts.len());
        for part in &*self.parts {
            let found: Found = match part.source() {
                Source::Head(read) => read(head).await,
                Source::Json(_) => Ok(Some(String::new())),
            };
            match found? {
                Some(value) => values.push(value),
                None => return Ok(None),
            }
        }
        Ok(Some(values))
    }

    /// Returns the parts that are in the body, and where they belong.
    fn fields(&self) -> impl Iterator<Item = (usize, &JsonField)> {
        let parts = self.parts.iter().enumerate();
        parts.filter_map(|(index, part)| match part.source() {
            Source::Json(field) => Some((index, field)),
            Source::Head(_) => None,
        })
    }

    fn join(&self, values: &[String]) -> Result<LockRequest, KeyRejection> {
        if self.scope.is_empty() {
            return Err(KeyRejection::layer(
                "its key has an empty scope; name the kind of resource, as in key(\"order\", path(\"id\"))",
            ));
        }
        if self.parts.is_empty() {
            return Err(KeyRejection::layer(
                "a key of no parts would be the same for all requests",
            ));
        }
        let values = values.iter().map(String::as_str);
        match Key::parts(iter::once(&*self.scope).chain(values)) {
            Ok(key) => Ok(LockRequest::new(key)),
            // The first is the scope.
            Err(KeyError::EmptyPart { index }) => Err(KeyRejection::request(format!(
                "{} is empty",
                self.parts[index - 1].name()
            ))),
            Err(error) => Err(error.into()),
        }
    }
}

impl ExtractKey<Request> for CompositeKey {
    type Future = BoxFuture<'static, (Request, Extracted)>;

    fn extract(&self, request: Request) -> Self::Future {
        let it = self.clone();
        async move {
            let caller = CallerDeadline::of(&request);
            let (mut head, body) = request.into_parts();
            let (body, wanted) = it.find(&mut head, body, caller).await;
            (Request::from_parts(head, body), wanted)
        }
        .boxed()
    }
}
