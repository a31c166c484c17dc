//! What each command does to a key. One table, which a server and a node in memory carry out alike.

use std::time::Duration;

use redlock_core::Nonce;
use redlock_kit::{RedisServer, RedisServers};
use redlock_tokio::{
    FencingToken, Holder, Key, MemoryNode, NodeError, Token, Ttl,
    node::{
        Access, Answer, Command, KeyState, Node, Occupant, Operation, RedisNode, Session, Vote,
    },
};
use tokio::time::sleep;

use crate::support::{Cli, MS};

/// Stories, each with a key of its own. A step is a command, its answer, and what the key has afterwards. A step without
/// the latter changes nothing. Clients have numbers. A ttl is a minute, if none is named. Times are rounded up to a minute,
/// ten minutes, a hundred minutes or a day. A ttl of a millisecond has passed by the next step.
///
/// A story with steps of `redis`, a foreign client, is for servers alone. `KEY` is the key, `#1` the token of client 1,
/// and `..` any answer.
const STORIES: &str = "
a lock belongs to its token
    lock 1 probes                  free
    lock 1 extends                 denied
    lock 1 releases                denied
    lock 1 acquires                granted          1 for 1m
    lock 1 acquires                denied
    lock 2 acquires                denied
    lock 2 probes                  taken by 1 for 1m
    lock 2 extends 10m             denied
    lock 2 releases                denied
    lock 1 extends 10m             granted          1 for 10m
    lock 1 extends                 granted
    lock 1 releases                granted          nothing
    lock 2 acquires 1ms            granted
    lock 1 acquires                granted          1 for 1m

a fence is larger than those before
    lock 1 acquires fence 7        granted          1 for 1m
    lock 1 raises fence 7          outbid by 7
    lock 1 raises fence 8          granted
    lock 2 raises fence 9          denied
    lock 1 releases                granted          nothing
    lock 1 raises fence 9          denied
    lock 2 acquires fence 8        outbid by 8      2 for 1m
    lock 2 raises fence 9          granted
    lock 3 adopts 2 fence 9        outbid by 9      3 for 1m
    lock 3 releases                granted          nothing
    writer 4 acquires fence 10     granted          4 for 1m
    writer 4 raises fence 10       outbid by 10

readers share, and keep others out until the last has gone
    reader 1 probes                free
    reader 1 acquires              granted          reader 1 for 1m
    reader 2 acquires              granted          reader 1 for 1m, reader 2 for 1m
    lock 3 acquires                denied
    writer 4 acquires              denied
    writer 4 probes                taken by redlock:shared for 1m
    reader 5 probes                free
    reader 1 extends 10m           granted          reader 1 for 10m, reader 2 for 1m
    reader 1 extends               granted
    reader 1 acquires              granted
    reader 6 extends               denied
    reader 1 releases              granted          reader 2 for 1m
    reader 1 releases              denied
    reader 1 extends               denied
    writer 4 acquires              denied
    reader 2 releases              granted          nothing
    writer 4 acquires              granted          4 for 1m

a lock keeps readers out
    lock 1 acquires                granted          1 for 1m
    reader 2 acquires              denied
    insistent 2 acquires           denied
    reader 2 extends               denied
    reader 2 releases              denied
    reader 2 probes                taken by 1 for 1m
    lock 1 releases                granted          nothing
    reader 2 acquires              granted          reader 2 for 1m

a mark keeps new readers out, until its writer is gone
    reader 1 acquires              granted          reader 1 for 1m
    writer 2 acquires              denied
    writer 2 marks                 taken by redlock:shared for 1m  reader 1 for 1m, marked for 1m
    reader 3 probes                marked
    reader 3 acquires              denied
    reader 1 acquires              granted
    reader 1 extends               granted
    insistent 4 acquires           granted          reader 1 for 1m, reader 4 for 1m, marked for 1m
    writer 9 releases              denied
    reader 3 acquires              denied
    writer 2 releases              denied           reader 1 for 1m, reader 4 for 1m
    reader 3 probes                free
    reader 3 acquires              granted          reader 1 for 1m, reader 3 for 1m, reader 4 for 1m

