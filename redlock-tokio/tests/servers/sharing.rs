//! Servers and a node in memory do the same for readers and writers, and for adoptions, command by command.

use std::time::{Duration, Instant};

use redlock_core::Nonce;
use redlock_kit::{RedisServer, RedisServers};
use redlock_tokio::{
    Holder, Key, MemoryNode, NodeError, Token, Ttl,
    node::{
        Access::{self, Exclusive, Writer},
        Answer, Command, Node, Operation, RedisNode, Session, Vote,
    },
};

use crate::support::{Cli, MS, assert_says, spawn_unprotected};

const READER: Access = Access::Reader { insists: false };
const INSISTENT: Access = Access::Reader { insists: true };

/// One session, which sends one command after the other.
struct Client(Box<dyn Session>);

impl Client {
    async fn of(server: &RedisServer) -> Self {
        let node = RedisNode::from_url(&server.url()).unwrap();
        Self(node.connect().await.unwrap())
    }

    async fn in_memory() -> Self {
        Self(MemoryNode::new().connect().await.unwrap())
    }

    async fn send(&mut self, key: &str, access: Access, operation: Operation) -> Answer {
        let command = Command::with_access(Key::new(key).unwrap(), operation, access);
        self.0.execute(&[command]).await.unwrap().remove(0)
    }

    async fn ask(&mut self, key: &str, access: Access, operation: Operation) -> Vote {
        self.send(key, access, operation).await.unwrap()
    }

    async fn grants(&mut self, key: &str, access: Access, operation: Operation) {
        let vote = self.ask(key, access, operation).await;
        assert_eq!(vote, Vote::Granted, "{key}, {access:?}: {operation:?}");
    }

    async fn denies(&mut self, key: &str, access: Access, operation: Operation) {
        let vote = self.ask(key, access, operation).await;
        assert_eq!(vote, Vote::Denied, "{key}, {access:?}: {operation:?}");
    }
}

/// A server, its foreign client, and a session.
async fn one() -> (RedisServers, Cli, Client) {
    let servers = RedisServers::spawn(1).unwrap();
    let (server, client) = (Cli::of(servers.get(0)), Client::of(servers.get(0)).await);
    (servers, server, client)
}

fn token(lease: u128) -> Token {
    Nonce::new(lease).token(1)
}

fn ttl(millis: u64) -> Ttl {
    Ttl::new(MS(millis)).unwrap()
}

fn acquire(lease: u128, millis: u64) -> Operation {
    Operation::Acquire {
        token: token(lease),
        ttl: ttl(millis),
        fence: None,
    }
}

fn adopt(giver: u128, lease: u128, millis: u64) -> Operation {
    Operation::Adopt {
        giver: token(giver),
        token: token(lease),
        ttl: ttl(millis),
        fence: None,
    }
}

fn extend(lease: u128, millis: u64) -> Operation {
    let (token, ttl) = (token(lease), ttl(millis));
    Operation::Extend { token, ttl }
}

fn release(lease: u128) -> Operation {
    let token = token(lease);
    Operation::Release { token }
}

fn probe(lease: u128, mark: Option<u64>) -> Operation {
    let (token, mark) = (token(lease), mark.map(ttl));
    Operation::Probe { token, mark }
}

/// Returns a vote without the times in it, which differ from run to run.
fn kind(vote: Vote) -> &'static str {
    match vote {
        Vote::Granted | Vote::Extended { .. } => "granted",
        Vote::Denied => "denied",
        Vote::Free => "free",
        Vote::Taken { .. } => "taken",
        Vote::Marked { .. } => "marked",
        other => panic!("{other:?}"),
    }
}

