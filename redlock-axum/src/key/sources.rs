use std::{any::type_name, fmt};

use axum::{
    RequestPartsExt,
    extract::{
        FromRequestParts, MatchedPath, OriginalUri, RawPathParams, RawQuery,
        rejection::RawPathParamsRejection,
    },
    http::{HeaderName, request::Parts as Head},
};
use futures::FutureExt;
use redlock_tower::KeyRejection;

use super::{body::BodyLimit, json::JsonField, part::KeyPart};

/// Takes a path parameter: on the route `/events/{event}/tickets`, `path("event")` is `rock am see` for
/// `/events/rock%20am%20see/tickets`.
///
/// The value is percent-decoded, so that `a%2Fb` and `a%2fb` are one resource. Parameters of routers
/// that this one is nested in are there too.
///
/// Requests that no route matched pass without a lock. So do those to a `nest_service` whose path has no
/// parameter, which look the same from here.
pub fn path(parameter: impl Into<String>) -> KeyPart {
    let parameter = parameter.into();
    let name = format!("the path parameter `{parameter}`");
    KeyPart::new(name, move |head| {
        let parameter = parameter.clone();
        async move {
            let params = path_params(head).await?;
            let value = params.iter().find(|(name, _)| **name == *parameter);
            if let Some((_, value)) = value {
                return Ok(Some(value.to_owned()));
            }
            let route = match route_of(head) {
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

/// Takes a header, as it is. A request without it is at fault, and so is one that has it
/// twice, or with anything but visible ASCII in it.
///
/// # Panics
///
/// If the name cannot be that of a header.
pub fn header(name: impl AsRef<str>) -> KeyPart {
    let name = header_name(name.as_ref());
    KeyPart::at_once(format!("the header `{name}`"), move |head| {
        one_header(head, &name).map(Some)
    })
}

/// Takes the header `Idempotency-Key`, which is a quoted string
/// (draft-ietf-httpapi-idempotency-key-header, RFC 9651 section 3.3.3): `"8e03978e-40d5"`. Without the
/// quotes, as many clients write it, it is taken as it is.
#[must_use]
pub fn idempotency_key() -> KeyPart {
    let name = HeaderName::from_static("idempotency-key");
    KeyPart::at_once(format!("the header `{name}`"), move |head| {
        let value = one_header(head, &name)?;
        unquote(&value).map(Some)
    })
}

/// Takes a parameter of the query, percent-decoded, with `+` for a space. A request without
/// it is at fault, and so is one that has it twice.
pub fn query(parameter: impl Into<String>) -> KeyPart {
    let parameter = parameter.into();
    let name = format!("`{parameter}` of the query");
    KeyPart::new(name, move |head| {
        let parameter = parameter.clone();
        async move {
            let Ok(RawQuery(query)) = head.extract().await;
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

/// Takes a value of an extension that an outer layer has put into the request, such as the user who was
/// authenticated: `extension(|user: &User| user.id)`. If it is not there, the layers are in the wrong order,
/// and the answer is a 500 that says so.
pub fn extension<T, V>(value: impl Fn(&T) -> V + Send + Sync + 'static) -> KeyPart
where
    T: Clone + Send + Sync + 'static,
    V: fmt::Display,
{
    let name = format!("the extension `{}`", type_name::<T>());
    KeyPart::at_once(name, move |head| match head.extensions.get::<T>() {
        Some(extension) => Ok(Some(value(extension).to_string())),
        None => Err(KeyRejection::layer(format!(
            "the request has no extension `{}`: put the layer that adds it outside of this one",
            type_name::<T>()
        ))),
    })
}

/// Takes the route itself, such as `/orders/{order}`: under `key("route", matched_path())` all requests that it
/// matches run one at a time. Requests that no route matched pass without a lock. Not for `nest_service`,
/// where no route is known.
#[must_use]
pub fn matched_path() -> KeyPart {
    KeyPart::new("the matched path", |head| {
        async move {
            let params = path_params(head).await?;
            match route_of(head) {
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

/// Takes what an extractor without state reads from the request's head, such as a typed header or a `Path`
/// with its own type: `typed(|Path(order): Path<u64>| order)`. A request that the extractor rejects is at fault.
pub fn typed<E, V>(value: impl Fn(E) -> V + Clone + Send + Sync + 'static) -> KeyPart
where
    E: FromRequestParts<()> + Send + 'static,
    E::Rejection: fmt::Display,
    V: fmt::Display + Send,
{
    let name = format!("the value of `{}`", type_name::<E>());
    KeyPart::new(name, move |head| {
        let value = value.clone();
        async move {
            match head.extract::<E>().await {
                Ok(extracted) => Ok(Some(value(extracted).to_string())),
                Err(rejection) => Err(KeyRejection::request(rejection.to_string())),
            }
        }
        .boxed()
    })
}

/// Takes a field of a JSON body: `json_field("account", 64 * 1024)`. `order.id` is the field `id` of the object
/// `order`.
///
/// The field is a string, or a whole number of at most 64 bits, which is taken as it is written. These have one
/// spelling in every language. Other numbers are answered with 400, since their keys would depend on who
/// wrote or read them: `42.0`, `4.2e1`, `-0`, and numbers of more digits. Send those as strings. (JavaScript
/// reads whole numbers exactly up to 2^53; send larger ones as strings there too.) `"42"` and `42` are the same
/// key. A field that is there twice is answered with 400: readers differ in which of them they take.
///
/// The body is read whole before the layer waits for the lock, and given back to the handler. This time is not
/// part of [`wait`](crate::LockLayer::wait). One with more bytes than the [`BodyLimit`] is answered with 413, and
/// one that takes longer with 408. If a key has several fields, the strictest of their limits counts.
pub fn json_field(field: impl Into<String>, limit: impl Into<BodyLimit>) -> KeyPart {
    let field = field.into();
    let name = format!("the field `{field}`");
    let limit = limit.into();
    KeyPart::json(name, JsonField { field, limit })
}

/// Reads the parameters of the route that matched; none if no route did.
async fn path_params(head: &mut Head) -> Result<RawPathParams, KeyRejection> {
    // Each router leaves this behind, also where no route matches.
    if head.extensions.get::<OriginalUri>().is_none() {
        return Err(KeyRejection::layer(
            "it is around the whole router, where no route is known yet; \
             add it to the router, with route_layer",
        ));
    }
    let params = head.extract().await;
    params.map_err(|error: RawPathParamsRejection| KeyRejection::request(error.to_string()))
}

fn route_of(head: &Head) -> Option<&str> {
    head.extensions.get().map(MatchedPath::as_str)
}

fn header_name(name: &str) -> HeaderName {
    name.parse()
        .unwrap_or_else(|_| panic!("`{}` is no header's name", name.escape_debug()))
}

fn one_header(head: &Head, name: &HeaderName) -> Result<String, KeyRejection> {
    let mut values = head.headers.get_all(name).iter();
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