a writer that is in deletes its key and its mark
    writer 1 marks                 free             marked for 1m
    reader 2 probes                marked
    reader 2 acquires              denied
    writer 1 acquires              granted          1 for 1m, marked for 1m
    reader 2 probes                taken by 1 for 1m
    writer 1 extends 10m           granted          1 for 10m, marked for 1m
    writer 1 releases              granted          nothing
    reader 2 acquires              granted          reader 2 for 1m

a mark of another writer stays
    writer 1 marks                 free             marked for 1m
    writer 2 marks 10m             free             marked for 10m
    writer 1 releases              denied
    reader 3 acquires              denied
    writer 2 releases              denied           nothing
    writer 2 marks 1ms             free
    reader 3 acquires              granted          reader 3 for 1m

a downgrade lets readers in
    writer 1 acquires              granted          1 for 1m
    reader 2 acquires              denied
    insistent 1 extends            granted          reader 1 for 1m
    reader 2 acquires              granted          reader 1 for 1m, reader 2 for 1m
    writer 3 acquires              denied
    insistent 1 extends            granted
    insistent 1 releases           granted          reader 2 for 1m
    writer 3 acquires              denied
    reader 2 releases              granted          nothing
    writer 3 acquires 10m          granted          3 for 10m
    insistent 3 extends            granted          reader 3 for 10m

a downgrade deletes the mark of the writer, and no other
    writer 1 marks                 free             marked for 1m
    writer 1 acquires              granted          1 for 1m, marked for 1m
    insistent 1 extends            granted          reader 1 for 1m
    reader 2 acquires              granted          reader 1 for 1m, reader 2 for 1m
    writer 3 marks                 taken by redlock:shared for 1m  reader 1 for 1m, reader 2 for 1m, marked for 1m
    reader 4 acquires              denied
    insistent 1 releases           granted          reader 2 for 1m, marked for 1m
    reader 2 releases              granted          marked for 1m
    writer 1 acquires              granted          1 for 1m, marked for 1m
    insistent 1 extends            granted          reader 1 for 1m, marked for 1m

a downgraded lock is released in either form
    writer 1 acquires              granted          1 for 1m
    insistent 1 releases           granted          nothing
    reader 2 probes                free
    writer 1 extends               denied
    insistent 1 extends            denied

an adoption replaces the token of its giver, and no other
    lock 2 adopts 1                denied
    lock 1 acquires                granted          1 for 1m
    lock 2 adopts 3                denied
    lock 2 adopts 1 10m            granted          2 for 10m
    lock 3 adopts 1                denied
    lock 1 extends                 denied
    lock 1 releases                denied
    lock 1 acquires                denied
    lock 2 extends                 granted
    lock 3 adopts 2                granted          3 for 1m
    lock 4 adopts 3 1ms            granted          nothing
    reader 4 acquires              granted          reader 4 for 1m
    lock 5 adopts 4                denied

what has expired does not come back
    reader 1 acquires 1ms          granted
    reader 2 acquires              granted          reader 2 for 1m
    reader 1 extends               denied
    reader 1 releases              denied
    reader 3 acquires 1ms          granted
    reader 3 extends               denied
    reader 3 releases              granted
    reader 2 extends               granted

the key and the set live for as long as the last reader
    reader 1 acquires              granted          reader 1 for 1m
    reader 2 acquires 100m         granted          reader 1 for 1m, reader 2 for 100m
    reader 3 acquires 10m          granted          reader 1 for 1m, reader 2 for 100m, reader 3 for 10m
    redis GET KEY                  redlock:shared
    redis PTTL KEY                 for 100m
    redis PTTL redlock:readers:{KEY}  for 100m
    reader 2 releases              granted          reader 1 for 1m, reader 3 for 10m
    redis PTTL KEY                 for 10m
    redis PTTL redlock:readers:{KEY}  for 10m
    reader 1 extends 100m          granted          reader 1 for 100m, reader 3 for 10m
    redis PTTL KEY                 for 100m
    redis PTTL redlock:readers:{KEY}  for 100m
    reader 3 releases              granted          reader 1 for 100m
    redis PTTL KEY                 for 100m
    reader 1 releases              granted          nothing
    redis EXISTS KEY redlock:readers:{KEY}  0
    writer 4 acquires              granted          4 for 1m
    insistent 4 extends 10m        granted          reader 4 for 10m
    redis PTTL KEY                 for 10m
    redis PTTL redlock:readers:{KEY}  for 10m

