//! The files of the page.

use axum::{Router, response::Response};
use redlock_examples::page;

/// Returns the page itself, which is the same for all events.
pub(crate) fn html() -> Response {
    page::html(include_str!("page/index.html"))
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
    page::assets(include_str!("page/style.css"), &scripts)
}