/// A client, its request, and the expected answer.
type Step = (Access, Operation, &'static str);

const LONG: u64 = 60_000;

/// Each story has a key of its own.
fn stories() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "readers share, and keep others out until the last has gone",
            vec![
                (READER, probe(1, None), "free"),
                (READER, acquire(1, LONG), "granted"),
                (READER, acquire(2, LONG), "granted"),
                (READER, acquire(1, LONG), "granted"),
                (Exclusive, acquire(3, LONG), "denied"),
                (Writer, acquire(4, LONG), "denied"),
                (Writer, probe(4, None), "taken"),
                (READER, probe(5, None), "free"),
                (READER, extend(1, LONG), "granted"),
                (READER, extend(6, LONG), "denied"),
                (READER, release(1), "granted"),
                (READER, release(1), "denied"),
                (READER, extend(1, LONG), "denied"),
                (Writer, acquire(4, LONG), "denied"),
                (READER, release(2), "granted"),
                (Writer, acquire(4, LONG), "granted"),
            ],
        ),
        (
            "a lock keeps readers out",
            vec![
                (Exclusive, acquire(1, LONG), "granted"),
                (READER, acquire(2, LONG), "denied"),
                (INSISTENT, acquire(2, LONG), "denied"),
                (READER, extend(2, LONG), "denied"),
                (READER, release(2), "denied"),
                (READER, probe(2, None), "taken"),
                (Exclusive, extend(1, LONG), "granted"),
                (Exclusive, release(1), "granted"),
                (READER, acquire(2, LONG), "granted"),
            ],
        ),
        (
            "a mark keeps new readers out, until its writer is gone",
            vec![
                (READER, acquire(1, LONG), "granted"),
                (Writer, acquire(2, LONG), "denied"),
                (Writer, probe(2, Some(LONG)), "taken"),
                (READER, probe(3, None), "marked"),
                (READER, acquire(3, LONG), "denied"),
                (READER, acquire(1, LONG), "granted"),
                (READER, extend(1, LONG), "granted"),
                (INSISTENT, acquire(4, LONG), "granted"),
                (Writer, release(9), "denied"),
                (READER, acquire(3, LONG), "denied"),
                (Writer, release(2), "denied"),
                (READER, probe(3, None), "free"),
                (READER, acquire(3, LONG), "granted"),
            ],
        ),
        (
            "a writer that is in deletes its key and its mark",
            vec![
                (Writer, probe(1, Some(LONG)), "free"),
                (READER, probe(2, None), "marked"),
                (READER, acquire(2, LONG), "denied"),
                (Writer, acquire(1, LONG), "granted"),
                (READER, probe(2, None), "taken"),
                (Writer, extend(1, LONG), "granted"),
                (Writer, release(1), "granted"),
                (READER, acquire(2, LONG), "granted"),
            ],
        ),
        (
            "a mark of another writer stays",
            vec![
                (Writer, probe(1, Some(LONG)), "free"),
                (Writer, probe(2, Some(LONG)), "free"),
                (Writer, release(1), "denied"),
                (READER, acquire(3, LONG), "denied"),
                (Exclusive, release(2), "denied"),
                (READER, acquire(3, LONG), "denied"),
                (Writer, release(2), "denied"),
                (READER, acquire(3, LONG), "granted"),
            ],
        ),
        (
            "a mark expires",
            vec![
                (Writer, probe(1, Some(1)), "free"),
                (Exclusive, probe(0, None), "free"),
                (READER, acquire(2, LONG), "granted"),
            ],
        ),
        (
            "a downgrade lets readers in",
            vec![
                (Writer, acquire(1, LONG), "granted"),
                (READER, acquire(2, LONG), "denied"),
                (INSISTENT, extend(1, LONG), "granted"),
                (READER, acquire(2, LONG), "granted"),
                (Writer, acquire(3, LONG), "denied"),
                (INSISTENT, extend(1, LONG), "granted"),
                (INSISTENT, release(1), "granted"),
                (Writer, acquire(3, LONG), "denied"),
                (READER, release(2), "granted"),
                (Writer, acquire(3, LONG), "granted"),
            ],
        ),
        (
            "a downgrade deletes the mark of the writer, and no other",
            vec![
                (Writer, probe(1, Some(LONG)), "free"),
                (Writer, acquire(1, LONG), "granted"),
                (INSISTENT, extend(1, LONG), "granted"),
                (READER, acquire(2, LONG), "granted"),
                (Writer, probe(3, Some(LONG)), "taken"),
                (INSISTENT, extend(1, LONG), "granted"),
                (READER, acquire(4, LONG), "denied"),
            ],
        ),
        (
            "a downgraded lock is released in either form",
            vec![
                (Writer, acquire(1, LONG), "granted"),
                (INSISTENT, release(1), "granted"),
                (READER, probe(2, None), "free"),
                (Writer, extend(1, LONG), "denied"),
                (INSISTENT, extend(1, LONG), "denied"),
            ],
        ),
        (
            "an adoption replaces the token of its giver, and no other",
            vec![
                (Exclusive, adopt(1, 2, LONG), "denied"),
                (Exclusive, acquire(1, LONG), "granted"),
                (Exclusive, adopt(3, 2, LONG), "denied"),
                (Exclusive, adopt(1, 2, LONG), "granted"),
                (Exclusive, adopt(1, 3, LONG), "denied"),
                (Exclusive, extend(1, LONG), "denied"),
                (Exclusive, release(1), "denied"),
                (Exclusive, acquire(1, LONG), "denied"),
                (Exclusive, extend(2, LONG), "granted"),
                (Exclusive, adopt(2, 3, 1), "granted"),
                (Exclusive, probe(0, None), "free"),
                (READER, acquire(4, LONG), "granted"),
                (Exclusive, adopt(4, 5, LONG), "denied"),
            ],
        ),
        (
            "what has expired does not come back",
            vec![
                (READER, acquire(1, 1), "granted"),
                (READER, acquire(2, LONG), "granted"),
                (Exclusive, probe(0, None), "taken"),
                (READER, extend(1, LONG), "denied"),
                (READER, extend(2, LONG), "granted"),
            ],
        ),
    ]
}