a set that is left over counts for nothing
    reader 1 acquires              granted          reader 1 for 1m
    redis DEL KEY                  1                nothing
    reader 1 extends               denied
    reader 1 releases              denied
    reader 2 acquires              granted          reader 2 for 1m
    reader 1 extends               denied
    reader 2 releases              granted          nothing
    redis EXISTS redlock:readers:{KEY}  0
    reader 1 acquires              granted          reader 1 for 1m
    redis DEL KEY                  1                nothing
    writer 3 acquires              granted          3 for 1m
    insistent 3 extends            granted          reader 3 for 1m
    reader 1 extends               denied

a foreign value under each name keeps nobody from knowing
    redis SET KEY foreign          OK               foreign without an end
    lock 1 acquires                denied
    lock 1 probes                  taken by foreign without an end
    lock 1 extends                 denied
    lock 1 releases                denied
    lock 2 adopts 1                denied
    reader 1 acquires              denied
    insistent 1 extends            denied
    reader 1 releases              denied
    reader 1 probes                taken by foreign without an end
    redis DEL KEY                  1                nothing
    redis LPUSH KEY foreign        1                another type without an end
    lock 1 acquires                denied
    lock 1 probes                  taken without an end
    lock 1 extends                 denied
    lock 1 releases                denied
    lock 2 adopts 1                denied
    reader 1 acquires              denied
    insistent 1 extends            denied
    reader 1 releases              denied
    writer 1 releases              denied
    reader 1 probes                taken without an end
    redis LRANGE KEY 0 -1          foreign

a key without an end gets one by an extension, and by no release of a mark
    lock 1 acquires                granted          1 for 1m
    redis PERSIST KEY              1                1 without an end
    lock 1 extends                 had without an end   1 for 1m
    lock 1 releases                granted          nothing
    reader 2 acquires              granted          reader 2 for 1m
    writer 3 marks                 taken by redlock:shared for 1m  reader 2 for 1m, marked for 1m
    redis PERSIST KEY              1
    writer 3 releases              denied           reader 2 for 1m
    redis PTTL KEY                 without an end
    lock 1 acquires                denied
    reader 1 acquires              granted          reader 1 for 1m, reader 2 for 1m
    redis PTTL KEY                 for 1m

a mark without an end, or of another type, is nobody's
    redis SET redlock:wait:{KEY} foreign  OK
    reader 1 probes                free
    reader 1 acquires              granted          reader 1 for 1m
    reader 1 releases              granted          nothing
    redis DEL redlock:wait:{KEY}   1
    redis LPUSH redlock:wait:{KEY} foreign  1
    writer 1 acquires              granted          1 for 1m
    insistent 1 extends            granted          reader 1 for 1m
    insistent 1 releases           granted          nothing
    writer 1 acquires              granted          1 for 1m
    writer 1 releases              granted          nothing

a set of another type is named and left alone
    redis SET redlock:readers:{KEY} foreign  OK
    reader 1 acquires              WRONGTYPE
    redis SET KEY redlock:shared   OK
    reader 1 acquires              WRONGTYPE
    reader 1 extends               WRONGTYPE
    reader 1 releases              WRONGTYPE
    redis GET redlock:readers:{KEY}  foreign
    redis GET KEY                  redlock:shared

a counter of another kind is named and left alone
    redis LPUSH redlock:fence:{KEY} a  1
    lock 1 acquires fence 7        counter is not a text      1 for 1m
    lock 1 raises fence 8          counter is not a text
    redis LRANGE redlock:fence:{KEY} 0 -1  a
    redis SET redlock:fence:{KEY} rubbish  OK
    lock 1 raises fence 8          counter is not a number
    redis GET redlock:fence:{KEY}  rubbish
    redis SET redlock:fence:{KEY} -5  OK
    lock 1 raises fence 8          counter is not a number
    redis SET redlock:fence:{KEY} 9007199254740992 PX 600000  OK
    lock 1 raises fence 8          counter exceeds the largest token
    redis PTTL redlock:fence:{KEY}  for 10m
    redis SET redlock:fence:{KEY} 90071992547409911  OK
    lock 1 raises fence 8          counter exceeds the largest token
    redis GET redlock:fence:{KEY}  90071992547409911
    redis DEL redlock:fence:{KEY}  1
    lock 1 raises fence 8          granted

