use std::{any::type_name, fmt};

use axum::{
    RequestPartsExt,
    extract::{
        FromRequestParts, MatchedPath, OriginalUri, RawPathParams,
        rejection::RawPathParamsRejection,
    },
    http::{HeaderName, request::Parts as Head},
    response::IntoResponse,
};
use futures::FutureExt;
use redlock_tower::KeyRejection;

use super::{body::BodyLimit, json::JsonField, part::KeyPart};

/// Takes a path parameter, percent-decoded.
///
/// On the route `/events/{event}/tickets`, `path("event")` is `rock am see` for `/events/rock%20am%20see/tickets`.
/// Since the value is decoded, `a%2Fb` and `a%2fb` are one resource. Parameters of outer routers, in which this one is
/// nested, are available too.
///
/// Parse the value if the handler does: to `Path<u64>`, `/orders/7` and `/orders/07` are one order, but their texts are
/// two keys. With `path("order").parse::<u64>()` they are one, see [`KeyPart::parse`].
///
/// If the parameter cannot be found, the result depends on the reason:
///
/// - No route matched: the request passes without a lock, to the router's fallback. The log has a warning the first
///   time. A closure `|request: &Request| ..` makes a key where there is no route.
/// - The route has no such parameter: the request gets a 500 that names the layer.
/// - The layer is below a `nest_service` whose path has no parameter at all: this looks like no match, so the request
///   passes without a lock.
/// - The layer is around the whole router: the request gets a 500. Use [`route_layer`](axum::Router::route_layer).
///
/// ```
/// use redlock_axum::{key, path};
///
/// let event = key("event", path("event"));
/// # drop(event);
/// ```
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

/// Takes the value of a header.
///
/// A request gets a 400 if the header is missing, repeated, empty, or contains characters other than visible ASCII.
///
/// The client chooses the spelling. If `7` and `07`, or `Acme` and `acme`, mean the same to the handler, add
/// [`parse`](KeyPart::parse) or [`map`](KeyPart::map).
///
/// ```
/// use redlock_axum::{header, key, path};
///
/// // `order:acme:42` for the order 42 of the tenant `acme`
/// let order = key("order", [header("x-tenant"), path("order").parse::<u64>()]);
/// // `payment:8e03` for both `Idempotency-Key: "8e03"` and `Idempotency-Key: 8e03`
/// let payment = key("payment", header("idempotency-key").map(|key| key.trim_matches('"').to_owned()));
/// # drop((order, payment));
/// ```
///
/// # Panics
///
/// Panics if the name is not valid for a header.
pub fn header(name: impl AsRef<str>) -> KeyPart {
    let name = name.as_ref();
    let Ok(name) = name.parse::<HeaderName>() else {
        panic!("`{}` is not a valid header name", name.escape_debug());
    };
    let part = format!("the header `{name}`");
    KeyPart::at_once(part.clone(), move |head| {
        let mut values = head.headers.get_all(&name).iter();
        let fault = match (values.next(), values.next()) {
            (None, _) => "is missing",
            (Some(_), Some(_)) => "occurs more than once",
            (Some(value), None) => match value.to_str() {
                Ok(value) if !value.is_empty() => return Ok(Some(value.to_owned())),
                _ => "is empty, or not visible ASCII",
            },
        };
        Err(KeyRejection::request(format!("{part} {fault}")))
    })
}

/// Takes a parameter of the query, percent-decoded, with `+` for a space.
///
/// A request gets a 400 if it lacks the parameter or has it more than once.
///
/// The client chooses the spelling. If `7` and `07`, or `Acme` and `acme`, mean the same to the handler, add
/// [`parse`](KeyPart::parse) or [`map`](KeyPart::map).
///
/// ```
/// use redlock_axum::{key, query};
///
/// // `shop:7` for `/orders?shop=7` and for `/orders?shop=07`
/// let shop = key("shop", query("shop").parse::<u32>());
/// # drop(shop);
/// ```
pub fn query(parameter: impl Into<String>) -> KeyPart {
    let parameter = parameter.into();
    let name = format!("`{parameter}` of the query");
    KeyPart::at_once(name, move |head| {
        let query = head.uri.query().unwrap_or_default();
        let mut values = form_urlencoded::parse(query.as_bytes())
            .filter(|(name, _)| **name == *parameter)
            .map(|(_, value)| value.into_owned());
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(Some(value)),
            (first, _) => {
                let count = first.map_or("no", |_| "more than one");
                Err(KeyRejection::request(format!(
                    "the query has {count} `{parameter}`"
                )))
            }
        }
    })
}

