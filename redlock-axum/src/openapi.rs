//! The layer's responses in an OpenAPI document of `utoipa`.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use utoipa::{
    IntoResponses, PartialSchema,
    openapi::{
        Content, Header, HeaderBuilder, ObjectBuilder, RefOr, Response, ResponseBuilder,
        schema::Type,
    },
};

use crate::{LockLayer, Problem};

/// The responses of a route behind a [`LockLayer`] to requests that get no lock.
///
/// They are 423, 429 and 503, each a [`Problem`] with `Retry-After`. Responses that depend on the request are not
/// included: 400 for its key, and 408 and 413 for its body.
///
/// ```
/// use redlock_axum::LockResponses;
/// use utoipa::IntoResponses;
///
/// // #[utoipa::path(post, path = "/orders/{order}", responses((status = 200), LockResponses))]
/// let responses = LockResponses::responses();
/// assert_eq!(responses.into_keys().collect::<Vec<_>>(), ["423", "429", "503"]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockResponses;

impl IntoResponses for LockResponses {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        responses(StatusCode::LOCKED)
    }
}

impl<K> LockLayer<K> {
    /// Returns the responses of a route behind this layer to requests that get no lock: those of [`LockResponses`],
    /// with the layer's [`contended_status`](Self::contended_status).
    ///
    /// A layer with a [`rejection`](Self::rejection) of its own has other bodies.
    #[must_use]
    pub fn openapi_responses(&self) -> BTreeMap<String, RefOr<Response>> {
        responses(self.policy.contended.unwrap_or(StatusCode::LOCKED))
    }
}

fn responses(contended: StatusCode) -> BTreeMap<String, RefOr<Response>> {
    let problems = [
        (
            contended,
            "The resource stayed locked while the request waited.",
        ),
        (
            StatusCode::TOO_MANY_REQUESTS,
            "Too many requests use the resource, or wait for it.",
        ),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "The lock service is unavailable.",
        ),
    ];
    let mut responses = BTreeMap::<String, RefOr<Response>>::new();
    for (status, what) in problems {
        let key = status.as_u16().to_string();
        // If contention has the status of another problem, its description counts.
        responses
            .entry(key)
            .or_insert_with(|| response(what).into());
    }
    responses
}

fn response(what: &str) -> Response {
    ResponseBuilder::new()
        .description(format!("{what} The handler did not run: a retry is safe."))
        .header("Retry-After", retry_after())
        .content(
            "application/problem+json",
            Content::new(Some(Problem::schema())),
        )
        .build()
}

fn retry_after() -> Header {
    let seconds = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1));
    HeaderBuilder::new()
        .schema(Some(seconds))
        .description(Some("The number of seconds to wait before a retry."))
        .build()
}