#[tokio::test]
async fn a_server_and_a_node_in_memory_answer_alike() {
    let servers = RedisServers::spawn(1).unwrap();
    let mut clients = [Client::of(servers.get(0)).await, Client::in_memory().await];
    for client in &mut clients {
        for (number, (name, steps)) in stories().into_iter().enumerate() {
            for (place, (access, operation, expected)) in steps.into_iter().enumerate() {
                let key = format!("story-{number}");
                let vote = client.ask(&key, access, operation).await;
                assert_eq!(kind(vote), expected, "{name}, step {place}: {operation:?}");
                // An entry that lives for a millisecond has expired two steps later.
                tokio::time::sleep(MS(2)).await;
            }
        }
    }
}

/// The commands of a batch share scripts where they can. The order of those with one token stays.
#[tokio::test]
async fn the_commands_of_a_batch_are_carried_out_in_their_order() {
    let servers = RedisServers::spawn(1).unwrap();
    for mut client in [Client::of(servers.get(0)).await, Client::in_memory().await] {
        let steps = [
            ("a", READER, acquire(1, LONG), "granted"),
            ("b", Writer, acquire(2, LONG), "granted"),
            ("c", Exclusive, acquire(3, LONG), "granted"),
            ("d", Exclusive, acquire(5, LONG), "granted"),
            ("d", Exclusive, adopt(5, 6, LONG), "granted"),
            ("d", Exclusive, extend(6, LONG), "granted"),
            ("a", READER, extend(1, LONG), "granted"),
            ("b", Writer, extend(2, LONG), "granted"),
            ("c", Exclusive, extend(3, LONG), "granted"),
            ("a", READER, release(1), "granted"),
            ("b", Writer, release(2), "granted"),
            ("c", Exclusive, release(3), "granted"),
            ("d", Exclusive, release(6), "granted"),
            ("a", Exclusive, probe(4, None), "free"),
        ];
        let command = |(key, access, operation, _)| {
            Command::with_access(Key::new(key).unwrap(), operation, access)
        };
        let batch = steps.map(command);
        let answers = client.0.execute(&batch).await.unwrap();
        let votes: Vec<_> = answers.into_iter().map(|it| kind(it.unwrap())).collect();
        assert_eq!(votes, steps.map(|(.., expected)| expected));
    }
}

#[tokio::test]
async fn the_key_and_the_set_live_for_as_long_as_the_last_reader() {
    let (_servers, server, mut client) = one().await;
    let live_for = |seconds: i64| {
        let lives = ["k", "redlock:readers:{k}"].map(|name| server.pttl(name));
        // The times to tell apart differ by 10 s, and a busy machine needs some of them.
        let expected = seconds * 1000 - 9000..=seconds * 1000;
        assert!(
            lives.iter().all(|it| expected.contains(it)),
            "{lives:?} for {seconds} s"
        );
    };
    client.ask("k", READER, acquire(1, 10_000)).await;
    client.ask("k", READER, acquire(2, 30_000)).await;
    client.ask("k", READER, acquire(3, 20_000)).await;
    live_for(30);
    client.ask("k", READER, extend(1, 40_000)).await;
    live_for(40);
    client.ask("k", READER, extend(1, 1_000)).await;
    live_for(40);
    client.ask("k", READER, release(1)).await;
    live_for(30);
    client.ask("k", READER, release(3)).await;
    live_for(30);
    assert_eq!(server.get("k").as_deref(), Some("redlock:shared"));
    client.ask("k", READER, release(2)).await;
    assert_eq!(server.run(&["DBSIZE"]), "0");
    client.ask("k", Writer, acquire(4, 10_000)).await;
    client.ask("k", INSISTENT, extend(4, 20_000)).await;
    live_for(20);
}

