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
    Cli, MS, eventually,
    log::Log,
    shards,
    states::{all_vote, is_refused, votes, voting},
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
async fn each_new_connection_has_the_password_of_its_time() {
    let servers = RedisServers::spawn(3).unwrap();
    let vault = Vault::default();
    vault.rotate(servers.iter(), "first");
    let redlock = over(servers.urls()).credentials_from(vault.function());
    let redlock = redlock.build().await.unwrap();
    // A client that knows only the first password.
    let fixed = over(servers.urls()).credentials(Credentials::new("locker", "first"));
    let fixed = fixed.build().await.unwrap();
    for redlock in [&redlock, &fixed] {
        let guard = redlock.lock("k").await.expect("the first password");
        // A release that is not delivered yet would be lost with its connection.
        guard.release().await;
    }
    assert_eq!(vault.asked(), 3, "once for each connection");

    vault.rotate(servers.iter(), "second");
    let are_back = || vault.asked() >= 6 && (0..3).all(|node| votes(&redlock, node));
    eventually("all nodes are connected again", are_back).await;
    drop(redlock.lock("k").await.expect("the second password"));
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
    assert!(fixed.lock("k").wait(MS(0)).await.is_err());
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
    let redlock = redlock
        .credentials_from(vault.function())
        .build()
        .await
        .unwrap();
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

#[tokio::test]
async fn a_lock_is_kept_while_passwords_change() {
    let servers = RedisServers::spawn(3).unwrap();
    let vault = Vault::default();
    vault.rotate(servers.iter(), "0");
    let redlock = over(servers.urls()).credentials_from(vault.function());
    let redlock = redlock.ttl(MS(60_000)).build().await.unwrap();
    let guard = redlock.lock("k").await.unwrap();
    for round in 1..=5 {
        vault.rotate(servers.iter(), &round.to_string());
        let are_back = || vault.asked() >= 3 * (round + 1);
        eventually("all nodes are connected again", are_back).await;
        all_vote(&redlock).await;
        guard.extend().await.expect("over new connections");
    }
}

#[tokio::test]
async fn a_node_without_credentials_has_a_typed_error_and_recovers() {
    let servers = RedisServers::spawn(3).unwrap();
    let vault = Vault::default();
    vault.rotate(servers.iter(), "pw");
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let sick = servers.get(2).address().to_string();
    let fails_at_first = move |address| {
        let is_sick = address == sick;
        let call = if is_sick {
            count.fetch_add(1, SeqCst)
        } else {
            4
        };
        async move {
            match call {
                0..3 => Err(io::Error::other("the token service is down")),
                3 => panic!("no token"),
                _ => Ok(Credentials::new("locker", "pw")),
            }
        }
    };
    let builder = over(servers.urls()).credentials_from(fails_at_first);
    let redlock = builder.build().await.unwrap();
    let state = redlock.nodes()[2].state.clone();
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
    let servers = RedisServers::spawn(3).unwrap();
    let vault = Vault::default();
    vault.rotate(servers.iter(), "pw");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let sick = servers.get(2).address().to_string();
    let hangs = move |address| {
        let is_sick = address == sick;
        count.fetch_add(usize::from(is_sick), SeqCst);
        async move {
            if is_sick {
                pending::<()>().await;
            }
            Ok::<_, io::Error>(Credentials::new("locker", "pw"))
        }
    };
    let builder = over(servers.urls()).credentials_from(hangs);
    let builder = builder.connect_timeout(MS(300));
    let start = Instant::now();
    let redlock = builder.build().await.unwrap();
    assert!(start.elapsed() >= MS(300), "the whole time limit");
    drop(redlock.lock("k").await.expect("two of three"));
    let state = redlock.nodes()[2].state.clone();
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
    let redlock = builder.build().await.unwrap();
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
            let error = build(&url.replace('@', &format!("{user}@")))
                .await
                .unwrap_err();
            assert!(error.contains("leave one of them out"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
    // The sentinels have users of their own.
    let url = "redis+sentinel://127.0.0.1:1/g?sentinel_user=locker&sentinel_password=hunter2";
    assert_eq!(build(url).await, Ok(()));
}
