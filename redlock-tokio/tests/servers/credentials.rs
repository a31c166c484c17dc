//! A function that is asked for the credentials of each new connection. Over real servers with users.

use std::{
    future::{Ready, pending, ready},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Instant,
};

use redlock_kit::{RedisServer, RedisServers};
use redlock_tokio::{Credentials, Durability, NodeError, NodeState, Redlock, RedlockBuilder};
use tracing::Level;

use crate::support::{
    Cli, MS, built, eventually,
    log::Log,
    shards,
    states::{all_vote, is_refused, state, voting},
};

/// What the servers and the clients of a test agree on, and how often a client asked.
#[derive(Clone, Default)]
struct Vault {
    password: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

impl Vault {
    /// Sets the password, first on the server, and ends all connections that used the old one, as a service
    /// whose tokens expire does.
    fn rotate<'a>(&self, servers: impl IntoIterator<Item = &'a RedisServer>, password: &str) {
        *self.password.lock().unwrap() = password.to_owned();
        for server in servers {
            let secret = format!(">{password}");
            let rights = ["on", "resetpass", &secret, "~*", "&*", "+@all"];
            Cli::of(server).set_locker(&rights);
            Cli::of(server).run(&["CLIENT", "KILL", "USER", "locker"]);
        }
    }

    /// Returns a function that returns the credentials of the moment.
    fn function(
        &self,
    ) -> impl Fn(String) -> Ready<Result<Credentials, io::Error>> + Send + Sync + 'static {
        let vault = self.clone();
        move |_| {
            vault.asked.fetch_add(1, SeqCst);
            let password = vault.password.lock().unwrap().clone();
            ready(Ok(Credentials::new("locker", password)))
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

fn over<S: AsRef<str>>(urls: impl IntoIterator<Item = S>) -> RedlockBuilder {
    let builder = Redlock::builder()
        .nodes(urls)
        .durability(Durability::AssumedForTests);
    builder.node_timeout(MS(2000))
}

#[tokio::test]
async fn each_new_connection_has_the_password_of_its_time_and_keeps_the_lock() {
    let servers = RedisServers::spawn(3).unwrap();
    let vault = Vault::default();
    vault.rotate(servers.iter(), "first");
    let redlock = over(servers.urls()).ttl(MS(60_000));
    let redlock = built(redlock.credentials_from(vault.function())).await;
    // A client that knows only the first password.
    let fixed = over(servers.urls()).credentials(Credentials::new("locker", "first"));
    let fixed = built(fixed).await;
    drop(fixed.lock("other").await.expect("the first password"));
    let guard = redlock.lock("k").await.expect("the first password");
    assert_eq!(vault.asked(), 3, "once for each connection");

    for round in 2..=5 {
        vault.rotate(servers.iter(), &round.to_string());
        let are_back = || vault.asked() >= 3 * round;
        eventually("all nodes are connected again", are_back).await;
        all_vote(&redlock).await;
        guard.extend().await.expect("over new connections");
    }
    for server in servers.iter() {
        let user = Cli::of(server).run(&["CLIENT", "LIST"]);
        assert!(user.contains("user=locker"), "{user}");
    }

    eventually("the first password is refused", || {
        let nodes = fixed.nodes();
        let mut states = nodes.iter().map(|node| node.state.to_string());
        states.all(|state| state.contains("invalid username-password"))
    })
    .await;
    assert!(fixed.try_lock("other").await.is_err());
}

#[tokio::test]
async fn a_cluster_gets_the_password_of_its_time_from_the_function() {
    let cluster = shards::cluster().spawn().unwrap();
    let vault = Vault::default();
    let servers = || (0..cluster.node_count()).map(|number| cluster.node(number));
    vault.rotate(servers(), "first");
    // Other users have no rights, so that each connection needs the function.
    for server in servers() {
        let off = ["ACL", "SETUSER", "default", "resetkeys", "-set"];
        assert_eq!(Cli::of(server).run(&off), "OK");
    }
    let redlock = shards::trusting(&shards::url(&cluster));
    let redlock = built(redlock.credentials_from(vault.function())).await;
    all_vote(&redlock).await;
    let guard = redlock.lock("k").await.expect("the first password");
    guard.release().await;

    let asked = vault.asked();
    vault.rotate(servers(), "second");
    let are_back = || vault.asked() >= asked + 3;
    eventually("nodes are connected to again", are_back).await;
    all_vote(&redlock).await;
    drop(redlock.lock("k").await.expect("the second password"));
}

/// Three servers, and a builder of a client for whose third node this function is asked for credentials.
fn with_a_sick_node<F>(
    sick: impl Fn() -> F + Send + Sync + 'static,
) -> (RedisServers, RedlockBuilder)
where
    F: Future<Output = Result<Credentials, io::Error>> + Send + 'static,
{
    let servers = RedisServers::spawn(3).unwrap();
    Vault::default().rotate(servers.iter(), "pw");
    let address = servers.get(2).address().to_string();
    let builder = over(servers.urls()).credentials_from(move |of| {
        let is_sick = of == address;
        let sick = is_sick.then(&sick);
        async move {
            match sick {
                Some(sick) => sick.await,
                None => Ok(Credentials::new("locker", "pw")),
            }
        }
    });
    (servers, builder)
}

#[tokio::test]
async fn a_node_without_credentials_has_a_typed_error_and_recovers() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let (_servers, builder) = with_a_sick_node(move || {
        let call = count.fetch_add(1, SeqCst);
        async move {
            match call {
                0..3 => Err(io::Error::other("the token service is down")),
                3 => panic!("no token"),
                _ => Ok(Credentials::new("locker", "pw")),
            }
        }
    });
    let redlock = built(builder).await;
    let state = state(&redlock, 2);
    let NodeState::Reconnecting(NodeError::Credentials(text)) = &state else {
        panic!("{state:?}");
    };
    assert_eq!(&**text, "the token service is down");
    assert!(state.to_string().starts_with("no credentials: "), "{state}");
    drop(redlock.lock("k").await.expect("two of three"));

    voting(&redlock, 2).await;
    assert_eq!(calls.load(SeqCst), 5, "four failures, one of them a panic");
}

#[tokio::test]
async fn credentials_that_never_come_end_with_the_connect_timeout() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (_servers, builder) = with_a_sick_node(move || {
        count.fetch_add(1, SeqCst);
        pending()
    });
    let start = Instant::now();
    let redlock = built(builder.connect_timeout(MS(300))).await;
    assert!(start.elapsed() >= MS(300), "the whole time limit");
    drop(redlock.lock("k").await.expect("two of three"));
    let state = state(&redlock, 2);
    assert!(
        matches!(&state, NodeState::Reconnecting(NodeError::Unreachable(text)) if text.contains("300ms")),
        "{state:?}"
    );
    eventually("it is asked again", || asked.load(SeqCst) >= 2).await;
}

