//! How a batch travels: which commands share a request, and which answer is whose.

use std::time::Duration;

use deadpool_redis::redis::{self, Arg, Cmd, Pipeline, ServerError, Value};
use redlock_core::{FencingToken, Operation, Token};

use super::{
    compare::Compare,
    script::{self, Script},
    shorten,
    stretch::Stretch,
};
use crate::node::{Answer, Command, NodeError, Vote};

/// What `PTTL` says of a key that does not exist.
const PTTL_NO_KEY: i64 = -2;

/// A pipeline that asks what a batch asks.
pub(super) struct Request {
    pipeline: Pipeline,
    /// What each command of the pipeline is.
    parts: Vec<Part>,
    /// The positions in the batch of what the parts ask, one part after the other.
    positions: Vec<usize>,
    replaces_commands: bool,
}

#[derive(Clone, Copy)]
struct Part {
    form: Form,
    /// How many commands of the batch it carries.
    count: usize,
}

#[derive(Clone, Copy)]
enum Form {
    /// `SET .. NX`.
    Set,
    /// `SET .. NX` and the raising of a fencing counter, by a script that is sent in full.
    AcquireFenced,
    /// The raising alone, by a script.
    Fence,
    /// Extensions of many keys, by one script.
    Extensions,
    /// Releases of many keys, by one script.
    Releases,
    /// `PTTL`, before `SET .. IFEQ`.
    Peek,
    /// `SET .. IFEQ`.
    Extend,
    /// `DELEX` or `DELIFEQ`.
    Release,
}

impl Request {
    /// Encodes a batch.
    pub(super) fn new(batch: &[Command], compare: Compare) -> Self {
        let mut request = Self::with_capacity(batch.len());
        if compare == Compare::ByScript {
            let mut stretch = Stretch::default();
            for (position, command) in batch.iter().enumerate() {
                if !stretch.admits(command) {
                    request.push_stretch(&mut stretch, batch);
                }
                stretch.push(position, command);
            }
            request.push_stretch(&mut stretch, batch);
        } else {
            for (position, command) in batch.iter().enumerate() {
                request.push(position, command, compare);
            }
        }
        request
    }

    fn with_capacity(capacity: usize) -> Self {
        Self {
            pipeline: Pipeline::with_capacity(capacity),
            parts: Vec::with_capacity(capacity),
            positions: Vec::with_capacity(capacity),
            replaces_commands: false,
        }
    }

    pub(super) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Hands out the answers that a server's replies hold, by position in the batch. Returns what
    /// must be asked again in another way: scripts that the server has forgotten, commands that it
    /// does not allow.
    pub(super) fn read(self, replies: Vec<Value>, answers: &mut [Option<Answer>]) -> Option<Self> {
        let mut again = Self::with_capacity(0);
        let mut positions = self.positions.as_slice();
        for ((part, cmd), reply) in self
            .parts
            .into_iter()
            .zip(self.pipeline.cmd_iter())
            .zip(replies)
        {
            let (own, rest) = positions.split_at(part.count);
            positions = rest;
            let Some((cmd, form)) = part.form.in_full(cmd, &reply) else {
                part.form.read(reply, own, answers);
                continue;
            };
            again.pipeline.add_command(cmd);
            again.parts.push(Part { form, ..part });
            again.positions.extend_from_slice(own);
            again.replaces_commands |= matches!(part.form, Form::Extend | Form::Release);
        }
        (!again.parts.is_empty()).then_some(again)
    }

    /// Returns whether it asks by script what the server would not do by command.
    pub(super) fn replaces_commands(&self) -> bool {
        self.replaces_commands
    }

    fn push_stretch(&mut self, stretch: &mut Stretch, batch: &[Command]) {
        self.push_many(
            Form::Extensions,
            &script::EXTEND,
            &mut stretch.extensions,
            batch,
        );
        self.push_many(
            Form::Releases,
            &script::RELEASE,
            &mut stretch.releases,
            batch,
        );
        for position in stretch.rest.drain(..) {
            self.push(position, &batch[position], Compare::ByScript);
        }
        stretch.tokens.clear();
    }

