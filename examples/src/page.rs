//! What the pages of the programs share: files of this origin, and nothing from others.

use axum::{
    Router,
    http::{HeaderValue, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use tower_http::set_header::SetResponseHeaderLayer;

/// Allows scripts, styles and connections of this origin, and nothing else.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the answer with a page.
#[must_use]
pub fn html(text: &'static str) -> Response {
    Html(text).into_response()
}

/// Returns the routes of the style sheets and the scripts of a page.
pub fn assets<S: Clone + Send + Sync + 'static>(
    style: &'static str,
    scripts: &[(&'static str, &'static str)],
) -> Router<S> {
    let css = |text| get(async move || as_type("text/css", text));
    let router = Router::new()
        .route("/base.css", css(include_str!("page/base.css")))
        .route("/style.css", css(style));
    scripts.iter().fold(router, |router, &(path, text)| {
        router.route(path, get(async move || as_type("text/javascript", text)))
    })
}

/// Adds the headers that every answer has.
pub fn with_headers(router: Router) -> Router {
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
