use std::time::Duration;

use deadpool_redis::redis::{self, Arg};
use redlock_core::{FencingToken, Nonce, Permits, Slot, Ttl};

use super::*;
use crate::{
    Key,
    client_name::ClientName,
    key::{KeySet, Prefix, SlotKeys},
    node::{CounterDefect, Holder, Vote},
};

/// The command of a lease, which has a token and a ttl of one second.
fn command(lease: u128, operation: impl FnOnce(Token, Ttl) -> Operation) -> Command {
    let ttl = Ttl::new(Duration::from_secs(1)).unwrap();
    Command::new(key(lease), operation(Nonce::new(lease).token(1), ttl))
}

fn set(lease: u128) -> Command {
    let fence = None;
    command(lease, |token, ttl| Operation::Acquire { token, ttl, fence })
}

fn set_fenced(lease: u128) -> Command {
    let fence = Some(FencingToken::new(7));
    command(lease, |token, ttl| Operation::Acquire { token, ttl, fence })
}

fn fence(lease: u128) -> Command {
    let fence = FencingToken::new(8);
    command(lease, |token, _| Operation::Fence { token, fence })
}

fn extend(lease: u128) -> Command {
    command(lease, |token, ttl| Operation::Extend {
        token,
        ttl,
        shortens: false,
    })
}

fn release(lease: u128) -> Command {
    command(lease, |token, _| Operation::Release { token })
}

fn key(lease: u128) -> Key {
    Key::new(format!("k{lease}")).unwrap()
}

fn request(batch: &[Command]) -> Request {
    Request::new(&KeyTag::NONE, batch, false, Call::ByHash)
}

/// Shows what is sent, with `#` for hashes and tokens.
fn shown(request: &Request) -> Vec<String> {
    let shown = |bytes: &[u8]| match bytes.len() {
        Token::LEN => "#".to_owned(),
        _ => String::from_utf8(bytes.to_vec()).unwrap(),
    };
    let show = |cmd: &Cmd| {
        let arguments = cmd.args_iter().map(|argument| match argument {
            Arg::Simple(bytes) => shown(bytes),
            other => panic!("{other:?}"),
        });
        arguments.collect::<Vec<_>>().join(" ")
    };
    request.pipeline.cmd_iter().map(show).collect()
}

/// Returns the positions of the commands in the order in which they are sent. Of those that are sent in two parts, the
/// last one counts.
fn sent(request: &Request) -> Vec<usize> {
    let parts = request.parts.iter().rev();
    let positions = parts.flat_map(|part| part.positions.iter().rev());
    let mut sent = Vec::new();
    for position in positions {
        if !sent.contains(position) {
            sent.push(*position);
        }
    }
    sent.reverse();
    sent
}

/// Returns the answers so far, and the request if it must be sent again.
fn read(mut request: Request, replies: Vec<Value>) -> (Vec<Option<Answer>>, Option<Request>) {
    let again = request.read(replies);
    (request.answers.clone(), again.then_some(request))
}

fn error(code: &str) -> Value {
    let line = format!("-{code} because\r\n");
    redis::parse_redis_value(line.as_bytes()).unwrap()
}

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

const GRANTED: Option<Answer> = Some(Ok(Vote::Granted));
const DENIED: Option<Answer> = Some(Ok(Vote::Denied));
const EXTENDED: Option<Answer> = Some(Ok(Vote::Extended {
    remaining: Duration::from_millis(700),
}));