    /// `EVALSHA hash n key.. token.. ttl..`
    fn push_many(
        &mut self,
        form: Form,
        script: &Script,
        positions: &mut Vec<usize>,
        batch: &[Command],
    ) {
        if positions.is_empty() {
            return;
        }
        let commands = || positions.iter().map(|&position| &batch[position]);
        let keys_len: usize = commands().map(|it| it.key().as_bytes().len()).sum();
        let count = positions.len();
        let mut cmd = Cmd::with_capacity(3 + 3 * count, 64 + keys_len + count * (Token::LEN + 8));
        cmd.arg("EVALSHA").arg(script.hash()).arg(count);
        for command in commands() {
            cmd.arg(command.key().as_bytes());
        }
        for command in commands() {
            cmd.arg(command.token());
        }
        for command in commands() {
            if let Operation::Extend { ttl, .. } = command.operation() {
                cmd.arg(ttl.as_millis());
            }
        }
        self.pipeline.add_command(cmd);
        self.parts.push(Part { form, count });
        self.positions.append(positions);
    }

    /// Encodes a command on its own.
    fn push(&mut self, position: usize, command: &Command, compare: Compare) {
        let key = command.key().as_bytes();
        let mut cmd = Cmd::with_capacity(8, 80 + key.len());
        let form = match command.operation() {
            Operation::Acquire {
                ttl, fence: None, ..
            } => {
                cmd.arg("SET").arg(key).arg(command.token());
                cmd.arg("NX").arg("PX").arg(ttl.as_millis());
                Form::Set
            }
            Operation::Acquire {
                ttl,
                fence: Some(fence),
                ..
            } => {
                // By hash it might have to be sent again, and then arrive after its own release.
                cmd.arg("EVAL").arg(script::ACQUIRE_FENCED.source());
                cmd.arg(2).arg(key).arg(counter_of(key));
                cmd.arg(command.token()).arg(ttl.as_millis());
                cmd.arg(fence.get());
                Form::AcquireFenced
            }
            Operation::Fence { fence, .. } => {
                cmd.arg("EVALSHA").arg(script::FENCE.hash());
                cmd.arg(2).arg(key).arg(counter_of(key));
                cmd.arg(command.token()).arg(fence.get());
                Form::Fence
            }
            Operation::Extend { ttl, .. } => {
                let mut peek = redis::cmd("PTTL");
                peek.arg(key);
                self.push_part(position, peek, Form::Peek);
                // The ttl of a lease never changes, so the latest extension is the longest.
                cmd.arg("SET").arg(key).arg(command.token());
                cmd.arg("IFEQ").arg(command.token());
                cmd.arg("PX").arg(ttl.as_millis());
                Form::Extend
            }
            Operation::Release { .. } => {
                match compare {
                    Compare::Delex => cmd.arg("DELEX").arg(key).arg("IFEQ"),
                    Compare::DelIfEq | Compare::ByScript => cmd.arg("DELIFEQ").arg(key),
                };
                cmd.arg(command.token());
                Form::Release
            }
        };
        self.push_part(position, cmd, form);
    }

    fn push_part(&mut self, position: usize, cmd: Cmd, form: Form) {
        self.pipeline.add_command(cmd);
        self.parts.push(Part { form, count: 1 });
        self.positions.push(position);
    }
}

impl Form {
    /// Returns the script in full, if the reply says that the server does not know its hash, or
    /// will not do what it does by command.
    fn in_full(self, cmd: &Cmd, reply: &Value) -> Option<(Cmd, Self)> {
        let Value::ServerError(error) = reply else {
            return None;
        };
        let mut arguments = arguments(cmd);
        let mut full = redis::cmd("EVAL");
        let form = match (self, error.code()) {
            (Self::Fence | Self::Extensions | Self::Releases, "NOSCRIPT") => {
                let script = match self {
                    Self::Fence => &script::FENCE,
                    Self::Extensions => &script::EXTEND,
                    _ => &script::RELEASE,
                };
                full.arg(script.source());
                for argument in arguments.skip(2) {
                    full.arg(argument);
                }
                self
            }
            (Self::Extend, "NOPERM" | "ERR") => {
                // `SET key token IFEQ token PX ttl`
                full.arg(script::EXTEND.source()).arg(1);
                full.arg(arguments.nth(1)?).arg(arguments.next()?);
                full.arg(arguments.last()?);
                Self::Extensions
            }
            (Self::Release, "NOPERM" | "ERR") => {
                // `DELEX key IFEQ token`, `DELIFEQ key token`
                full.arg(script::RELEASE.source()).arg(1);
                full.arg(arguments.nth(1)?).arg(arguments.last()?);
                Self::Releases
            }
            _ => return None,
        };
        Some((full, form))
    }

