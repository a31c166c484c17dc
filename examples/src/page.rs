//! What the pages of the programs share: files of this origin, and nothing from others.

use axum::{
    Router,
    http::{HeaderValue, header},
    routing::get,
};
use tower_http::set_header::SetResponseHeaderLayer;

/// Allows scripts, styles and connections of this origin, and nothing else.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Adds the style sheets and the scripts of a page, each with its path, and the headers that every answer has.
pub fn with_files(
    router: Router,
    style: &'static str,
    scripts: &[(&'static str, &'static str)],
) -> Router {
    let file = |kind, text| get(async move || ([(header::CONTENT_TYPE, kind)], text));
    let router = router
        .route("/base.css", file("text/css", include_str!("page/base.css")))
        .route("/style.css", file("text/css", style));
    let router = scripts.iter().fold(router, |router, &(path, text)| {
        router.route(path, file("text/javascript", text))
    });
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