/// Takes the route, such as `/orders/{order}`.
///
/// With `key("route", matched_path())`, all requests for one route run one at a time. A request that no route matched
/// passes without a lock, and the log has a warning the first time. Below a `nest_service` there is no route: the request
/// gets a 500 if the path has a parameter, and otherwise passes without a lock.
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

/// Takes a value from an extractor that needs neither the body nor the router's state.
///
/// Use it for an extension that an outer layer has put into the request, such as the authenticated user, for a typed
/// header, or for an extractor of your own. For the type of a single value, [`parse`](KeyPart::parse) is shorter.
///
/// A request that the extractor rejects gets a 400. If the rejection is a 5xx, as it is for a missing extension, the
/// layers are in the wrong order, and the answer is a 500 whose cause is in the log.
///
/// ```
/// use axum::{Extension, extract::Path};
/// use redlock_axum::{key, typed};
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let seat = typed(|Path((row, seat)): Path<(u8, u8)>| format!("{row}/{seat}"));
/// let user = typed(|Extension(user): Extension<User>| user.id);
/// let seat_of_user = key("seat", [user, seat]);
/// # drop(seat_of_user);
/// ```
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
                Err(rejection) => {
                    let text = rejection.to_string();
                    let is_of_service = rejection.into_response().status().is_server_error();
                    Err(match is_of_service {
                        true => KeyRejection::layer(text),
                        false => KeyRejection::request(text),
                    })
                }
            }
        }
        .boxed()
    })
}

/// Takes a field of a JSON body. `order.id` is the field `id` of the object `order`.
///
/// A dot always separates names. Elements of arrays cannot be named. The `Content-Type` is not checked. A request gets
/// a 400 if its body is not JSON, or if the field is missing, empty, null, a boolean, an array or an object.
///
/// The field must be a string, or a whole number of at most 64 bits. `"42"` and `42` are the same key, but `"042"` is
/// another one: if the handler reads a number or anything else from the string, add [`parse`](KeyPart::parse) or
/// [`map`](KeyPart::map). Other numbers (`42.0`, `4.2e1`, `-0`, numbers with more digits) get a 400, since their key
/// would depend on the program that writes or reads them: send those as strings. JavaScript reads whole numbers exactly
/// only up to 2^53, so send larger ones as strings there. A field that occurs twice gets a 400 too, since parsers
/// differ in which one they take.
///
/// The layer reads the whole body before it waits for the lock, and passes the body on to the handler. This time is
/// not part of [`wait`](crate::LockLayer::wait). A body with more bytes than the [`BodyLimit`] gets a 413, and a body
/// that does not arrive in time gets a 408. If a key has several fields, the strictest limits count.
///
/// ```
/// use redlock_axum::{json_field, key};
///
/// // `account:7` for `{"account": {"id": 7}}`, in at most 4096 bytes
/// let account = key("account", json_field("account.id", 4096));
/// # drop(account);
/// ```
pub fn json_field(field: impl Into<String>, limit: impl Into<BodyLimit>) -> KeyPart {
    let field = field.into();
    let name = format!("the field `{field}`");
    let limit = limit.into();
    KeyPart::json(name, JsonField { field, limit })
}

/// Reads the parameters of the matched route. If no route matched, there are none.
async fn path_params(head: &mut Head) -> Result<RawPathParams, KeyRejection> {
    // Every router adds this extension, even if no route matches.
    if head.extensions.get::<OriginalUri>().is_none() {
        return Err(KeyRejection::layer(
            "it is around the whole router, where no route is known yet; \
             add it to the router with route_layer",
        ));
    }
    let params = head.extract().await;
    params.map_err(|error: RawPathParamsRejection| KeyRejection::request(error.to_string()))
}

fn route_of(head: &Head) -> Option<&str> {
    head.extensions.get().map(MatchedPath::as_str)
}
