//! The routes: pages, state and sales.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    extract::{Request, State},
    http::StatusCode,
    middleware::{Next, from_fn_with_state},
    response::{
        IntoResponse, Redirect, Response,
        sse::{Event as SseEvent, KeepAlive, Sse},
    },
    routing::{get, post},
};
use futures::{
    Stream, StreamExt,
    future::{join, join_all, ready},
    stream,
};
use redlock_axum::{LockLayer, Locked, key, path};
use serde_json::json;
use tokio::{task::yield_now, time::sleep};

use crate::{
    event::{Event, Terms},
    line::Turn,
    office::BoxOffice,
    page,
    refusal::Refusal,
    request::{Buyer, OfEvent, OfSeat},
    rush,
};

/// How many pages of an event may be open in this process. A page that does not read costs buffers: some hundred
/// kilobytes if a thousand people with long names wait.
const ONLOOKERS: usize = 500;

/// How much longer than a payment a sale may hold its lock. A longer sale hangs.
const SLACK: Duration = Duration::from_secs(2);

/// Puts the routes together.
pub(crate) fn router(office: Arc<BoxOffice>, terms: Terms) -> Router {
    let sales = sales(&office, terms);
    let rushes = rush::router(&office);
    let router = Router::new()
        .route("/", get(first_event))
        .route("/events/{event}", get(show_page))
        .route("/events/{event}/seats", get(seats))
        .route("/events/{event}/live", get(live))
        .with_state(office)
        .merge(sales)
        .merge(rushes)
        .merge(page::assets());
    page::with_headers(router)
}

/// Returns the route of the sales, behind the lock if there is one.
pub(crate) fn sales(office: &Arc<BoxOffice>, terms: Terms) -> Router {
    let mut sales = post(buy).delete(give_back);
    if terms.locked {
        // Each seat has a queue of its own.
        let seat = key("seat", [path("event"), path("seat")]);
        let lock = LockLayer::new(office.redlock.clone(), seat)
            .wait(terms.wait)
            .max_hold(terms.payment.saturating_add(SLACK))
            .label("seats")
            .tasks(office.handlers.clone());
        sales = sales.route_layer(lock);
    }
    // Outside of the lock, since it shows the people who wait for the lock.
    let sales = sales.route_layer(from_fn_with_state(Arc::clone(office), line_up));
    Router::new()
        .route("/events/{event}/seats/{seat}", sales)
        .with_state(Arc::clone(office))
}

async fn first_event(State(office): State<Arc<BoxOffice>>) -> Result<Redirect, Refusal> {
    let first = office.events.first().ok_or(Refusal::NoEvent)?;
    Ok(Redirect::temporary(&format!(
        "/events/{}",
        first.name.as_str()
    )))
}

async fn show_page(_: OfEvent) -> Response {
    page::html()
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

/// Shows the buyer in the line for the seat, from before the wait for the lock until after its release.
async fn line_up(
    OfSeat { event, seat }: OfSeat,
    Buyer(name): Buyer,
    mut request: Request,
    next: Next,
) -> Response {
    let turn = Turn::wait(event, seat, &name);
    request.extensions_mut().insert(turn);
    next.run(request).await
}

/// Sells a seat: reads the owner, waits for the payment, and writes the owner. The lock makes the three steps
/// atomic.
///
/// The owner of the seat gets the same answer again, so that a client without an answer may repeat its request.
async fn buy(
    State(office): State<Arc<BoxOffice>>,
    OfSeat { event, seat }: OfSeat,
    Buyer(name): Buyer,
    Extension(turn): Extension<Turn>,
    locked: Option<Locked>,
) -> Result<Response, Refusal> {
    let ticket = Json(json!({ "event": event.name.as_str(), "seat": seat, "owner": name }));
    match office.store.owner(&event, seat).await? {
        Some(owner) if owner == name => return Ok(ticket.into_response()),
        Some(owner) => return Err(Refusal::Sold { owner }),
        None => {}
    }
    turn.pay();
    // Without the lock, another buyer may find the seat free during the payment.
    if event.terms.payment.is_zero() {
        yield_now().await; // a timer takes up to a millisecond
    } else {
        sleep(event.terms.payment).await;
    }
    let till = office.store.till().await?;
    if let Some(locked) = locked {
        locked.ensure()?; // just before the step that counts
    }
    till.sell(&event, seat, &name).await?;
    event.changed();
    Ok((StatusCode::CREATED, ticket).into_response())
}

/// Takes a seat back from its owner.
async fn give_back(
    State(office): State<Arc<BoxOffice>>,
    OfSeat { event, seat }: OfSeat,
    Buyer(name): Buyer,
    locked: Option<Locked>,
) -> Result<StatusCode, Refusal> {
    let owner = office.store.owner(&event, seat).await?;
    let owner = owner.ok_or(Refusal::NotSold)?;
    if owner != name {
        return Err(Refusal::NotYours { owner });
    }
    let till = office.store.till().await?;
    if let Some(locked) = locked {
        locked.ensure()?;
    }
    till.take_back(&event, seat).await?;
    event.changed();
    Ok(StatusCode::NO_CONTENT)
}
