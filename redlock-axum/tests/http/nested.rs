//! Several layers around one handler. A key that an outer one holds is not locked again.

use std::{future::pending, sync::Arc};

use axum::{
    Router,
    extract::Request,
    http::{Method, StatusCode},
    middleware::{Next, from_fn},
    response::IntoResponse,
    routing::post as routed_post,
};
use redlock_axum::{
    CompositeKey, LockLayer, LockLost, LockRequest, Locked, OnLost, RequestKey, key, path,
};
use tokio::time::{sleep, timeout};

use crate::support::{Bed, MS, event_route, keys_of, post, problem, rock, send, text};

fn account(it: &Bed, name: &str) -> LockLayer<CompositeKey> {
    let key = key("account", path(name));
    LockLayer::new(it.redlock.clone(), key).wait(MS(50))
}

/// A route `/{from}/{to}` with two layers, whose handler responds with its keys and says which keys are held.
fn app<I: RequestKey, O: RequestKey>(it: &Bed, inner: LockLayer<I>, outer: LockLayer<O>) -> Router {
    let nodes = it.nodes.clone();
    let handler = async move |locked: Locked| {
        locked.ensure().unwrap();
        let keys = keys_of(&locked);
        let held = ["account:3", "account:7"].map(|key| nodes.is_locked(key));
        format!("{keys}, 3: {}, 7: {}", held[0], held[1])
    };
    Router::new()
        .route("/{from}/{to}", routed_post(handler))
        .route_layer(inner)
        .route_layer(outer)
}

#[tokio::test(start_paused = true)]
async fn an_inner_layer_locks_the_keys_that_no_outer_one_of_its_redlock_holds() {
    let it = Bed::new().await;
    let one = app(&it, account(&it, "from"), account(&it, "to"));
    let both = (key("account", path("from")), key("account", path("to")));
    let both = LockLayer::new(it.redlock.clone(), both).wait(MS(50));
    let both = app(&it, both, account(&it, "to"));
    let other = Bed::new().await;
    let elsewhere = app(&it, account(&it, "from"), account(&other, "to"));
    for (app, uri, said) in [
        (&one, "/7/3", "account:7, 3: true, 7: true"),
        (&one, "/7/7", "account:7, 3: false, 7: true"),
        (&both, "/3/7", "account:3, 3: true, 7: true"),
        (&both, "/7/7", "account:7, 3: false, 7: true"),
        (&elsewhere, "/7/7", "account:7, 3: false, 7: true"),
    ] {
        assert_eq!(text(post(app, uri).await).await, said);
    }
    // Another process holds the lock that both layers want.
    let _other = it.nodes.contend("account:7").await.unwrap();
    problem(post(&one, "/7/7").await, 423, "locked").await;
    // A layer that wants no key at all is refused, even if an outer one holds a lock.
    let none = LockLayer::new(it.redlock.clone(), |_: &Request| LockRequest::all([""; 0]));
    let none = app(&it, none, account(&it, "to"));
    problem(post(&none, "/3/9").await, 400, "key").await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_released_does_not_count() {
    let it = Bed::new().await;
    let release = from_fn(async |request: Request, next: Next| {
        let locked = request.extensions().get::<Locked>().unwrap().clone();
        locked.release_early().await;
        next.run(request).await
    });
    let inner = account(&it, "from");
    let handler = async |locked: Locked| locked.ensure().map(|()| "held");
    let app = Router::new()
        .route("/{from}/{to}", routed_post(handler))
        .route_layer(inner)
        .route_layer(release)
        .route_layer(account(&it, "to"));
    assert_eq!(text(post(&app, "/7/7").await).await, "held");
}

/// In a task of its own it would run on without the lock of the outer layer.
#[tokio::test(start_paused = true)]
async fn a_handler_that_loses_its_outer_call_does_not_run_on() {
    let it = Bed::new().await;
    let handler = |running: &Arc<()>| {
        let running = Arc::downgrade(running);
        async move || {
            let _running = running.upgrade();
            pending::<()>().await;
        }
    };
    let cancels = account(&it, "to").cancel_on_disconnect();
    let cancels_on_loss = account(&it, "to").on_lost(OnLost::Cancel).max_hold(MS(300));
    let ends_in_between = account(&it, "to");
    let give_up = from_fn(async |request: Request, next: Next| {
        let response = timeout(MS(200), next.run(request)).await;
        response.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
    });
    for (outer, gives_up) in [
        (cancels, false),
        (cancels_on_loss, false),
        (ends_in_between, true),
    ] {
        let running = Arc::new(());
        let app = Router::new().route("/{from}/{to}", routed_post(handler(&running)));
        let app = app.route_layer(account(&it, "from"));
        let app = match gives_up {
            true => app.route_layer(give_up.clone()),
            false => app,
        };
        let app = app.route_layer(outer.ttl(MS(500)));
        let _ = timeout(MS(1000), post(&app, "/3/7")).await;
        sleep(MS(50)).await;
        assert!(!it.nodes.is_locked("account:7"));
        let handlers = Arc::strong_count(&running) - 1;
        assert_eq!(handlers, 0, "the handler runs without the lock");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_detects_the_loss_of_any_of_its_locks() {
    for lost in ["account:3", "account:7"] {
        let it = Bed::new().await;
        let nodes = it.nodes.clone();
        let handler = async move |locked: Locked| {
            locked.ensure()?;
            nodes.lose_held(lost);
            let detected = timeout(MS(60_000), locked.lost()).await;
            detected.expect("the loss is detected");
            locked.ensure()?;
            Ok::<_, LockLost>("committed")
        };
        let app = Router::new()
            .route("/{from}/{to}", routed_post(handler))
            .route_layer(account(&it, "from"))
            .route_layer(account(&it, "to"));
        problem(post(&app, "/3/7").await, 500, "lost").await;
    }
}

/// A route with two layers for one key. Its handler says which slot the innermost lock has, and whether it reads.
fn nested(inner: LockLayer<impl RequestKey>, outer: LockLayer<impl RequestKey>) -> Router {
    let handler = async |locked: Locked| format!("{:?}, {}", locked.slot(), locked.is_reader());
    event_route(handler, inner).route_layer(outer)
}

#[tokio::test(start_paused = true)]
async fn an_inner_layer_relies_on_a_lock_of_the_same_kind_only() {
    let it = Bed::new().await;
    let layer = || it.layer().all_methods().wait(MS(50));
    let get = async |inner, outer| send(&nested(inner, outer), rock(Method::GET)).await;
    for (inner, outer, said) in [
        (layer().read_write(), layer(), "None, false"),
        (layer().read_write(), layer().read_write(), "None, true"),
        (layer().permits(2), layer().permits(2), "Some(0), false"),
        // A permit is no lock of its key, and the other way round.
        (layer(), layer().permits(1), "None, false"),
        (layer().permits(1), layer(), "Some(0), false"),
    ] {
        let said_here = text(get(inner, outer).await).await;
        // It may be either of the two permits.
        assert_eq!(said_here.replace('1', "0"), said);
    }
    // The inner one would wait for the reader of the outer one, and nobody else has to wait for that.
    let both = get(layer(), layer().read_write()).await;
    problem(both, 500, "misconfigured").await;
    let _writer = it.redlock.rw_lock("event:rock").try_write().await.unwrap();
}