#[test]
fn counters_are_raised_by_one_script_after_the_keys_were_set() {
    let batch = [set_fenced(1), fence(2), set_fenced(3), release(4)];
    let expected = [
        "EVALSHA # 1 k4 #",
        "SET k1 # NX PX 1000",
        "SET k3 # NX PX 1000",
        "EVALSHA # 6 k1 k2 k3 redlock:fence:{k1} redlock:fence:{k2} redlock:fence:{k3} # # # 7 8 7 86400000",
    ];
    let outbid = |counter| {
        let counter = FencingToken::new(counter);
        Some(Ok(Vote::Outbid { counter }))
    };
    let defect = |lease: u128, defect| {
        let name = format!("redlock:fence:{{k{lease}}}").into();
        Some(Err(NodeError::NotACounter { name, defect }))
    };
    let defects = [
        defect(1, CounterDefect::OtherType),
        defect(2, CounterDefect::NoNumber),
        defect(3, CounterDefect::Beyond),
    ];
    for (set, fences, answers) in [
        (Value::Okay, "1,1,1", [GRANTED, GRANTED, GRANTED]),
        (Value::Nil, "-,-,1", [DENIED, DENIED, GRANTED]),
        (Value::Nil, "1,1,1", [DENIED, GRANTED, GRANTED]),
        (Value::Okay, "-,9,1", [DENIED, outbid(9), GRANTED]),
        (Value::Okay, "type,text,beyond", defects),
    ] {
        let request = request(&batch);
        assert_eq!(shown(&request), expected);
        let (read, again) = read(request, vec![text("1"), set, Value::Okay, text(fences)]);
        assert!(again.is_none());
        assert_eq!(read[..3], answers);
    }
    let request = request(&batch);
    let replies = vec![text("1"), Value::Nil, Value::Okay, error("NOSCRIPT")];
    let (_, again) = read(request, replies);
    let mut again = again.expect("the script in full");
    assert!(!again.read(vec![text("1"); 3]));
    assert_eq!(again.answers[..3], [DENIED, GRANTED, GRANTED]);
}

/// Each key is asked for with the token of its lock. The answer is granted if all of them are.
#[test]
fn several_keys_of_a_lock_share_scripts_with_other_locks() {
    let several = |it: Command| {
        let keys = KeySet::all(&Prefix::default(), ["a", "b"]).unwrap();
        Command::for_all(keys, it.operation(), it.access(), &ClientName::NONE)
    };
    let [extension, release, fence] = [extend(2), release(3), fence(4)].map(several);
    let batch = [extend(1), extension, release, fence];
    let expected = [
        "EVALSHA # 3 k1 a b # # # 1000 1000 1000",
        "EVALSHA # 2 a b # #",
        "EVALSHA # 4 a b redlock:fence:{a} redlock:fence:{b} # # 8 8 86400000",
    ];
    let counter = FencingToken::new(9);
    let outbid = Some(Ok(Vote::Outbid { counter }));
    for (extensions, digits, fences, answers) in [
        ("700,900,700", "11", "1,1", [EXTENDED, GRANTED, GRANTED]),
        ("700,-,700", "10", "-,9", [DENIED; 3]),
        ("700,700,-", "01", "type,-", [DENIED; 3]),
        ("700,700,800", "00", "9,7", [EXTENDED, DENIED, outbid]),
    ] {
        let request = request(&batch);
        assert_eq!(shown(&request), expected);
        let replies = [extensions, digits, fences].map(text);
        let (read, again) = read(request, replies.to_vec());
        assert!(again.is_none());
        assert_eq!((&read[0], &read[1..]), (&EXTENDED, &answers[..]));
    }
}

/// Tries all batches of five commands of two leases.
#[test]
fn no_command_overtakes_another_with_its_token() {
    type Make = fn(u128) -> Command;
    let makes: [(Make, u128); 7] = [
        (set_fenced, 1),
        (fence, 1),
        (extend, 1),
        (release, 1),
        (set, 2),
        (extend, 2),
        (release, 2),
    ];
    let mut overtaken = 0;
    for code in 0..7_usize.pow(5) {
        let batch: Vec<Command> = (0..5)
            .map(|digit| makes[code / 7_usize.pow(digit) % 7])
            .map(|(make, lease)| make(lease))
            .collect();
        let request = request(&batch);
        let mut sent = sent(&request);
        overtaken += usize::from(!sent.is_sorted());
        for (place, &first) in sent.iter().enumerate() {
            for &then in &sent[place + 1..] {
                let overtakes = then < first && batch[then].value() == batch[first].value();
                // A lease neither sets nor extends a key that it has released.
                let after_its_end = matches!(batch[then].operation(), Operation::Release { .. });
                assert!(!overtakes || after_its_end, "{batch:?} is sent as {sent:?}");
            }
        }
        sent.sort_unstable();
        assert_eq!(sent, [0, 1, 2, 3, 4], "each command is sent once");
    }
    assert!(overtaken > 1000, "{overtaken} batches were reordered");
}

