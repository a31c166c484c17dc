//! Runs the script that starts five servers, as the README does.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::{Command, Output},
};

use redlock_kit::RedisServers;
use tokio::net::TcpSocket;

/// Five ports of the loopback interface that no program listens on. They stay reserved until this is dropped, but a
/// server that names one can listen on it.
struct Ports([(u16, TcpSocket); 5]);

impl Ports {
    fn reserve() -> Self {
        Self([(); 5].map(|()| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_reuseaddr(true).unwrap();
            socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            (socket.local_addr().unwrap().port(), socket)
        }))
    }

    fn numbers(&self) -> [u16; 5] {
        self.0.each_ref().map(|(port, _)| *port)
    }
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

#[test]
fn a_command_runs_over_five_servers_which_then_stop() {
    let reserved = Ports::reserve();
    let ports = reserved.numbers();
    let output = five_nodes(ports, &[env!("CARGO_BIN_EXE_quickstart")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("on 5 Redis nodes"), "{text}");
    assert!(!ports.iter().any(|&port| is_listening(port)), "{ports:?}");
}

#[test]
fn the_result_of_the_command_is_that_of_the_script() {
    let output = five_nodes(Ports::reserve().numbers(), &["sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn one_server_is_stopped_and_started_again_and_stops_with_the_others() {
    let reserved = Ports::reserve();
    let ports = reserved.numbers();
    let cli = format!("redis-cli -h 127.0.0.1 -p {}", ports[2]);
    let restart = format!(
        "{cli} shutdown; {cli} ping; ${{REDIS_SERVER:-redis-server}} $SERVERS/{}.conf; \
         until {cli} ping; do sleep 0.1; done",
        ports[2]
    );
    let output = five_nodes(ports, &["sh", "-c", &restart]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.trim_end().ends_with("PONG"), "{output:?}");
    assert_eq!(text.matches("PONG").count(), 1, "it was down: {output:?}");
    assert!(!ports.iter().any(|&port| is_listening(port)), "{ports:?}");
}

#[test]
fn a_server_that_has_one_of_the_ports_already_is_named_and_left_alone() {
    let stranger = RedisServers::spawn(1).unwrap();
    let stranger = stranger.get(0);
    let reserved = Ports::reserve();
    let mut ports = reserved.numbers();
    ports[2] = stranger.port();
    let output = five_nodes(ports, &["echo", "the command ran"]);
    assert!(!output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    let address = format!("127.0.0.1:{}", stranger.port());
    assert!(errors.contains(&address), "{errors}");
    let listening = ports.map(is_listening);
    assert_eq!(listening, [false, false, true, false, false], "{ports:?}");
}