a counter is exact, and lives for a day from each raise
    lock 1 acquires fence 9007199254740989  granted  1 for 1m
    redis GET redlock:fence:{KEY}  9007199254740989
    redis PTTL redlock:fence:{KEY}  for 1d
    redis PEXPIRE redlock:fence:{KEY} 60000  1
    lock 1 raises fence 9007199254740989  outbid by 9007199254740989
    redis PTTL redlock:fence:{KEY}  for 1m
    lock 1 raises fence 9007199254740990  granted
    redis GET redlock:fence:{KEY}  9007199254740990
    redis PTTL redlock:fence:{KEY}  for 1d
    lock 1 raises fence 9007199254740991  granted
    lock 1 raises fence 9007199254740990  outbid by 9007199254740991

a server without memory keeps the readers it has
    reader 1 acquires              granted          reader 1 for 1m
    reader 2 acquires              granted          reader 1 for 1m, reader 2 for 1m
    redis CONFIG SET maxmemory 1   OK
    reader 1 acquires 10m          OOM
    reader 3 acquires              OOM
    reader 1 extends 10m           had for 1m         reader 1 for 10m, reader 2 for 1m
    reader 1 releases              granted          reader 2 for 1m
    reader 2 releases              granted          nothing
    lock 3 acquires                OOM
    redis CONFIG SET maxmemory 0   OK
    writer 3 acquires              granted          3 for 1m
    redis CONFIG SET maxmemory 1   OK
    insistent 3 extends 10m        had for 1m         reader 3 for 10m
    reader 3 releases              granted          nothing
    redis EXISTS redlock:readers:{KEY}  0
    redis CONFIG SET maxmemory 0   OK

a clock that steps does to a reader what it does to a lock
    reader 1 acquires              granted          reader 1 for 1m
    reader 2 acquires 10m          granted          reader 1 for 1m, reader 2 for 10m
    redis ZINCRBY redlock:readers:{KEY} -570000 #1  ..  reader 2 for 10m
    redis ZINCRBY redlock:readers:{KEY} -570000 #2  ..  reader 2 for 1m
    redis PEXPIRE KEY 30000        1
    redis PEXPIRE redlock:readers:{KEY} 30000  1
    reader 1 extends               denied
    reader 2 extends 10m           had for 1m         reader 2 for 10m
    redis ZINCRBY redlock:readers:{KEY} 3600000 #2  ..  reader 2 for 100m
    redis PEXPIRE KEY 4200000      1
    redis PEXPIRE redlock:readers:{KEY} 4200000  1
    reader 2 extends 10m           had for 100m
    redis PTTL KEY                 for 100m
    reader 2 acquires 10m          granted
    redis PTTL KEY                 for 100m
    reader 2 releases              granted          nothing
    redis EXISTS redlock:readers:{KEY}  0
";

/// Commands that are sent together, each with its key, and their answers. Commands with one token keep their order.
const BATCH: &str = "
    a  reader 1 acquires  granted
    b  writer 2 acquires  granted
    c  lock 3 acquires    granted
    d  lock 5 acquires    granted
    d  lock 6 adopts 5    granted
    d  lock 6 extends     granted
    e  lock 7 extends     denied
    a  reader 1 extends   granted
    b  writer 2 extends   granted
    c  lock 3 extends     granted
    e  lock 7 releases    denied
    a  reader 1 releases  granted
    b  writer 2 releases  granted
    c  lock 3 releases    granted
    d  lock 6 releases    granted
    a  lock 4 probes      free
";

#[tokio::test]
async fn a_server_does_what_the_table_says() {
    let servers = RedisServers::spawn(1).unwrap();
    let mut client = Client::of(servers.get(0)).await;
    client.carry_out_all(|_| true, || ()).await;
}

#[tokio::test]
async fn a_node_in_memory_does_what_the_table_says() {
    let mut client = Client::in_memory().await;
    client
        .carry_out_all(|story| !story.contains("redis "), || ())
        .await;
}

#[tokio::test]
async fn scripts_that_a_server_has_forgotten_are_sent_in_full() {
    let servers = RedisServers::spawn(1).unwrap();
    let cli = Cli::of(servers.get(0));
    let forget = || assert_eq!(cli.run(&["SCRIPT", "FLUSH"]), "OK");
    let mut client = Client::of(servers.get(0)).await;
    client.carry_out_all(|_| true, forget).await;
}

