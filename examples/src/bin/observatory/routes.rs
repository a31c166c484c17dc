//! The routes: the page, what it shows, and its buttons.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{
        Path, State,
        rejection::{JsonRejection, PathRejection},
    },
    response::{
        Html,
        sse::{Event, KeepAlive, Sse},
    },
    routing::{delete, get, put},
};
use futures::{Stream, StreamExt, stream};
use redlock_examples::{millis, page};
use serde::{Deserialize, Serialize};
use tokio::{sync::Semaphore, time::sleep};

use crate::{
    client::Plan,
    journal::{Entry, Journal},
    name::Name,
    node::Act,
    onlooker::Onlooker,
    refusal::Refusal,
    snapshot::Snapshot,
    stage::Stage,
};

/// The time between two messages to an open page.
const INTERVAL: Duration = Duration::from_millis(200);

/// How many pages may be open.
const PAGES: usize = 50;

/// What is observed.
pub(crate) enum Observatory {
    /// Embedded nodes, with clients and buttons.
    Staged(Stage),
    /// Real nodes, which the program only looks at.
    Real(Arc<Onlooker>),
}

impl Observatory {
    fn stage(&self) -> Result<&Stage, Refusal> {
        match self {
            Self::Staged(stage) => Ok(stage),
            Self::Real(_) => Err(Refusal::OnlyLooks),
        }
    }

    fn journal(&self) -> &Journal {
        match self {
            Self::Staged(stage) => &stage.surroundings.journal,
            Self::Real(onlooker) => &onlooker.journal,
        }
    }

    fn snapshot(&self) -> Snapshot {
        match self {
            Self::Staged(stage) => Snapshot::of_stage(stage),
            Self::Real(onlooker) => Snapshot::of_onlooker(onlooker),
        }
    }
}

/// A message to an open page.
#[derive(Serialize)]
struct Message {
    /// The time since the start of the program.
    now_ms: u64,
    /// What has happened since the last message.
    entries: Vec<Entry>,
    #[serde(flatten)]
    snapshot: Snapshot,
}

type Shared = State<Arc<Observatory>>;

/// Puts the routes together. Open pages end with this future.
///
/// The buttons use PUT and DELETE, which a page of another origin may not send.
pub(crate) fn router(
    observatory: Arc<Observatory>,
    stop: impl Future<Output = ()> + Clone + Send + Sync + 'static,
) -> Router {
    let pages = Arc::new(Semaphore::new(PAGES));
    let live = async move |State(observatory): Shared| live(observatory, pages, stop);
    let scripts = [
        ("/main.js", include_str!("page/main.js")),
        ("/nodes.js", include_str!("page/nodes.js")),
        ("/clients.js", include_str!("page/clients.js")),
        ("/timeline.js", include_str!("page/timeline.js")),
        ("/elements.js", include_str!("page/elements.js")),
    ];
    let html = || async { Html(include_str!("page/index.html")) };
    let router = Router::new()
        .route("/", get(html))
        .route("/live", get(live))
        .route("/nodes/{index}", put(act))
        .route("/clients/{name}", put(add_client))
        .route("/clients/{name}/runs", put(run_client))
        .route("/clients/{name}", delete(remove_client))
        .route("/keys/{name}", put(add_key))
        .with_state(observatory);
    page::with_files(router, include_str!("page/style.css"), &scripts)
}

/// Sends what the page shows, five times a second.
fn live(
    observatory: Arc<Observatory>,
    pages: Arc<Semaphore>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let open = pages.try_acquire_owned();
    let open = open.map_err(|_| Refusal::Pages(PAGES))?;
    let first = (observatory, None);
    let messages = stream::unfold(first, move |(observatory, next)| {
        let _ = &open; // as long as the page
        async move {
            if next.is_some() {
                sleep(INTERVAL).await;
            }
            let (entries, next) = observatory.journal().since(next.unwrap_or(0));
            let message = Message {
                now_ms: millis(observatory.journal().now()),
                entries,
                snapshot: observatory.snapshot(),
            };
            // Strings, numbers and lists of them always serialise.
            let event = Event::default().json_data(message).unwrap_or_default();
            Some((Ok(event), (observatory, Some(next))))
        }
    });
    Ok(Sse::new(messages.take_until(stop)).keep_alive(KeepAlive::default()))
}

/// What the path names, and the body. Both are errors of the request if they cannot be read.
type InPath<T> = Result<Path<T>, PathRejection>;
type Body<T> = Result<Json<T>, JsonRejection>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deed {
    act: Act,
}

async fn act(
    State(observatory): Shared,
    index: InPath<usize>,
    deed: Body<Deed>,
) -> Result<(), Refusal> {
    observatory.stage()?.act(index?.0, deed?.0.act)
}

async fn add_client(
    State(observatory): Shared,
    name: InPath<Name>,
    plan: Body<Plan>,
) -> Result<(), Refusal> {
    observatory.stage()?.add(name?.0, plan?.0)
}

/// Kills a client (`false`), or starts it again (`true`).
async fn run_client(
    State(observatory): Shared,
    name: InPath<Name>,
    runs: Body<bool>,
) -> Result<(), Refusal> {
    observatory.stage()?.run(name?.0, runs?.0)
}

async fn remove_client(State(observatory): Shared, name: InPath<Name>) -> Result<(), Refusal> {
    observatory.stage()?.remove(name?.0)
}

/// Adds a key to look at.
async fn add_key(State(observatory): Shared, key: InPath<Name>) -> Result<(), Refusal> {
    match &*observatory {
        Observatory::Real(onlooker) => onlooker.add(key?.0),
        Observatory::Staged(_) => Err(Refusal::OfClients),
    }
}
