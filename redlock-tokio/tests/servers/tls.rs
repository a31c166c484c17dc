//! TLS with certificates of the test's own authorities, over real servers.

use redlock_kit::RedisServer;
use redlock_tokio::{BuildError, Durability, Redlock, RedlockBuilder, ReleaseOutcome, TlsOptions};
use tempfile::TempDir;

use crate::support::{
    MS, assert_says,
    certificates::{Ca, Issued, TlsServer},
    log::Log,
};

impl TlsServer {
    async fn build(&self, tls: TlsOptions) -> Result<Redlock, BuildError> {
        let builder = Redlock::builder().nodes(self.url()).tls(tls);
        patient(builder).build().await
    }

    async fn accepts(&self, tls: TlsOptions) {
        let redlock = self.build(tls).await.expect("the server is accepted");
        let guard = redlock.lock("k").await.expect("a lock");
        assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    }

    /// Asserts that client and server do not come to terms, for this reason.
    async fn refuses(&self, tls: TlsOptions, reason: &str) {
        let error = assert_refused!(self.build(tls).await, BuildError::Refused { .. });
        assert_says(&error, reason);
    }
}

/// Makes a client patient on a busy machine.
fn patient(builder: RedlockBuilder) -> RedlockBuilder {
    let builder = builder.durability(Durability::AssumedForTests);
    builder.node_timeout(MS(2000)).connect_timeout(MS(10_000))
}

#[tokio::test]
async fn the_server_must_have_a_certificate_of_a_given_ca() {
    let ca = Ca::new();
    let server = TlsServer::spawn(&ca, "127.0.0.1", None);
    let several = format!("{}{}", Ca::new().pem(), ca.pem());
    for pem in [ca.pem(), several] {
        server.accepts(TlsOptions::new().ca_certificates(pem)).await;
    }

    let other = TlsOptions::new().ca_certificates(Ca::new().pem());
    for tls in [TlsOptions::new(), other] {
        server.refuses(tls, "invalid peer certificate").await;
    }
}

#[tokio::test]
async fn the_server_must_have_a_certificate_for_its_name() {
    let ca = Ca::new();
    let tls = TlsOptions::new().ca_certificates(ca.pem());
    let server = TlsServer::spawn(&ca, "redis.internal", None);
    // The URL has an IP address, and "redis.internal" is no name that a resolver knows.
    server
        .accepts(tls.clone().server_name("redis.internal"))
        .await;

    for tls in [tls.clone(), tls.server_name("other.internal")] {
        server.refuses(tls, "invalid peer certificate").await;
    }
}

#[tokio::test]
async fn a_client_with_a_certificate_of_the_servers_ca_is_accepted() {
    let (ca, clients) = (Ca::new(), Ca::new());
    let server = TlsServer::spawn(&ca, "127.0.0.1", Some(&clients));
    let tls = TlsOptions::new().ca_certificates(ca.pem());
    let [known, unknown] = [&clients, &ca].map(|ca| ca.issue("client"));
    let show = |it: &Issued| tls.clone().client_certificate(&it.certificate, &it.key);
    server.accepts(show(&known)).await;
    for tls in [show(&unknown), tls.clone()] {
        server.refuses(tls, "received fatal alert").await;
    }
}

/// A password would be sent in the clear.
#[tokio::test]
async fn a_builder_with_options_for_tls_refuses_urls_without_tls() {
    for plain in [
        "redis://host",
        "unix:///run/redis.sock",
        "redis+sentinel://s1/g",
        "redis+cluster://a",
    ] {
        let builder = Redlock::builder().tls(TlsOptions::new());
        let outcome = builder.nodes(format!("rediss://host,{plain}")).build();
        let error = assert_refused!(outcome.await, BuildError::Url { position: 2, .. });
        assert_says(&error, "begins with rediss://");
    }
}

#[tokio::test]
async fn insecure_accepts_every_certificate_and_warns_of_that() {
    let server = TlsServer::spawn(&Ca::new(), "other.internal", None);
    let (log, _guard) = Log::start();
    server.refuses(TlsOptions::new(), "certificate").await;
    assert!(!log.text().contains("TLS is insecure"), "{}", log.text());

    server.accepts(TlsOptions::new().insecure()).await;
    let text = log.text();
    let lines = text.lines().filter(|line| line.contains("TLS is insecure"));
    let lines: Vec<_> = lines.collect();
    assert!(lines.len() == 1 && lines[0].contains("WARN"), "{text}");

    // With a name or a CA that would fit to no server, since neither is looked at.
    let ignored = TlsOptions::new()
        .ca_certificates(Ca::new().pem())
        .server_name("a.b");
    server.accepts(ignored.insecure()).await;
}

