//! A function that is asked for the credentials of each new connection. Over real servers with users.

use std::{
    future::{Ready, ready},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use redlock_kit::{RedisServer, RedisServers};
use redlock_tokio::{Credentials, RedlockBuilder};
use tracing::Level;

use crate::{
    own_connections::Sick,
    support::{
        Cli, MS, built, eventually,
        log::Log,
        shards,
        states::{all_vote, is_refused},
        trusting,
    },
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
    trusting(urls).node_timeout(MS(2000))
}

#[tokio::test]
async fn each_new_connection_has_the_password_of_its_time_and_keeps_the_lock() {
    let servers = RedisServers::spawn(3).unwrap();
    let vault = Vault::default();
    vault.rotate(servers.iter(), "first");
    let redlock = over(servers.urls()).ttl(MS(60_000));
    let redlock = built(redlock.credentials_from(vault.function())).await;
    let fixed = over(servers.urls()).credentials(Credentials::new("locker", "first"));
    drop(
        built(fixed)
            .await
            .lock("k")
            .await
            .expect("the first password"),
    );
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

#[tokio::test]
async fn credentials_that_fail_or_never_come_cost_one_node_and_recover() {
    let servers = RedisServers::spawn(3).unwrap();
    Vault::default().rotate(servers.iter(), "pw");
    let sick = Sick::at(servers.get(2));
    let ask = {
        let sick = sick.clone();
        move |address: String| {
            let sick = sick.clone();
            async move {
                sick.suffer(&address).await?;
                Ok::<_, io::Error>(Credentials::new("locker", "pw"))
            }
        }
    };
    let builder = over(servers.urls()).credentials_from(ask);
    let failed = "no credentials: a function that fails";
    sick.costs_one_node_and_recovers(builder, failed).await;
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