    /// Reads the reply to one part.
    fn read(self, reply: Value, positions: &[usize], answers: &mut [Option<Answer>]) {
        match (self, reply) {
            (Self::Releases, Value::BulkString(digits)) if digits.len() == positions.len() => {
                for (&position, digit) in positions.iter().zip(digits) {
                    answers[position] = Some(match digit {
                        b'1' => Ok(Vote::Granted),
                        b'0' => Ok(Vote::Denied),
                        _ => Err(NodeError::Unexpected("a vote that is no digit".into())),
                    });
                }
            }
            (Self::Extensions, Value::BulkString(text)) => {
                let mut numbers = text.split(|&byte| byte == b',');
                for &position in positions {
                    answers[position] = numbers.next().map(read_remaining);
                }
            }
            (Self::Fence | Self::AcquireFenced, Value::BulkString(text)) => {
                answers[positions[0]] = Some(read_counter(&text));
            }
            (Self::Peek, Value::Int(left)) if left != PTTL_NO_KEY => {
                answers[positions[0]] = Some(Ok(extended(left)));
            }
            // Then the extension is told without it.
            (Self::Peek, _) => {}
            (Self::Extend, Value::Okay) if answers[positions[0]].is_some() => {}
            (Self::Extend | Self::Release, Value::ServerError(error))
                if error.code() == "WRONGTYPE" =>
            {
                answers[positions[0]] = Some(Ok(Vote::Denied));
            }
            (_, reply) => {
                let answer = read_vote(reply);
                for &position in positions {
                    answers[position] = Some(answer.clone());
                }
            }
        }
    }
}

fn arguments(cmd: &Cmd) -> impl Iterator<Item = &[u8]> {
    cmd.args_iter().filter_map(|argument| match argument {
        Arg::Simple(bytes) => Some(bytes),
        // A cursor, which only `SCAN` has.
        _ => None,
    })
}

fn read_vote(reply: Value) -> Answer {
    match reply {
        Value::Okay | Value::Int(1) => Ok(Vote::Granted),
        Value::Nil | Value::Int(0) => Ok(Vote::Denied),
        Value::ServerError(error) => Err(refusal(&error)),
        other => Err(NodeError::Unexpected(shorten(format!("{other:?}")).into())),
    }
}

pub(super) fn refusal(error: &ServerError) -> NodeError {
    NodeError::Refused {
        code: shorten(error.code().to_owned()).into(),
        message: shorten(error.details().unwrap_or_default().to_owned()).into(),
    }
}

/// Reads how long a key had left, or that it is not ours.
fn read_remaining(text: &[u8]) -> Answer {
    if text == b"-" {
        return Ok(Vote::Denied);
    }
    match str::from_utf8(text).map(str::parse) {
        Ok(Ok(left)) => Ok(extended(left)),
        _ => Err(NodeError::Unexpected(
            "a time to live that is no number".into(),
        )),
    }
}

/// `left` is in milliseconds, or negative for a key without an end.
fn extended(left: i64) -> Vote {
    let remaining = u64::try_from(left).map_or(Duration::MAX, Duration::from_millis);
    Vote::Extended { remaining }
}

fn read_counter(text: &[u8]) -> Answer {
    match str::from_utf8(text).map(str::parse) {
        Ok(Ok(counter)) => Ok(Vote::Outbid {
            counter: FencingToken::new(counter),
        }),
        _ => Err(NodeError::Unexpected("a counter that is no number".into())),
    }
}

/// The key of a lock's fencing counter.
fn counter_of(key: &[u8]) -> Vec<u8> {
    [key, b":fence"].concat()
}