#[tokio::test]
async fn options_that_cannot_be_used_are_named() {
    let ca = Ca::new();
    let issued = ca.issue("client");
    let refusal = async |tls: TlsOptions| {
        let builder = Redlock::builder().nodes("rediss://host").tls(tls);
        let error = builder.build().await.unwrap_err();
        assert!(matches!(error, BuildError::Url { .. }), "{error:?}");
        error
    };
    for pem in ["", "rubbish", &issued.key] {
        let error = refusal(TlsOptions::new().ca_certificates(pem)).await;
        assert_says(&error, "CA certificates: ");
        assert_says(&error, "no certificate");
    }
    let other_key = ca.issue("client").key;
    let (certificate, key) = (&*issued.certificate, &*issued.key);
    for (certificate, key, words) in [
        (certificate, "", "not a private key"),
        (certificate, certificate, "not a private key"),
        (key, key, "no certificate"),
        (certificate, &*other_key, "keys may not be consistent"),
    ] {
        let error = refusal(TlsOptions::new().client_certificate(certificate, key)).await;
        assert_says(&error, "client certificate: ");
        assert_says(&error, words);
    }
    let error = refusal(TlsOptions::new().server_name("not a name")).await;
    assert_says(&error, "`not a name` is not a server name");
}

#[test]
fn debug_shows_no_private_key() {
    let issued = Ca::new().issue("client");
    let tls = TlsOptions::new().client_certificate(&issued.certificate, &issued.key);
    let builder = Redlock::builder().nodes("rediss://host").tls(tls.clone());
    let text = format!("{tls:?} {builder:?}");
    let secret = issued.key.lines().nth(1).unwrap();
    assert!(!text.contains(secret) && !text.contains("BEGIN"), "{text}");
}

#[tokio::test]
async fn a_group_of_sentinels_and_servers_that_speak_only_tls() {
    let (of_servers, of_sentinels) = (Ca::new(), Ca::new());
    let master = TlsServer::spawn(&of_servers, "127.0.0.1", None);
    let port = master.servers.get(0).port();
    // They accept certificates of either authority.
    let (folder, trusted) = (
        TempDir::new().unwrap(),
        of_sentinels.pem() + &of_servers.pem(),
    );
    let [certificate, key, trusted] = of_sentinels.issue("127.0.0.1").write(&folder, &trusted);
    let lines = [
        "port 0",
        "tls-port {port}",
        &format!("tls-cert-file {certificate}"),
        &format!("tls-key-file {key}"),
        &format!("tls-ca-cert-file {trusted}"),
        "tls-auth-clients no",
        "tls-replication yes",
        &format!("sentinel monitor orders 127.0.0.1 {port} 2"),
    ];
    let sentinels = [(); 3].map(|()| RedisServer::sentinel(&lines).unwrap());
    let addresses = sentinels.each_ref().map(|it| it.address().to_string());
    let all = addresses.join(",");
    let over = |list: &str, parameters: &str| {
        let url = format!("rediss+sentinel://{list}/orders{parameters}");
        patient(Redlock::builder().nodes(url))
    };
    let trusting = |pem: String| TlsOptions::new().ca_certificates(pem);
    let both = trusting(of_servers.pem() + &of_sentinels.pem());

    // The other sentinels are found through the first one, and asked by TLS too.
    let listed = over(&addresses[0], "?sentinel_tls=true");
    let redlock = listed.tls(both.clone()).build().await;
    let redlock = redlock.expect("the group is accepted");
    redlock.ready(MS(60_000)).await.unwrap();
    let guard = redlock.lock("k").await.expect("a lock");
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);

    for (tls, name) in [
        (TlsOptions::new(), "the roots of the system"),
        (trusting(of_servers.pem()), "sentinels of another authority"),
        (
            trusting(of_sentinels.pem()),
            "a server of another authority",
        ),
    ] {
        let outcome = over(&all, "?sentinel_tls=true").tls(tls).build().await;
        let error = assert_refused!(outcome, BuildError::Refused { .. });
        let text = error.to_string();
        assert!(text.contains("invalid peer certificate"), "{name}: {text}");
    }
    let error = match over(&all, "").tls(both).build().await {
        Ok(plain) => plain.try_lock("k").await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(&addresses[0]), "{error}");
}
