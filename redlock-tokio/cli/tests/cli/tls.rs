//! The program over TLS.

use std::process::Command;

use crate::{
    certificates::{Ca, TlsServer, written},
    process::PROGRAM,
};

#[test]
fn the_program_shows_its_certificate_and_checks_that_of_the_server() {
    let (ca, clients) = (Ca::new(), Ca::new());
    let server = TlsServer::spawn(&ca, "redis.internal", Some(&clients));
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| written(&directory.path().join(name), text);
    let shown = clients.issue("client");
    let (ca, certificate, key) = (
        file("ca.pem", &ca.pem()),
        file("client.pem", &shown.certificate),
        file("client.key", &shown.key),
    );
    let nodes = |variables: &[(&str, &str)]| {
        let mut program = Command::new(PROGRAM);
        program.args(["nodes", "--node-timeout", "2s"]);
        program.env("REDLOCK_NODES", server.url());
        program.env("REDLOCK_DURABILITY", "fsync-always");
        let output = program.envs(variables.iter().copied()).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), errors)
    };
    let all = [
        ("REDLOCK_TLS_CA", &*ca),
        ("REDLOCK_TLS_CERT", &*certificate),
        ("REDLOCK_TLS_KEY", &*key),
        ("REDLOCK_TLS_SERVER_NAME", "redis.internal"),
    ];
    assert_eq!(nodes(&all), (Some(0), String::new()));
    let mut of_the_system = all;
    of_the_system[0].0 = "SSL_CERT_FILE";
    assert_eq!(nodes(&of_the_system), (Some(0), String::new()));
    for (left_out, code) in [(0, 69), (1, 64), (2, 64), (3, 69)] {
        let mut others = all;
        others[left_out].1 = "";
        let (seen, errors) = nodes(&others);
        assert_eq!(seen, Some(code), "{errors}");
    }
}
