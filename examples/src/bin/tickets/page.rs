//! The page: some files, and nothing from other origins.

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

/// Returns the page itself, which is the same for all events.
pub(crate) fn html() -> Response {
    Html(include_str!("page/index.html")).into_response()
}

/// Returns the routes of the files that the page loads.
pub(crate) fn assets<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let scripts = [
        ("/main.js", include_str!("page/main.js")),
        ("/hall.js", include_str!("page/hall.js")),
        ("/journal.js", include_str!("page/journal.js")),
        ("/lines.js", include_str!("page/lines.js")),
        ("/nodes.js", include_str!("page/nodes.js")),
        ("/rush.js", include_str!("page/rush.js")),
        ("/sale.js", include_str!("page/sale.js")),
        ("/words.js", include_str!("page/words.js")),
        ("/you.js", include_str!("page/you.js")),
    ];
    let style = || async { as_type("text/css", include_str!("page/style.css")) };
    let router = Router::new().route("/style.css", get(style));
    scripts.into_iter().fold(router, |router, (path, text)| {
        router.route(path, get(async move || as_type("text/javascript", text)))
    })
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
