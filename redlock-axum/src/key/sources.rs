use std::{fmt, iter, sync::Arc};

use axum::{
    RequestPartsExt,
    extract::{
        FromRequestParts, MatchedPath, OriginalUri, RawPathParams, RawQuery,
        rejection::RawPathParamsRejection,
    },
    http::{HeaderName, request::Parts as RequestParts},
};
use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use redlock_tower::{ExtractKey, Extracted, KeyRejection, LockRequest};

use crate::Request;

/// Takes a key from the head of a request. Made by [`path`], [`header`], [`query`], [`extension`],
/// [`matched_path`], [`idempotency_key`] and [`typed`].
///
/// The key is the [scope](Self::scope), a colon and the value (with a backslash before colons and
/// backslashes in it), so that order 42 and customer 42 are different resources. An empty value is no key.
///
/// The value is taken as text. Where a handler reads it as something else, several texts may mean the same:
/// `42`, `042` and `+42` are one number and three keys. Take [`typed`] there, with the type that the
/// handler takes: `typed("order", |Path(order): Path<u64>| order)`.
#[derive(Clone)]
pub struct PartKey {
    scope: String,
    read: Arc<Read>,
}

type Read = dyn Fn(&mut RequestParts) -> BoxFuture<'_, Found> + Send + Sync;

/// A value, or none for a request that needs no lock.
pub(super) type Found = Result<Option<String>, KeyRejection>;

impl PartKey {
    fn new(
        scope: impl Into<String>,
        read: impl Fn(&mut RequestParts) -> BoxFuture<'_, Found> + Send + Sync + 'static,
    ) -> Self {
        Self {
            scope: scope.into(),
            read: Arc::new(read),
        }
    }

    fn at_once(
        scope: impl Into<String>,
        read: impl Fn(&RequestParts) -> Found + Send + Sync + 'static,
    ) -> Self {
        Self::new(scope, move |parts| ready(read(parts)).boxed())
    }

    /// Sets what goes in front of the value, instead of the parameter's, header's or type's name.
    #[must_use]
    pub fn scope(self, scope: impl Into<String>) -> Self {
        Self {
            scope: scope.into(),
            ..self
        }
    }

    /// Reads the value, without the scope.
    pub(super) fn read<'a>(&self, parts: &'a mut RequestParts) -> BoxFuture<'a, Found> {
        (self.read)(parts)
    }
}

impl ExtractKey<Request> for PartKey {
    type Future = BoxFuture<'static, (Request, Extracted)>;

    fn extract(&self, request: Request) -> Self::Future {
        let it = self.clone();
        async move {
            let (mut parts, body) = request.into_parts();
            let found = it.read(&mut parts).await;
            let wanted =
                found.and_then(|value| value.map(|value| key_of(&it.scope, &[value])).transpose());
            (Request::from_parts(parts, body), wanted)
        }
        .boxed()
    }
}

impl fmt::Debug for PartKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartKey")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// Takes the key from a path parameter: on the route `/events/{event}/tickets`, the key of
/// `path("event")` for `/events/rock%20am%20see/tickets` is `event:rock am see`.
///
/// The value is percent-decoded, so that `a%2Fb` and `a%2fb` are one resource. Parameters of routers
/// that this one is nested in are there too.
///
/// Requests that no route matched pass without a lock. So do those to a `nest_service` whose path has no
/// parameter, which look the same from here.
pub fn path(parameter: impl Into<String>) -> PartKey {
    let parameter = parameter.into();
    PartKey::new(parameter.clone(), move |parts| {
        let parameter = parameter.clone();
        async move {
            let params = path_params(parts).await?;
            let value = params.iter().find(|(name, _)| **name == *parameter);
            if let Some((_, value)) = value {
                return Ok(Some(value.to_owned()));
            }
            let route = match route_of(parts) {
                Some(route) => route,
                None if params.iter().next().is_none() => return Ok(None),
                None => "of a nested service",
            };
            let names: Vec<_> = params.iter().map(|(name, _)| format!("`{name}`")).collect();
            let others = match &names[..] {
                [] => String::new(),
                names => format!(", only {}", names.join(" and ")),
            };
            Err(KeyRejection::layer(format!(
                "the route `{route}` has no path parameter `{parameter}`{others}; \
                 put the layer on the routes that have it, with route_layer",
            )))
        }
        .boxed()
    })
}