#[tokio::test]
async fn the_commands_of_a_batch_are_carried_out_in_their_order() {
    let servers = RedisServers::spawn(1).unwrap();
    for mut client in [Client::of(servers.get(0)).await, Client::in_memory().await] {
        let steps = BATCH.lines().filter(|line| !line.is_empty());
        let steps: Vec<_> = steps.map(columns).collect();
        let batch: Vec<_> = steps.iter().map(|it| command(it[0], it[1])).collect();
        let answers = client.session.execute(&batch).await.unwrap();
        for (step, answer) in steps.iter().zip(answers) {
            let answer = said(answer);
            assert!(is_meant(&answer, step[2]), "{step:?}: {answer}");
        }
    }
}

/// One session, which sends one command after the other.
struct Client {
    session: Box<dyn Session>,
    /// The foreign client, if the session is one of a server.
    redis: Option<Cli>,
}

impl Client {
    async fn of(server: &RedisServer) -> Self {
        let node = RedisNode::from_url(&server.url()).unwrap();
        let (session, redis) = (node.connect().await.unwrap(), Some(Cli::of(server)));
        Self { session, redis }
    }

    async fn in_memory() -> Self {
        let (session, redis) = (MemoryNode::new().connect().await.unwrap(), None);
        Self { session, redis }
    }

    /// Calls `before` before each step.
    async fn carry_out_all(&mut self, is_meant: fn(&str) -> bool, before: impl Fn()) {
        for story in STORIES.trim().split("\n\n").filter(|it| is_meant(it)) {
            let (title, steps) = story.split_once('\n').expect("a title");
            let key = title.replace([' ', ','], "-");
            let mut has = "nothing".to_owned();
            for line in steps.lines() {
                before();
                let line = line.replace("KEY", &key);
                has = self.carry_out(&key, &line, has).await;
            }
        }
    }

    /// Carries out a step. Returns what the key has then, which had this before.
    async fn carry_out(&mut self, key: &str, line: &str, had: String) -> String {
        let step = columns(line);
        let answer = self.answer(key, step[0]).await;
        assert!(is_meant(&answer, step[1]), "{line}: {answer}");
        let keys = ["other", key].map(|it| Key::new(it).unwrap());
        let state = self.session.look_up(&keys[1]).await;
        let state = shown(state.unwrap());
        let locks = self.session.look_up_locks(&keys).await.unwrap();
        let locks: Vec<_> = locks.into_iter().map(shown).collect();
        assert_eq!(locks, ["nothing", &state], "{line}");
        assert_eq!(
            state,
            step.get(2).map_or(had, |it| (*it).to_owned()),
            "{line}"
        );
        state
    }

    async fn answer(&mut self, key: &str, asked: &str) -> String {
        let Some(foreign) = asked.strip_prefix("redis ") else {
            let answers = self.session.execute(&[command(key, asked)]).await;
            if asked.ends_with(" 1ms") {
                sleep(MS(5)).await;
            }
            return said(answers.unwrap().remove(0));
        };
        let words: Vec<_> = foreign.split(' ').map(with_token).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let answer = self.redis.as_ref().expect("a server").run(&words);
        match words[0] {
            "PTTL" => rounded(answer.parse().ok().map(MS)),
            _ => answer,
        }
    }
}

fn is_meant(answer: &str, expected: &str) -> bool {
    match expected {
        ".." => true,
        // A server tells how long the key would have lived.
        "granted" => answer == "granted" || answer.starts_with("had "),
        "OOM" => answer.starts_with(expected),
        "WRONGTYPE" => answer.starts_with(expected) && answer.contains("redlock:readers:{"),
        _ => answer == expected,
    }
}

/// Columns have two spaces or more between them.
fn columns(line: &str) -> Vec<&str> {
    let columns = line.split("  ").map(str::trim);
    columns.filter(|it| !it.is_empty()).collect()
}

