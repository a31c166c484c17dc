//! TLS by URL: a program and three servers, with a certificate of an authority of the test.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use redlock_kit::RedisServers;

/// Runs the quickstart against the servers. It trusts only the given authorities.
fn quickstart(servers: &RedisServers, trusted: &Path) -> Output {
    let urls: Vec<_> = servers
        .iter()
        .map(|server| format!("rediss://localhost:{}", server.port()))
        .collect();
    Command::new(env!("CARGO_BIN_EXE_quickstart"))
        .env("REDLOCK_TRUST_FRESH_NODES", "1")
        .env("REDLOCK_NODES", urls.join(","))
        .env("SSL_CERT_FILE", trusted)
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap()
}

#[test]
fn rediss_urls_are_encrypted_and_the_certificate_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = write("cert.pem", signed.cert.pem());
    let key = write("key.pem", signed.signing_key.serialize_pem());
    let [certificate_arg, key_arg] = [&certificate, &key].map(|it| it.to_str().unwrap());
    let tls = "--port 0 --tls-port {port} --tls-auth-clients no".split(' ');
    let mut arguments: Vec<_> = tls.collect();
    arguments.extend(["--tls-cert-file", certificate_arg]);
    arguments.extend(["--tls-key-file", key_arg]);
    let servers = RedisServers::spawn_with(3, &arguments).unwrap();

    let trusting = quickstart(&servers, &certificate);
    let errors = String::from_utf8_lossy(&trusting.stderr);
    assert!(trusting.status.success(), "{errors}");

    let another = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let another = write("another.pem", another.cert.pem());
    let doubting = quickstart(&servers, &another);
    let errors = String::from_utf8_lossy(&doubting.stderr);
    assert!(!doubting.status.success());
    let reason = "misconfigured: invalid peer certificate";
    assert!(errors.contains(reason), "{errors}");
}
