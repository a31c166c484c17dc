//! The route of a seat: buying it, and giving it back.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    extract::{Request, State},
    http::StatusCode,
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::post,
};
use redlock_axum::{LockLayer, Locked, key, path};
use serde_json::json;
use tokio::{task::yield_now, time::sleep};

use crate::{
    event::Terms,
    office::BoxOffice,
    refusal::Refusal,
    request::{Buyer, OfSeat},
    turn::Turn,
};

/// How much longer than a payment a sale may hold its lock. A longer sale hangs.
const SLACK: Duration = Duration::from_secs(2);

/// Returns the route of the sales, behind the lock if there is one.
pub(crate) fn router(office: &Arc<BoxOffice>, terms: Terms) -> Router {
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
    let (store, locked) = (&office.store, locked.as_ref());
    store.write(&event, seat, Some(&name), locked).await?;
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
    let locked = locked.as_ref();
    office.store.write(&event, seat, None, locked).await?;
    event.changed();
    Ok(StatusCode::NO_CONTENT)
}