/// Reads a command, such as `lock 3 adopts 2 10m fence 9`.
fn command(key: &str, words: &str) -> Command {
    let words: Vec<_> = words.split(' ').collect();
    let access = match words[0] {
        "lock" => Access::Exclusive,
        "writer" => Access::Writer,
        who => Access::Reader {
            insists: who == "insistent",
        },
    };
    let token = token(words[1]);
    let ttl = TIMES.iter().find(|it| words[3..].contains(&it.0));
    let ttl = Ttl::new(MS(ttl.map_or(60_000, |it| it.1))).unwrap();
    // The last word is the fence.
    let fence = words[words.len() - 1].parse().ok().map(FencingToken::new);
    let fence = fence.filter(|_| words.contains(&"fence"));
    let operation = match words[2..] {
        ["acquires", ..] => Operation::Acquire { token, ttl, fence },
        ["adopts", giver, ..] => {
            let giver = self::token(giver);
            Operation::Adopt {
                giver,
                token,
                ttl,
                fence,
            }
        }
        ["raises", ..] => {
            let fence = fence.expect("a fence");
            Operation::Fence { token, fence }
        }
        ["extends", ..] => Operation::Extend {
            token,
            ttl,
            shortens: false,
        },
        ["releases"] => Operation::Release { token },
        ["marks", ..] => {
            let mark = Some(ttl);
            Operation::Probe { token, mark }
        }
        ["probes"] => Operation::Probe { token, mark: None },
        _ => panic!("{words:?}"),
    };
    Command::with_access(Key::new(key).unwrap(), operation, access)
}

/// The names of times in milliseconds. An exact time is rounded up to the next.
const TIMES: [(&str, u64); 5] = [
    ("1ms", 1),
    ("1m", 60_000),
    ("10m", 600_000),
    ("100m", 6_000_000),
    ("1d", 86_400_000),
];

/// Rounds a time up, but none to a millisecond. `None` has no end.
fn rounded(time: Option<Duration>) -> String {
    let Some(time) = time.filter(|it| *it != Duration::MAX) else {
        return "without an end".to_owned();
    };
    let mut longer = TIMES[1..].iter().filter(|it| time <= MS(it.1));
    format!("for {}", longer.next().expect("a day at most").0)
}

fn token(number: &str) -> Token {
    Nonce::new(number.parse().unwrap()).token(1)
}

/// Puts a token in the place of `#` and its number.
fn with_token(word: &str) -> String {
    match word.strip_prefix('#') {
        Some(number) => token(number).to_string(),
        None => word.to_owned(),
    }
}

/// Returns the number of a client, or the value of another one.
fn name(holder: &Holder) -> String {
    let mut numbers = (1..10).map(|it| it.to_string());
    let own = numbers.find(|it| holder.value() == token(it).to_ascii());
    own.unwrap_or_else(|| String::from_utf8_lossy(holder.value()).into_owned())
}

fn said(answer: Answer) -> String {
    match answer {
        Ok(Vote::Granted) => "granted".to_owned(),
        Ok(Vote::Extended { remaining }) => format!("had {}", rounded(Some(remaining))),
        Ok(Vote::Denied) => "denied".to_owned(),
        Ok(Vote::Free) => "free".to_owned(),
        Ok(Vote::Taken { remaining, by }) => {
            let by = by.map_or(String::new(), |it| format!(" by {}", name(&it)));
            format!("taken{by} {}", rounded(Some(remaining)))
        }
        Ok(Vote::Marked { .. }) => "marked".to_owned(),
        Ok(Vote::Outbid { counter }) => format!("outbid by {}", counter.get()),
        Err(NodeError::NotACounter { defect, .. }) => format!("counter {defect}"),
        Err(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Shows who has a key, and for how long.
fn shown(state: KeyState) -> String {
    let name_of = |it: &Occupant| it.holder.as_ref().map_or("another type".to_owned(), name);
    let one = |it: Occupant| format!("{} {}", name_of(&it), rounded(it.remaining));
    let readers = state
        .readers
        .into_iter()
        .map(|it| format!("reader {}", one(it)));
    let mark = state
        .waiting_writer
        .map(|it| format!("marked {}", rounded(Some(it))));
    let mut all: Vec<_> = readers.chain(state.lock.map(one)).chain(mark).collect();
    all.sort_unstable_by_key(|it| (it.starts_with("marked"), it.clone()));
    match &all[..] {
        [] => "nothing".to_owned(),
        all => all.join(", "),
    }
}