#[cfg(test)]
mod tests {
    use redlock_core::{Nonce, Ttl};

    use super::*;
    use crate::Key;

    fn set(lease: u128) -> Command {
        let token = Nonce::new(lease).token(1);
        let ttl = Ttl::new(Duration::from_secs(1)).unwrap();
        let fence = None;
        Command::new(key(lease), Operation::Acquire { token, ttl, fence })
    }

    fn extend(lease: u128) -> Command {
        let token = Nonce::new(lease).token(1);
        let ttl = Ttl::new(Duration::from_secs(1)).unwrap();
        Command::new(key(lease), Operation::Extend { token, ttl })
    }

    fn release(lease: u128) -> Command {
        let token = Nonce::new(lease).token(1);
        Command::new(key(lease), Operation::Release { token })
    }

    fn key(lease: u128) -> Key {
        Key::new(format!("k{lease}")).unwrap()
    }

    /// Shows what is sent, with `#` for hashes and tokens.
    fn shown(request: &Request) -> Vec<String> {
        let shown = |bytes: &[u8]| match bytes.len() {
            Token::LEN => "#".to_owned(),
            _ => String::from_utf8(bytes.to_vec()).unwrap(),
        };
        let show = |cmd: &Cmd| {
            let arguments: Vec<String> = arguments(cmd).map(shown).collect();
            arguments.join(" ")
        };
        request.pipeline.cmd_iter().map(show).collect()
    }

    fn read(request: Request, replies: Vec<Value>) -> (Vec<Option<Answer>>, Option<Request>) {
        let mut answers = vec![None; 1 + request.positions.iter().max().copied().unwrap_or(0)];
        let again = request.read(replies, &mut answers);
        (answers, again)
    }

    fn error(code: &str) -> Value {
        let line = format!("-{code} because\r\n");
        redis::parse_redis_value(line.as_bytes()).unwrap()
    }

    const GRANTED: Option<Answer> = Some(Ok(Vote::Granted));
    const DENIED: Option<Answer> = Some(Ok(Vote::Denied));
    const EXTENDED: Option<Answer> = Some(Ok(Vote::Extended {
        remaining: Duration::from_millis(700),
    }));

    #[test]
    fn releases_and_extensions_share_scripts() {
        let batch = [set(1), release(2), extend(3), set(4), release(5)];
        let request = Request::new(&batch, Compare::ByScript);
        let expected = [
            "EVALSHA # 1 k3 # 1000",
            "EVALSHA # 2 k2 k5 # #",
            "SET k1 # NX PX 1000",
            "SET k4 # NX PX 1000",
        ];
        assert_eq!(shown(&request), expected);
        let text = |digits: &[u8]| Value::BulkString(digits.to_vec());
        let (answers, again) = read(
            request,
            vec![text(b"700"), text(b"01"), Value::Okay, Value::Nil],
        );
        assert_eq!(answers, [GRANTED, DENIED, EXTENDED, DENIED, GRANTED]);
        assert!(again.is_none());
    }

    #[test]
    fn servers_that_compare_need_no_script() {
        let batch = [set(1), extend(2), release(3)];
        let valkey = Request::new(&batch, Compare::DelIfEq);
        let expected = [
            "SET k1 # NX PX 1000",
            "PTTL k2",
            "SET k2 # IFEQ # PX 1000",
            "DELIFEQ k3 #",
        ];
        assert_eq!(shown(&valkey), expected);
        let redis = Request::new(&batch, Compare::Delex);
        assert_eq!(shown(&redis)[3], "DELEX k3 IFEQ #");
        for (left, set, extension) in [
            (Value::Int(700), Value::Okay, EXTENDED),
            (error("NOPERM"), Value::Okay, GRANTED),
            (Value::Int(700), Value::Nil, DENIED),
            (Value::Int(-2), Value::Nil, DENIED),
        ] {
            let replies = vec![Value::Okay, left, set, Value::Int(1)];
            let (answers, _) = read(Request::new(&batch, Compare::DelIfEq), replies);
            assert_eq!(answers[..3], [GRANTED, extension, GRANTED]);
        }
    }

