//! The routes: pages, state and sales.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Json, Router,
    extract::State,
    response::{
        Html, IntoResponse, Redirect, Response,
        sse::{Event as SseEvent, KeepAlive, Sse},
    },
    routing::get,
};
use futures::{
    Stream, StreamExt,
    future::{join, join_all, ready},
    stream,
};
use redlock_examples::page;

use crate::{
    event::{Event, Terms},
    office::BoxOffice,
    refusal::Refusal,
    request::OfEvent,
    rush, seat,
};

/// How many pages of an event may be open in this process. A page that does not read costs buffers: some hundred
/// kilobytes if a thousand people with long names wait.
const ONLOOKERS: usize = 500;

/// Puts the routes together.
pub(crate) fn router(office: Arc<BoxOffice>, terms: Terms) -> Router {
    let sales = seat::router(&office, terms);
    let rushes = rush::router(&office);
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
    let router = Router::new()
        .route("/", get(first_event))
        .route("/events/{event}", get(show_page))
        .route("/events/{event}/seats", get(seats))
        .route("/events/{event}/live", get(live))
        .with_state(office)
        .merge(sales)
        .merge(rushes);
    page::with_files(router, include_str!("page/style.css"), &scripts)
}

async fn first_event(State(office): State<Arc<BoxOffice>>) -> Result<Redirect, Refusal> {
    let first = office.events.first().ok_or(Refusal::NoEvent)?;
    Ok(Redirect::temporary(&format!(
        "/events/{}",
        first.name.as_str()
    )))
}

/// Returns the page itself, which is the same for all events.
async fn show_page(_: OfEvent) -> Html<&'static str> {
    Html(include_str!("page/index.html"))
}

/// Returns the sales and the people in line. A GET needs no lock.
async fn seats(
    State(office): State<Arc<BoxOffice>>,
    OfEvent(event): OfEvent,
) -> Result<Response, Refusal> {
    Ok(Json(office.look(&event).await?).into_response())
}

/// Sends the same after each change, as server-sent events, and the state of the demonstration as events of the
/// type `rush`. A client that reads slowly misses some states.
async fn live(
    State(office): State<Arc<BoxOffice>>,
    OfEvent(event): OfEvent,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Refusal> {
    if event.snapshots.receiver_count() >= ONLOOKERS {
        return Err(Refusal::Crowded);
    }
    let rushes = office
        .demonstration
        .iter()
        .map(|hall| snapshots(&office, hall));
    let (hall, rushes) = join(snapshots(&office, &event), join_all(rushes)).await;
    let hall = hall.map(|it| SseEvent::default().data(it));
    let rushes = stream::select_all(rushes).map(|it| SseEvent::default().event("rush").data(it));
    let stream = stream::select(hall, rushes)
        .map(Ok)
        // An open page must not keep the process from stopping.
        .take_until(office.closing.clone());
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

/// Returns the state of a hall, now and after each change.
async fn snapshots(
    office: &BoxOffice,
    hall: &Event,
) -> impl Stream<Item = Arc<str>> + Unpin + use<> {
    let snapshots = hall.snapshots.subscribe(); // first, so that no change is missed
    let first = office.look_or_remember(hall).await.json();
    let seen = (snapshots, Arc::clone(&first));
    let next = stream::unfold(seen, async |(mut snapshots, shown)| {
        // Each page compares with the state that it showed last.
        loop {
            snapshots.changed().await.ok()?;
            let snapshot = Arc::clone(&snapshots.borrow_and_update());
            if snapshot != shown {
                return Some((Arc::clone(&snapshot), (snapshots, snapshot)));
            }
        }
    });
    Box::pin(stream::once(ready(first)).chain(next))
}
