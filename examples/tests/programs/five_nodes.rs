//! Runs the script that starts five servers, as `examples/README.md` does.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::{Command, Output},
};

use redlock_kit::RedisServers;
use tokio::net::TcpSocket;

#[test]
fn a_command_runs_over_five_servers_which_stop_with_it_even_one_that_was_started_again() {
    let (ports, _reserved) = reserve();
    let quickstart = env!("CARGO_BIN_EXE_quickstart");
    let cli = format!("redis-cli -h 127.0.0.1 -p {}", ports[2]);
    let command = format!(
        "{quickstart}; {cli} shutdown; {cli} ping; ${{REDIS_SERVER:-redis-server}} $SERVERS/{}.conf; \
         until {cli} ping; do sleep 0.1; done; exit 3",
        ports[2]
    );
    let output = five_nodes(ports, &["sh", "-c", &command]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("on 5 Redis nodes"), "{output:?}");
    assert_eq!(text.matches("PONG").count(), 1, "it was down: {output:?}");
    assert_eq!(ports.map(is_listening), [false; 5], "{ports:?}");
}

#[test]
fn a_server_that_has_one_of_the_ports_already_is_named_and_left_alone() {
    let stranger = RedisServers::spawn(1).unwrap();
    let stranger = stranger.get(0).port();
    let (mut ports, _reserved) = reserve();
    ports[2] = stranger;
    let output = five_nodes(ports, &["echo", "the command ran"]);
    assert!(!output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    let address = format!("127.0.0.1:{stranger}");
    assert!(errors.contains(&address), "{errors}");
    let listening = ports.map(is_listening);
    assert_eq!(listening, [false, false, true, false, false], "{ports:?}");
}

/// Returns five ports of the loopback interface that no program listens on. They stay reserved while the sockets live,
/// but a server that names one can listen on it.
fn reserve() -> ([u16; 5], [TcpSocket; 5]) {
    let sockets = [(); 5].map(|()| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        socket
    });
    let ports = sockets.each_ref().map(|it| it.local_addr().unwrap().port());
    (ports, sockets)
}

fn five_nodes(ports: [u16; 5], command: &[&str]) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/five-nodes");
    let ports = ports.map(|port| port.to_string()).join(" ");
    let mut script = Command::new(script);
    let output = script.env("PORTS", ports).args(command).output();
    output.expect("the script starts")
}

fn is_listening(port: u16) -> bool {
    TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok()
}