    /// Whatever a batch of up to five commands of two leases holds.
    #[test]
    fn no_command_overtakes_another_with_its_token() {
        type Make = fn(u128) -> Command;
        let makes: [(Make, u128); 6] = [
            (set, 1),
            (extend, 1),
            (release, 1),
            (set, 2),
            (extend, 2),
            (release, 2),
        ];
        let mut overtaken = 0;
        for code in 0..6_usize.pow(5) {
            let batch: Vec<Command> = (0..5)
                .map(|digit| makes[code / 6_usize.pow(digit) % 6])
                .map(|(make, lease)| make(lease))
                .collect();
            let request = Request::new(&batch, Compare::ByScript);
            let mut asked = request.positions.clone();
            overtaken += usize::from(!asked.is_sorted());
            for (place, &first) in asked.iter().enumerate() {
                for &then in &asked[place + 1..] {
                    let overtakes = then < first && batch[then].token() == batch[first].token();
                    // A lease neither sets nor extends a key that it has released.
                    let after_its_end =
                        matches!(batch[then].operation(), Operation::Release { .. });
                    assert!(
                        !overtakes || after_its_end,
                        "{batch:?} is sent as {asked:?}"
                    );
                }
            }
            asked.sort_unstable();
            assert_eq!(asked, [0, 1, 2, 3, 4], "each is asked once");
        }
        assert!(
            overtaken > 1000,
            "{overtaken} batches were not sent as they came"
        );
    }

    #[test]
    fn what_a_server_does_not_know_is_sent_in_full() {
        let batch = [release(1), set(2), release(3)];
        let request = Request::new(&batch, Compare::ByScript);
        let (answers, again) = read(request, vec![error("NOSCRIPT"), Value::Okay]);
        assert_eq!(answers, [None, GRANTED, None]);
        let again = again.expect("the script in full");
        assert!(!again.replaces_commands());
        let expected = format!("EVAL {} 2 k1 k3 # #", script::RELEASE.source());
        assert_eq!(shown(&again), [expected]);
        let mut answers = answers;
        assert!(
            again
                .read(vec![Value::BulkString(b"10".to_vec())], &mut answers)
                .is_none()
        );
        assert_eq!(answers, [GRANTED, GRANTED, DENIED]);
    }

    #[test]
    fn what_a_server_does_not_allow_is_done_by_script() {
        let batch = [extend(1), release(2)];
        for compare in [Compare::Delex, Compare::DelIfEq] {
            let request = Request::new(&batch, compare);
            let replies = vec![Value::Int(700), error("ERR"), error("NOPERM")];
            let (_, again) = read(request, replies);
            let again = again.expect("scripts");
            assert!(again.replaces_commands());
            let expected = [
                format!("EVAL {} 1 k1 # 1000", script::EXTEND.source()),
                format!("EVAL {} 1 k2 #", script::RELEASE.source()),
            ];
            assert_eq!(shown(&again), expected);
        }
    }

    #[test]
    fn errors_are_everybodys_who_shares_them() {
        let batch = [release(1), release(2)];
        for (reply, expected) in [
            (error("BUSY"), "BUSY because"),
            (Value::BulkString(b"1".to_vec()), "unexpected answer: "),
            (Value::Int(7), "unexpected answer: int(7)"),
            (
                Value::BulkString(b"x1".to_vec()),
                "unexpected answer: a vote that is no digit",
            ),
        ] {
            let (answers, again) = read(Request::new(&batch, Compare::ByScript), vec![reply]);
            assert!(again.is_none());
            let Some(Err(error)) = &answers[0] else {
                panic!("{answers:?}");
            };
            assert!(error.to_string().starts_with(expected), "{error}");
            assert!(answers[1].is_some());
        }
        let native = Request::new(&batch, Compare::DelIfEq);
        let (answers, _) = read(
            native,
            vec![error("WRONGTYPE"), Value::BulkString(vec![b'x'; 100_000])],
        );
        assert_eq!(answers[0], DENIED, "it is not ours");
        let Some(Err(error)) = &answers[1] else {
            panic!("an odd answer is no vote");
        };
        assert!(error.to_string().len() < 300);
    }
}