/// The script reads all counters before it raises the first, so it must not be asked for one of them twice.
#[test]
fn a_counter_is_raised_once_by_each_script() {
    let expected = [
        "SET k1 # NX PX 1000",
        "EVALSHA # 2 k1 redlock:fence:{k1} # 7 86400000",
        "EVALSHA # 2 k1 redlock:fence:{k1} # 8 86400000",
    ];
    assert_eq!(shown(&request(&[set_fenced(1), fence(1)])), expected);
}

#[test]
fn commands_that_share_a_script_share_its_error() {
    let batch = [release(1), release(2)];
    for (reply, expected) in [
        (error("BUSY"), "BUSY because"),
        (error("OOM"), "OOM because"),
        (text("1"), "unexpected answer: "),
        (Value::Int(7), "unexpected answer: int(7)"),
        (text("x1"), "unexpected answer: a vote that is not 0 or 1"),
    ] {
        let (answers, again) = read(request(&batch), vec![reply]);
        assert!(again.is_none());
        let Some(Err(error)) = &answers[0] else {
            panic!("{answers:?}");
        };
        assert!(error.to_string().starts_with(expected), "{error}");
        assert!(answers[1].is_some());
    }
    let reply = Value::BulkString(vec![b'x'; 100_000]);
    let (answers, _) = read(request(&batch), vec![reply]);
    let Some(Err(error)) = &answers[0] else {
        panic!("a strange answer is no vote");
    };
    assert!(error.to_string().len() < 300);
}

#[test]
fn no_script_blocks_the_server_for_long() {
    let long = |lease| {
        let key = Key::new(vec![b'k'; Key::MAX_LEN]).unwrap();
        Command::new(key, release(lease).operation())
    };
    let batch: Vec<_> = (0..5).map(long).collect();
    let request = request(&batch);
    assert_eq!(request.pipeline.len(), 3, "two keys of 64 KiB each");
    assert_eq!(sent(&request), [0, 1, 2, 3, 4]);
}

#[test]
fn probes_share_one_question_for_their_holders() {
    let probe = |lease| command(lease, |token, _| Operation::Probe { token, mark: None });
    let batch = [probe(1), release(2), probe(3), probe(4)];
    let request = Request::new(&KeyTag::NONE, &batch, true, Call::ByHash);
    let expected = [
        "EVALSHA # 1 k2 #",
        "CLIENT CACHING YES",
        "MGET k1 k3 k4",
        "PTTL k1",
        "PTTL k3",
        "PTTL k4",
    ];
    assert_eq!(shown(&request), expected);
    let taken = |by: Option<&str>| {
        let by = by.map(|it| Holder::new(it.as_bytes()));
        let remaining = Duration::from_millis(700);
        Some(Ok(Vote::Taken { remaining, by }))
    };
    let times = [700, 700, -2].map(Value::Int);
    // The second key was taken, and the third freed, after they were asked for.
    let holders = Value::Array(vec![text("a"), Value::Nil, text("b")]);
    let caching = Value::Okay;
    let replies = [&[text("1"), caching.clone(), holders], &times[..]].concat();
    let (answers, again) = read(request, replies);
    assert!(again.is_none());
    let expected = [taken(Some("a")), GRANTED, taken(None), Some(Ok(Vote::Free))];
    assert_eq!(answers, expected);

    // One of the keys may be the cause of an error.
    let request = Request::new(&KeyTag::NONE, &batch[2..], true, Call::ByHash);
    let replies = [&[caching.clone(), error("NOPERM")], &times[1..]].concat();
    let (_, again) = read(request, replies);
    let again = again.expect("each key on its own");
    let expected = ["k3", "k4"].map(|key| {
        [
            "CLIENT CACHING YES".to_owned(),
            format!("MGET {key}"),
            format!("PTTL {key}"),
        ]
    });
    assert_eq!(shown(&again), expected.concat());
    let [refused, holder] = [error("NOPERM"), Value::Array(vec![text("b")])];
    let alone = [
        [caching, refused.clone(), refused],
        [Value::Okay, holder, Value::Int(700)],
    ];
    let (answers, again) = read(again, alone.concat());
    assert!(again.is_none() && matches!(answers[0], Some(Err(_))));
    assert_eq!(answers[1], taken(Some("b")));
}

