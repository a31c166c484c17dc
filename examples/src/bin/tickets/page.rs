//! The page: three files, without anything from elsewhere.

use axum::{
    Router,
    http::{HeaderValue, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use tower_http::set_header::SetResponseHeaderLayer;

/// Scripts, styles and connections of this origin, and nothing else.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the page itself, which is the same for all events.
pub(crate) fn html() -> Response {
    Html(include_str!("page/index.html")).into_response()
}

/// Returns the routes of what the page loads.
pub(crate) fn assets<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let style = || async { as_type("text/css", include_str!("page/style.css")) };
    let script = || async { as_type("text/javascript", include_str!("page/script.js")) };
    Router::new()
        .route("/style.css", get(style))
        .route("/script.js", get(script))
}

/// Adds the headers that every answer has.
pub(crate) fn with_headers(router: Router) -> Router {
    let header =
        |name, value| SetResponseHeaderLayer::if_not_present(name, HeaderValue::from_static(value));
    router
        .layer(header(header::CACHE_CONTROL, "no-store"))
        .layer(header(
            header::CONTENT_SECURITY_POLICY,
            CONTENT_SECURITY_POLICY,
        ))
        .layer(header(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
}

fn as_type(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