#[tokio::test]
async fn no_log_has_a_password() {
    const SECRET: &str = "hunter2";
    let (log, _guard) = Log::with_level(Level::TRACE);
    let servers = RedisServers::spawn(1).unwrap();
    let vault = Vault::default();
    vault.rotate(servers.iter(), SECRET);
    let builder = over(servers.urls()).credentials_from(vault.function());
    let redlock = built(builder).await;
    drop(redlock.lock("k").await.unwrap());
    // The server refuses the next password.
    *vault.password.lock().unwrap() = format!("{SECRET}-wrong");
    Cli::of(servers.get(0)).run(&["CLIENT", "KILL", "USER", "locker"]);
    let is_refused = || is_refused(&redlock, 0);
    eventually("the node refuses the client", is_refused).await;
    let error = redlock.lock("k").wait(MS(0)).await.unwrap_err();
    let text = format!("{}{error}{error:?}{:?}", log.text(), redlock.nodes());
    let says_why = text.contains("WRONGPASS") || text.contains("invalid username");
    assert!(says_why, "{text}");
    assert!(!text.contains(SECRET), "{text}");
}

#[tokio::test]
async fn credentials_in_the_url_and_for_all_nodes_are_refused() {
    let build = async |url: &str| {
        let builder = over([url]).connect_timeout(MS(100));
        let ask = async |_| Ok::<_, io::Error>(Credentials::new("locker", "hunter2"));
        let outcome = builder.credentials_from(ask).build().await;
        outcome.map(drop).map_err(|error| error.to_string())
    };
    for user in ["user", ":hunter2", "u:hunter2"] {
        for url in [
            "redis://@host",
            "redis+cluster://@host",
            "redis+sentinel://@s/g",
        ] {
            let url = url.replace('@', &format!("{user}@"));
            let error = build(&url).await.unwrap_err();
            assert!(error.contains("leave one of them out"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
    // The sentinels have users of their own.
    let url = "redis+sentinel://127.0.0.1:1/g?sentinel_user=locker&sentinel_password=hunter2";
    assert_eq!(build(url).await, Ok(()));
}
