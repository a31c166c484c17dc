//! The program over TLS.

use crate::{
    certificates::{Ca, TlsServer},
    process::program,
};

#[test]
fn the_program_shows_its_certificate_and_checks_that_of_the_server() {
    let (ca, clients) = (Ca::new(), Ca::new());
    let server = TlsServer::spawn(&ca, "redis.internal", Some(&clients));
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key, ca] = clients.issue("client").write(&folder, &ca.pem());
    let nodes = |variables: [(&str, &str); 4], code| {
        let program = program(["nodes", "--node-timeout", "2s"]);
        let mut program = program.env("REDLOCK_NODES", server.url());
        program.0.envs(variables);
        program.ends(code).err
    };
    let all = [
        ("REDLOCK_TLS_CA", &*ca),
        ("REDLOCK_TLS_CERT", &*certificate),
        ("REDLOCK_TLS_KEY", &*key),
        ("REDLOCK_TLS_SERVER_NAME", "redis.internal"),
    ];
    assert_eq!(nodes(all, 0), "");
    let mut of_the_system = all;
    of_the_system[0].0 = "SSL_CERT_FILE";
    assert_eq!(nodes(of_the_system, 0), "");
    for (left_out, code) in [(0, 69), (1, 64), (2, 64), (3, 69)] {
        let mut others = all;
        others[left_out].1 = "";
        nodes(others, code);
    }
}