/// Takes the key from a header, as it is. A request without it is at fault, and so is one that has it
/// twice, or with anything but visible ASCII in it.
///
/// # Panics
///
/// If the name cannot be that of a header.
pub fn header(name: impl AsRef<str>) -> PartKey {
    let name = header_name(name.as_ref());
    PartKey::at_once(name.to_string(), move |parts| {
        one_header(parts, &name).map(Some)
    })
}

/// Takes the key from the header `Idempotency-Key`, which is a quoted string
/// (draft-ietf-httpapi-idempotency-key-header, RFC 9651 section 3.3.3): `"8e03978e-40d5"`. Without the
/// quotes, as many clients write it, it is taken as it is.
#[must_use]
pub fn idempotency_key() -> PartKey {
    let name = HeaderName::from_static("idempotency-key");
    PartKey::at_once("idempotency-key", move |parts| {
        let value = one_header(parts, &name)?;
        unquote(&value).map(Some)
    })
}

/// Takes the key from a parameter of the query, percent-decoded, with `+` for a space. A request without
/// it is at fault, and so is one that has it twice.
pub fn query(parameter: impl Into<String>) -> PartKey {
    let parameter = parameter.into();
    PartKey::new(parameter.clone(), move |parts| {
        let parameter = parameter.clone();
        async move {
            let Ok(RawQuery(query)) = parts.extract().await;
            let query = query.unwrap_or_default();
            let mut values = form_urlencoded::parse(query.as_bytes())
                .filter(|(name, _)| **name == *parameter)
                .map(|(_, value)| value.into_owned());
            match (values.next(), values.next()) {
                (Some(value), None) => Ok(Some(value)),
                (None, _) => Err(KeyRejection::request(format!(
                    "the query has no `{parameter}`"
                ))),
                (Some(_), Some(_)) => Err(KeyRejection::request(format!(
                    "the query has more than one `{parameter}`"
                ))),
            }
        }
        .boxed()
    })
}

/// Takes the key from an extension that an outer layer has put into the request, such as the user who
/// was authenticated. If it is not there, the layers are in the wrong order.
pub fn extension<T, V>(
    scope: impl Into<String>,
    key: impl Fn(&T) -> V + Send + Sync + 'static,
) -> PartKey
where
    T: Clone + Send + Sync + 'static,
    V: fmt::Display,
{
    PartKey::at_once(scope, move |parts| match parts.extensions.get::<T>() {
        Some(value) => Ok(Some(key(value).to_string())),
        None => Err(KeyRejection::layer(format!(
            "the request has no extension `{}`: put the layer that adds it outside of this one",
            std::any::type_name::<T>()
        ))),
    })
}

/// Takes the route itself for the key: all requests that it matches run one at a time. Requests that no
/// route matched pass without a lock. Not for `nest_service`, where no route is known.
#[must_use]
pub fn matched_path() -> PartKey {
    PartKey::new("route", |parts| {
        async move {
            let params = path_params(parts).await?;
            match route_of(parts) {
                Some(route) => Ok(Some(route.to_owned())),
                None if params.iter().next().is_none() => Ok(None),
                None => Err(KeyRejection::layer(
                    "a nested service has no matched path; take another key there",
                )),
            }
        }
        .boxed()
    })
}

