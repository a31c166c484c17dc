//! The demonstration: twenty buyers want one seat at the same moment, with the lock and without it. They use the
//! handlers and the lock layer of all sales, but two halls of their own, so that they do not disturb the real
//! sales.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::StatusCode,
    routing::post,
};
use futures::future::{join, join_all};
use redlock_axum::{LockLayer, key, matched_path};
use serde::Serialize;
use serde_json::Value;
use tokio::time::sleep;
use tower::ServiceExt;

use crate::{
    event::{Event, Terms},
    office::BoxOffice,
    refusal::Refusal,
    request::Buyer,
    seat,
    store::Store,
};

/// The names of the buyers.
const BUYERS: [&str; 20] = [
    "Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Ida", "Jack", "Kim", "Leo", "Mia",
    "Ned", "Ola", "Pia", "Ray", "Sue", "Tom", "Una",
];

/// The seat that all buyers want.
const SEAT: u32 = 1;

/// Long enough to be watched.
const PAYMENT: Duration = Duration::from_millis(1500);

/// How long the buyers wait, which is longer than the one payment takes.
const WAIT: Duration = Duration::from_secs(4);

/// The longest answer to a sale is a problem of some hundred bytes.
const ANSWER_LIMIT: usize = 16 * 1024;

/// Creates the two halls, of one seat each.
pub(crate) fn halls() -> Vec<Arc<Event>> {
    let hall = |name, locked| {
        let terms = Terms {
            seats: SEAT,
            payment: PAYMENT,
            wait: WAIT,
            locked,
        };
        Arc::new(Event::demonstration(name, terms))
    };
    vec![hall("with-lock", true), hall("without-lock", false)]
}

/// Returns the routes that send the buyers.
///
/// The routes are no load tool. A rush takes as long as a payment, and a lock around these routes admits one rush
/// at a time to each hall, across all processes.
pub(crate) fn router(office: &BoxOffice) -> Router {
    let one_at_a_time = LockLayer::new(office.redlock.clone(), key("rush", matched_path()))
        .wait(Duration::ZERO)
        .fail_open(true) // without a quorum, the answers of the buyers show the effect
        .label("rushes")
        .tasks(office.handlers.clone());
    let demonstration = Arc::new(BoxOffice {
        events: office.demonstration.clone(),
        demonstration: Vec::new(),
        ..office.clone()
    });
    let mut router = Router::new();
    for (path, hall) in ["/rushes/with-lock", "/rushes/without-lock"]
        .into_iter()
        .zip(&demonstration.events)
    {
        let rush = Rush {
            hall: Arc::clone(hall),
            store: demonstration.store.clone(),
            sales: seat::router(&demonstration, hall.terms),
        };
        let send = post(send).route_layer(one_at_a_time.clone());
        router = router.merge(Router::new().route(path, send).with_state(rush));
    }
    router
}

/// The state of a route.
#[derive(Clone)]
struct Rush {
    hall: Arc<Event>,
    store: Store,
    /// The routes of the sales, which the buyers call directly.
    sales: Router,
}

/// The outcome of a rush.
#[derive(Debug, Serialize)]
struct Outcome {
    /// How often the seat was sold.
    sold: usize,
    /// The owner of the seat afterwards.
    owner: Option<String>,
    buyers: Vec<Answered>,
}

/// The answer to a buyer.
#[derive(Debug, Serialize)]
struct Answered {
    name: &'static str,
    status: u16,
    /// The type of the problem, if the answer is one.
    problem: Option<String>,
}

/// Frees the seat, sends the buyers, and returns their answers.
async fn send(State(rush): State<Rush>, _: Buyer) -> Result<Json<Outcome>, Refusal> {
    rush.store.write(&rush.hall, SEAT, None, None).await?;
    rush.hall.changed();
    let buyers = join_all(BUYERS.map(|name| rush.buy(name)));
    let (buyers, ()) = join(buyers, sleep(PAYMENT)).await; // not faster if all are refused at once
    let is_sold = |it: &&Answered| it.status == StatusCode::CREATED;
    let sold = buyers.iter().filter(is_sold).count();
    let owner = rush.store.owner(&rush.hall, SEAT).await?;
    Ok(Json(Outcome {
        sold,
        owner,
        buyers,
    }))
}

impl Rush {
    /// Buys the seat with an ordinary request.
    async fn buy(&self, name: &'static str) -> Answered {
        let path = format!("/events/{}/seats/{SEAT}", self.hall.name.as_str());
        let request = Request::post(path).header("buyer", name);
        // A path of letters and digits, and a name of letters, always make a request.
        let request = request.body(Body::empty()).unwrap_or_default();
        let Ok(response) = self.sales.clone().oneshot(request).await;
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), ANSWER_LIMIT).await;
        let answer: Option<Value> = body.ok().and_then(|it| serde_json::from_slice(&it).ok());
        let problem = answer.and_then(|it| it["type"].as_str().map(str::to_owned));
        Answered {
            name,
            status,
            problem,
        }
    }
}