/// A set without a key is left over, for example after an operator has deleted the key. Its members are nobody.
#[tokio::test]
async fn a_set_that_is_left_over_counts_for_nothing() {
    let (_servers, server, mut client) = one().await;
    client.ask("k", READER, acquire(1, LONG)).await;
    server.run(&["DEL", "k"]);
    client.denies("k", READER, extend(1, LONG)).await;
    client.denies("k", READER, release(1)).await;
    client.grants("k", READER, acquire(2, LONG)).await;
    client.denies("k", READER, extend(1, LONG)).await;
    client.ask("k", READER, release(2)).await;
    assert_eq!(server.run(&["DBSIZE"]), "0");
    client.ask("k", READER, acquire(1, LONG)).await;
    server.run(&["DEL", "k"]);
    client.ask("k", Writer, acquire(3, LONG)).await;
    client.ask("k", INSISTENT, extend(3, LONG)).await;
    client.denies("k", READER, extend(1, LONG)).await;
}

#[tokio::test]
async fn a_foreign_value_under_each_name_keeps_nobody_from_knowing() {
    let (_servers, server, mut client) = one().await;
    server.set("text", "foreign");
    server.run(&["LPUSH", "list", "foreign"]);
    for key in ["text", "list"] {
        for access in [READER, INSISTENT] {
            client.denies(key, access, acquire(1, LONG)).await;
            client.denies(key, access, extend(1, LONG)).await;
            client.denies(key, access, release(1)).await;
            let vote = client.ask(key, access, probe(1, None)).await;
            // Of a list nothing but the end is known.
            let by = (key == "text").then(|| Holder::new(*b"foreign"));
            let remaining = Duration::MAX;
            assert_eq!(vote, Vote::Taken { remaining, by });
        }
    }
    // As text and without an end. The next reader gives the key an end.
    server.set("shared", "redlock:shared");
    client.denies("shared", Writer, acquire(1, LONG)).await;
    client.grants("shared", READER, acquire(1, LONG)).await;
    client.ask("shared", READER, release(1)).await;
    client.grants("shared", Writer, acquire(1, LONG)).await;
    // A mark without an end, or that is no text, is nobody's.
    server.set("redlock:wait:{marked}", "foreign");
    let vote = client.ask("marked", READER, probe(1, None)).await;
    assert_eq!(vote, Vote::Free);
    client.grants("marked", READER, acquire(1, LONG)).await;
    server.run(&["LPUSH", "redlock:wait:{list-mark}", "foreign"]);
    client.grants("list-mark", Writer, acquire(1, LONG)).await;
    client.grants("list-mark", Writer, release(1)).await;
    // A value of another type under the name of the readers is named in the error, and nothing changes.
    server.set("redlock:readers:{odd}", "foreign");
    for (operation, prepare) in [
        (acquire(1, LONG), None),
        (extend(1, LONG), Some("redlock:shared")),
        (release(1), Some("redlock:shared")),
    ] {
        server.run(&["DEL", "odd"]);
        if let Some(value) = prepare {
            server.set("odd", value);
        }
        let error = client.send("odd", READER, operation).await.unwrap_err();
        let NodeError::Refused { code, message } = &error else {
            panic!("{error}");
        };
        assert_eq!(&**code, "WRONGTYPE");
        assert!(message.contains("redlock:readers:{odd}"), "{message}");
        assert_eq!(server.get("odd").as_deref(), prepare);
    }
    let left = server.get("redlock:readers:{odd}");
    assert_eq!(left.as_deref(), Some("foreign"));
}

/// A server without memory takes no new readers, as it takes no new locks. Those that are in stay, and leave.
#[tokio::test]
async fn a_server_without_memory_keeps_the_readers_it_has() {
    let (_servers, server, mut client) = one().await;
    client.ask("k", READER, acquire(1, 10_000)).await;
    client.ask("k", READER, acquire(2, 10_000)).await;
    client.ask("w", Writer, acquire(3, 10_000)).await;
    server.configure("maxmemory", "1");
    for (key, access) in [("k", READER), ("new", READER), ("new", Writer)] {
        let answer = client.send(key, access, acquire(4, LONG)).await;
        assert_says(&answer.unwrap_err(), "OOM");
    }
    let vote = client.ask("k", READER, extend(1, LONG)).await;
    assert!(matches!(vote, Vote::Extended { .. }), "{vote:?}");
    let vote = client.ask("w", INSISTENT, extend(3, LONG)).await;
    assert!(matches!(vote, Vote::Extended { .. }), "{vote:?}");
    for key in ["k", "w"] {
        let left = server.pttl(key);
        assert!(left > 50_000, "{left}");
    }
    for (key, lease) in [("k", 1), ("k", 2), ("w", 3)] {
        client.grants(key, READER, release(lease)).await;
    }
    assert_eq!(server.run(&["DBSIZE"]), "0");
}