/// Takes the key from whatever an extractor without state reads from the request's head, such as a typed
/// header or a `Path` with its own type. If it rejects the request, that is at fault.
pub fn typed<E, V>(
    scope: impl Into<String>,
    key: impl Fn(E) -> V + Clone + Send + Sync + 'static,
) -> PartKey
where
    E: FromRequestParts<()> + Send + 'static,
    E::Rejection: fmt::Display,
    V: fmt::Display + Send,
{
    PartKey::new(scope, move |parts| {
        let key = key.clone();
        async move {
            match parts.extract::<E>().await {
                Ok(value) => Ok(Some(key(value).to_string())),
                Err(rejection) => Err(KeyRejection::request(rejection.to_string())),
            }
        }
        .boxed()
    })
}

/// Makes the key of a scope and values.
pub(super) fn key_of(scope: &str, values: &[impl AsRef<str>]) -> Result<LockRequest, KeyRejection> {
    let values = values.iter().map(AsRef::as_ref);
    if values.clone().any(str::is_empty) {
        // All requests whose value is empty would share it.
        return Err(KeyRejection::request(format!(
            "the value of `{scope}` is empty"
        )));
    }
    Ok(LockRequest::parts(iter::once(scope).chain(values)))
}

/// Reads the parameters of the route that matched; none if no route did.
async fn path_params(parts: &mut RequestParts) -> Result<RawPathParams, KeyRejection> {
    // Each router leaves this behind, also where no route matches.
    if parts.extensions.get::<OriginalUri>().is_none() {
        return Err(KeyRejection::layer(
            "it is around the whole router, where no route is known yet; \
             add it to the router, with route_layer",
        ));
    }
    let params = parts.extract().await;
    params.map_err(|error: RawPathParamsRejection| KeyRejection::request(error.to_string()))
}

fn route_of(parts: &RequestParts) -> Option<&str> {
    parts.extensions.get().map(MatchedPath::as_str)
}

fn header_name(name: &str) -> HeaderName {
    name.parse()
        .unwrap_or_else(|_| panic!("`{}` is no header's name", name.escape_debug()))
}

fn one_header(parts: &RequestParts, name: &HeaderName) -> Result<String, KeyRejection> {
    let mut values = parts.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => match value.to_str() {
            Ok(value) if !value.is_empty() => Ok(value.to_owned()),
            _ => Err(KeyRejection::request(format!(
                "the header `{name}` is empty, or not of visible ASCII"
            ))),
        },
        (None, _) => Err(KeyRejection::request(format!(
            "the header `{name}` is missing"
        ))),
        (Some(_), Some(_)) => Err(KeyRejection::request(format!(
            "the header `{name}` is there more than once"
        ))),
    }
}

/// Reads a string of RFC 9651: in quotes, with backslashes before quotes and backslashes.
fn unquote(text: &str) -> Result<String, KeyRejection> {
    let malformed = || KeyRejection::request("the header `idempotency-key` is no quoted string");
    let Some(rest) = text.trim().strip_prefix('"') else {
        return Ok(text.trim().to_owned());
    };
    let mut value = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next().ok_or_else(malformed)? {
            '"' => break,
            '\\' => match chars.next() {
                Some(escaped @ ('"' | '\\')) => value.push(escaped),
                _ => return Err(malformed()),
            },
            other => value.push(other),
        }
    }
    if chars.next().is_some() || value.is_empty() {
        return Err(malformed());
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotency_keys_are_quoted_or_not() {
        let read = |text| unquote(text).ok();
        assert_eq!(read(r#""8e03978e""#).as_deref(), Some("8e03978e"));
        assert_eq!(read("8e03978e").as_deref(), Some("8e03978e"));
        assert_eq!(read(r#""a\"b\\c""#).as_deref(), Some(r#"a"b\c"#));
        for malformed in [r#"""#, r#""a"#, r#""a" b"#, r#""a\b""#, r#""""#] {
            assert_eq!(read(malformed), None, "{malformed}");
        }
    }
}