#[test]
fn slots_of_a_semaphore_are_tracked_before_they_are_asked_for() {
    let permits = Permits::new(3).unwrap();
    let keys = SlotKeys::new(&Prefix::default(), b"k", permits).unwrap();
    let slots = [0, 2].map(|index| Slot::new(index).unwrap());
    let slots = slots.into_iter().collect();
    let token = Nonce::new(1).token(0);
    let probe = Operation::Probe { token, mark: None };
    let batch = [Command::for_slots(keys.keys_of(slots), slots, probe)];
    let script = "EVALSHA # 2 k:slot:0 k:slot:2";
    let request = |tracks| Request::new(&KeyTag::NONE, &batch, tracks, Call::ByHash);
    assert_eq!(shown(&request(false)), [script]);
    let tracked = ["CLIENT CACHING YES", "MGET k:slot:0 k:slot:2"];
    assert_eq!(shown(&request(true)), [tracked[0], tracked[1], script]);

    let expected = Vote::slots([
        (Slot::new(0).unwrap(), None),
        (Slot::new(2).unwrap(), Some(Duration::from_millis(700))),
    ]);
    let (answers, again) = read(request(false), vec![text("-2,700")]);
    assert_eq!((answers, again.is_none()), (vec![Some(Ok(expected))], true));
    for senseless in ["-2", "-2,x", ""] {
        let (answers, _) = read(request(false), vec![text(senseless)]);
        assert!(matches!(answers[..], [Some(Err(_))]), "{senseless}");
    }
    let (_, again) = read(request(false), vec![error("NOSCRIPT")]);
    let again = shown(&again.expect("in full"));
    assert!(again[0].starts_with("EVAL "), "{again:?}");
}

#[test]
fn an_extended_key_that_changes_before_it_is_tracked_is_denied() {
    let batch = [extend(1), extend(2)];
    let own = |command: &Command| Value::BulkString(command.value().to_vec());
    for (second, vote) in [
        (
            own(&batch[1]),
            Vote::Extended {
                remaining: Duration::from_millis(600),
            },
        ),
        (text("another"), Vote::Denied),
        (Value::Nil, Vote::Denied),
    ] {
        let request = Request::new(&KeyTag::NONE, &batch, true, Call::ByHash);
        let expected = [
            "EVALSHA # 2 k1 k2 # # # #",
            "CLIENT CACHING YES",
            "MGET k1 k2",
        ];
        assert_eq!(shown(&request).len(), expected.len());
        assert_eq!(shown(&request)[1..], expected[1..]);
        let values = Value::Array(vec![own(&batch[0]), second]);
        let (answers, again) = read(request, vec![text("700,600"), Value::Okay, values]);
        assert!(again.is_none());
        let remaining = Duration::from_millis(700);
        assert_eq!(
            answers,
            [Some(Ok(Vote::Extended { remaining })), Some(Ok(vote))]
        );
    }
}