/// Moves the ends of all readers of `k`, as a step of the server's clock in the other direction does to all expiries.
fn step(server: &Cli, seconds: i64, leases: &[u128]) {
    let set = "redlock:readers:{k}";
    for lease in leases {
        let by = (seconds * 1000).to_string();
        server.run(&["ZINCRBY", set, &by, &token(*lease).to_string()]);
    }
    for name in ["k", set] {
        let left = server.pttl(name);
        server.run(&["PEXPIRE", name, &(left + seconds * 1000).to_string()]);
    }
}

#[tokio::test]
async fn a_clock_that_steps_does_to_a_reader_what_it_does_to_a_lock() {
    let (_servers, server, mut client) = one().await;
    client.ask("k", READER, acquire(1, 10_000)).await;
    client.ask("k", READER, acquire(2, 30_000)).await;
    // The clock goes forward by 20 s: the first has expired, the second has not.
    step(&server, -20, &[1, 2]);
    client.denies("k", READER, extend(1, 10_000)).await;
    let Vote::Extended { remaining } = client.ask("k", READER, extend(2, 30_000)).await else {
        panic!("it is there");
    };
    let is_cut = remaining > MS(5000) && remaining <= MS(10_000);
    assert!(is_cut, "{remaining:?}");
    // The clock goes back by 60 s: it lives longer, and no extension shortens that.
    step(&server, 60, &[2]);
    let Vote::Extended { remaining } = client.ask("k", READER, extend(2, 30_000)).await else {
        panic!("it is there");
    };
    let is_kept = remaining > MS(80_000) && remaining <= MS(90_000);
    assert!(is_kept, "{remaining:?}");
    let left = server.pttl("k");
    assert!(left > 80_000, "{left}");
    client.ask("k", READER, acquire(2, 30_000)).await;
    let left = server.pttl("k");
    assert!(left > 80_000, "{left}");
    client.ask("k", READER, release(2)).await;
    assert_eq!(server.run(&["DBSIZE"]), "0");
}

#[tokio::test]
async fn scripts_that_a_server_has_forgotten_are_sent_in_full() {
    let servers = spawn_unprotected(1, &[]);
    let (server, mut client) = (Cli::of(servers.get(0)), Client::of(servers.get(0)).await);
    for (access, operation, expected) in [
        (READER, acquire(1, LONG), "granted"),
        (READER, extend(1, LONG), "granted"),
        (READER, release(1), "granted"),
        (Writer, acquire(2, LONG), "granted"),
        (Writer, release(2), "granted"),
    ] {
        assert_eq!(server.run(&["SCRIPT", "FLUSH"]), "OK");
        let vote = client.ask("k", access, operation).await;
        assert_eq!(kind(vote), expected);
    }
}

#[tokio::test]
async fn ten_thousand_readers_share_one_set() {
    const READERS: u128 = 10_000;
    let (_servers, server, mut client) = one().await;
    let key = Key::new("k").unwrap();
    let mut times = Vec::new();
    for operation in [
        (|lease| acquire(lease, 600_000)) as fn(u128) -> Operation,
        |lease| extend(lease, 600_000),
        release,
    ] {
        let begin = Instant::now();
        for first in (0..READERS).step_by(100) {
            let batch: Vec<_> = (first..first + 100)
                .map(|lease| Command::with_access(key.clone(), operation(lease), READER))
                .collect();
            let answers = client.0.execute(&batch).await.unwrap();
            assert!(answers.into_iter().all(|it| kind(it.unwrap()) == "granted"));
        }
        times.push(begin.elapsed() / READERS as u32);
        if times.len() < 3 {
            let readers = server.run(&["ZCARD", "redlock:readers:{k}"]);
            assert_eq!(readers, READERS.to_string());
            let alone = acquire(READERS, LONG);
            client.denies("k", Writer, alone).await;
        }
    }
    println!("each joins, extends and leaves in {times:?}");
    assert_eq!(server.run(&["DBSIZE"]), "0");
    client.grants("k", Writer, acquire(READERS, LONG)).await;
}
