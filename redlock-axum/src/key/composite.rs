use std::{
    iter,
    sync::{Arc, Once},
};

use axum::{body::Body, http::request::Parts as Head};
use redlock_tokio::{Key, errors::KeyError};
use redlock_tower::{CallerDeadline, ExtractKey, Extracted, KeyRejection, LockRequest};

use super::{
    body::{BodyHasArrived, BodyLimit},
    json::JsonField,
    part::{KeyPart, Source},
};
use crate::Request;

/// Makes one key of a scope and of one or several parts of the request.
///
/// The scope names the kind of resource, and the parts name the resource: `key("order", path("id").parse::<u64>())`, or
/// `key("order", [header("x-tenant"), path("id").parse::<u64>()])`. Parts of all kinds can be mixed. [`KeyPart`] says
/// why a number must be parsed.
///
/// Without a scope, order 7 and customer 7 would be one resource. The scope is not derived from the route, because a
/// resource has many routes (`/orders/{id}`, `/v1/orders/{id}`, `/orders/{id}/refund`). Other services, and locks in
/// the handler's own code, must also use the same key.
///
/// [`Key::parts`] joins the scope and the values: `order:acme:7`. To take the same lock in the handler's own code, use
/// `Key::parts(["order", "acme", "7"])`. A request with an empty value gets a 400, because all requests without the
/// value would share a lock.
///
/// ```
/// # use redlock_axum::{LockLayer, header, json_field, key};
/// # fn layer(redlock: redlock_tokio::Redlock) {
/// let order = key("order", [header("x-tenant"), json_field("order", 4096)]);
/// let layer = LockLayer::new(redlock, order);
/// # }
/// ```
///
/// A part without a scope is not a key, and does not compile as one, alone or in a tuple. As several keys, this tuple
/// would lock the whole tenant beside the order:
///
/// ```compile_fail,E0277
/// # use redlock_axum::{LockLayer, header, json_field};
/// # fn layer(redlock: redlock_tokio::Redlock) {
/// let order = (header("x-tenant"), json_field("order", 4096));
/// let layer = LockLayer::new(redlock, order);
/// # }
/// ```
pub fn key(scope: impl Into<String>, parts: impl Into<Vec<KeyPart>>) -> CompositeKey {
    let scope: String = scope.into();
    CompositeKey {
        scope: scope.into(),
        parts: parts.into().into(),
        warned: Arc::new(Once::new()),
    }
}

/// One key, made of a scope and of parts of a request. Made by [`key`].
///
/// A tuple of them makes several keys; see [`RequestKey`](crate::RequestKey).
#[derive(Clone, Debug)]
#[must_use]
pub struct CompositeKey {
    scope: Arc<str>,
    parts: Arc<[KeyPart]>,
    /// Whether the log has a warning of a request without a route.
    warned: Arc<Once>,
}

impl CompositeKey {
    /// Makes the key, and returns the body. The body is empty if it could not be read.
    async fn find(
        &self,
        head: &mut Head,
        body: Body,
        caller: Option<CallerDeadline>,
    ) -> (Body, Extracted) {
        let mut values = match self.read_head(head).await {
            Ok(Some(values)) => values,
            Ok(None) => {
                self.warn_of_no_route();
                return (body, Ok(None));
            }
            Err(rejection) => return (body, Err(rejection)),
        };
        let limit = self.fields().map(|(_, _, field)| field.limit);
        let Some(limit) = limit.reduce(BodyLimit::and) else {
            return (body, self.join(&values).map(Some));
        };
        let body = match limit.read(body, caller).await {
            Ok(body) => body,
            Err(rejection) => return (Body::empty(), Err(rejection)),
        };
        head.extensions.insert(BodyHasArrived);
        for (index, part, field) in self.fields() {
            match field
                .find(&body.bytes)
                .and_then(|text| part.normalise(text))
            {
                Ok(value) => values[index] = value,
                Err(rejection) => return (body.into(), Err(rejection)),
            }
        }
        (body.into(), self.join(&values).map(Some))
    }

    /// A 404 needs no lock, but a fallback may. The layer cannot distinguish them, and any client can ask for a route
    /// that does not exist. So the warning is not repeated.
    fn warn_of_no_route(&self) {
        self.warned.call_once(|| {
            tracing::warn!(
                target: "redlock",
                scope = &*self.scope,
                "a request matched no route, so it has no lock key and passes without a lock. If the fallback needs a \
                 lock, take the key with a closure. If not, add the layer with route_layer. This warning is not \
                 repeated"
            );
        });
    }

    /// Reads the parts in the head, and leaves those in the body empty. Returns `None` if no route matched.
    async fn read_head(&self, head: &mut Head) -> Result<Option<Vec<String>>, KeyRejection> {
        let mut values = Vec::with_capacity(self.parts.len());
        for part in &*self.parts {
            let Source::Head(read) = &part.source else {
                values.push(String::new());
                continue;
            };
            match read(head).await? {
                Some(text) => values.push(part.normalise(text)?),
                None => return Ok(None),
            }
        }
        Ok(Some(values))
    }

    /// Returns the parts that are in the body, and their places in the key.
    fn fields(&self) -> impl Iterator<Item = (usize, &KeyPart, &JsonField)> {
        let parts = self.parts.iter().enumerate();
        parts.filter_map(|(index, part)| match &part.source {
            Source::Json(field) => Some((index, part, field)),
            Source::Head(_) => None,
        })
    }

    fn join(&self, values: &[String]) -> Result<LockRequest, KeyRejection> {
        if self.scope.is_empty() {
            return Err(KeyRejection::layer(
                "the key has an empty scope; name the kind of resource, as in key(\"order\", path(\"id\"))",
            ));
        }
        if self.parts.is_empty() {
            return Err(KeyRejection::layer(
                "the key has no parts, so it would be the same for all requests",
            ));
        }
        let values = values.iter().map(String::as_str);
        match Key::parts(iter::once(&*self.scope).chain(values)) {
            Ok(key) => Ok(LockRequest::new(key)),
            // Part 0 is the scope.
            Err(KeyError::EmptyPart { index }) => Err(KeyRejection::request(format!(
                "{} is empty",
                self.parts[index - 1].name
            ))),
            Err(error) => Err(error.into()),
        }
    }
}

impl ExtractKey<Request> for CompositeKey {
    async fn extract(&self, request: Request) -> (Request, Extracted) {
        let caller = CallerDeadline::of(&request);
        let (mut head, body) = request.into_parts();
        let (body, wanted) = self.find(&mut head, body, caller).await;
        (Request::from_parts(head, body), wanted)
    }
}
