//! How a batch travels: which commands share a request, and which answer is whose.

use deadpool_redis::redis::{self, Cmd, Pipeline, Value};
use redlock_core::{Operation, Token};

use super::{
    compare::{Compare, Native},
    counter_name,
    part::{Form, Part},
    script::{self, Script},
    stretch::Stretch,
};
use crate::node::{Answer, Command};

/// The most bytes of keys that share a script, which the server runs without a pause: some
/// milliseconds of it. Keys are rarely long; 512 of a usual length are a tenth of it.
const MAX_SHARED: usize = 128 * 1024;

/// A pipeline that asks what a batch asks.
pub(super) struct Request {
    pipeline: Pipeline,
    /// What each command of the pipeline is.
    parts: Vec<Part>,
    /// The positions in the batch of what the parts ask, one part after the other.
    positions: Vec<usize>,
    /// The positions of what is asked by script because the server would not do it by command.
    replaced: Vec<usize>,
    tracks: bool,
}

impl Request {
    /// Encodes a batch. `tracks` says whether the server tells what becomes of keys that are looked at.
    pub(super) fn new(batch: &[Command], compare: Compare, tracks: bool) -> Self {
        let mut request = Self::with_capacity(batch.len());
        request.tracks = tracks;
        match compare {
            Compare::ByScript => {
                let mut stretch = Stretch::default();
                for (position, command) in batch.iter().enumerate() {
                    if !stretch.admits(command) {
                        request.push_stretch(&mut stretch, batch);
                    }
                    stretch.push(position, command);
                }
                request.push_stretch(&mut stretch, batch);
            }
            Compare::Natively(native) => {
                for (position, command) in batch.iter().enumerate() {
                    request.push(position, command, native);
                }
            }
        }
        request
    }

    fn with_capacity(capacity: usize) -> Self {
        Self {
            pipeline: Pipeline::with_capacity(capacity),
            parts: Vec::with_capacity(capacity),
            positions: Vec::with_capacity(capacity),
            replaced: Vec::new(),
            tracks: false,
        }
    }

    pub(super) fn pipeline_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// Hands out the answers that a server's replies hold, by position in the batch. Returns what
    /// must be asked again in another way: scripts that the server has forgotten, commands that it
    /// does not do, keys that were refused for one among them.
    pub(super) fn read(self, replies: Vec<Value>, answers: &mut [Option<Answer>]) -> Option<Self> {
        let mut again = Self::with_capacity(0);
        let mut positions = self.positions.as_slice();
        let cmds = self.pipeline.cmd_iter();
        for ((part, cmd), reply) in self.parts.into_iter().zip(cmds).zip(replies) {
            let (own, rest) = positions.split_at(part.count);
            positions = rest;
            let instead = part.instead(cmd, &reply);
            if instead.is_empty() {
                part.read(cmd, reply, own, answers);
                continue;
            }
            if part.is_unknown_command(&reply) {
                again.replaced.extend_from_slice(own);
            }
            again.positions.extend_from_slice(own);
            for (cmd, part) in instead {
                again.pipeline.add_command(cmd);
                again.parts.push(part);
            }
        }
        (!again.parts.is_empty()).then_some(again)
    }

    /// Returns the positions of what is asked by script because the server would not do it by
    /// command. If it does by script, it was the command that it does not do.
    pub(super) fn take_replaced(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.replaced)
    }

    fn push_stretch(&mut self, stretch: &mut Stretch, batch: &[Command]) {
        let Stretch {
            extensions,
            releases,
            rest,
            ..
        } = std::mem::take(stretch);
        self.push_shared(Form::Extensions, &script::EXTEND, &extensions, batch);
        self.push_shared(Form::Releases, &script::RELEASE, &releases, batch);
        for position in rest {
            self.push_of_rest(position, &batch[position]);
        }
    }

    /// Shares scripts among many keys.
    fn push_shared(&mut self, form: Form, script: &Script, positions: &[usize], batch: &[Command]) {
        let mut from = 0;
        let mut len = 0;
        for (to, &position) in positions.iter().enumerate() {
            len += batch[position].key().as_bytes().len();
            if len > MAX_SHARED && to > from {
                self.push_script(form, script, &positions[from..to], batch);
                from = to;
                len = batch[position].key().as_bytes().len();
            }
        }
        if from < positions.len() {
            self.push_script(form, script, &positions[from..], batch);
        }
    }

    /// `EVALSHA hash n key.. token.. ttl..`
    fn push_script(&mut self, form: Form, script: &Script, positions: &[usize], batch: &[Command]) {
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
        self.parts.push(Part::shared(form, count));
        self.positions.extend_from_slice(positions);
    }

    /// Encodes a command for a server that compares natively.
    fn push(&mut self, position: usize, command: &Command, native: Native) {
        let key = command.key().as_bytes();
        let mut cmd = Cmd::with_capacity(8, 80 + key.len());
        match command.operation() {
            _ if command.has_several_keys() => self.push_of_rest(position, command),
            Operation::Extend { ttl, .. } => {
                let mut peek = redis::cmd("PTTL");
                peek.arg(key);
                self.push_part(position, peek, Form::Peek);
                // The ttl is never shorter than the time for which the lock relies on the key.
                cmd.arg("SET").arg(key).arg(command.token());
                cmd.arg("IFEQ").arg(command.token());
                cmd.arg("PX").arg(ttl.as_millis());
                self.push_part(position, cmd, Form::Extend);
            }
            Operation::Release { .. } => {
                match native {
                    Native::Delex => cmd.arg("DELEX").arg(key).arg("IFEQ"),
                    Native::DelIfEq => cmd.arg("DELIFEQ").arg(key),
                };
                cmd.arg(command.token());
                self.push_part(position, cmd, Form::Release);
            }
            _ => self.push_of_rest(position, command),
        }
    }

    /// Encodes what is the same for every server.
    fn push_of_rest(&mut self, position: usize, command: &Command) {
        let key = command.key().as_bytes();
        let mut cmd = Cmd::with_capacity(8, 80 + key.len());
        let form = match command.operation() {
            Operation::Probe { .. } => return self.push_probe(position, command),
            _ if command.has_several_keys() => return self.push_for_all(position, command),
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
                cmd.arg(2).arg(key).arg(counter_name::name_of(key));
                cmd.arg(command.token()).arg(ttl.as_millis());
                cmd.arg(fence.get());
                Form::AcquireFenced
            }
            Operation::Fence { fence, .. } => {
                cmd.arg("EVALSHA").arg(script::FENCE.hash());
                cmd.arg(2).arg(key).arg(counter_name::name_of(key));
                cmd.arg(command.token()).arg(fence.get());
                Form::Fence
            }
            // Extensions and releases are not of the rest, and others are refused.
            _ => return,
        };
        self.push_part(position, cmd, form);
    }

    /// Looks at each key, to be told when it is gone.
    fn push_probe(&mut self, position: usize, command: &Command) {
        for key in command.keys() {
            if self.tracks {
                // It concerns the next command.
                let mut caching = redis::cmd("CLIENT");
                caching.arg("CACHING").arg("YES");
                self.pipeline.add_command(caching);
                self.parts.push(Part::shared(Form::Caching, 0));
            }
            let mut look = redis::cmd("PTTL");
            look.arg(key.as_bytes());
            self.push_part(position, look, Form::Probe);
        }
    }

    /// Encodes a command for several keys: a script that is sent in full. They are rare, and one that
    /// was missing would have to be sent again after what came behind it.
    fn push_for_all(&mut self, position: usize, command: &Command) {
        let (script, ttl, form) = match command.operation() {
            Operation::Acquire { ttl, .. } => (&script::ACQUIRE_ALL, Some(ttl), Form::AcquireAll),
            Operation::Extend { ttl, .. } => (&script::EXTEND_ALL, Some(ttl), Form::ExtendAll),
            Operation::Release { .. } => (&script::RELEASE_ALL, None, Form::ReleaseAll),
            // There is no fence for several keys, and others are refused.
            _ => return,
        };
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(script.source()).arg(command.key_count());
        for key in command.keys() {
            cmd.arg(key.as_bytes());
        }
        cmd.arg(command.token());
        cmd.arg(ttl.map(|ttl| ttl.as_millis()));
        self.push_part(position, cmd, form);
    }

    fn push_part(&mut self, position: usize, cmd: Cmd, form: Form) {
        self.pipeline.add_command(cmd);
        self.parts.push(Part::shared(form, 1));
        self.positions.push(position);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redlock_core::{Nonce, Ttl};

    use super::{super::part::arguments, *};
    use crate::{Key, Vote};

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

    const VALKEY: Compare = Compare::Natively(Native::DelIfEq);
    const REDIS: Compare = Compare::Natively(Native::Delex);
    const GRANTED: Option<Answer> = Some(Ok(Vote::Granted));
    const DENIED: Option<Answer> = Some(Ok(Vote::Denied));
    const EXTENDED: Option<Answer> = Some(Ok(Vote::Extended {
        remaining: Duration::from_millis(700),
    }));

    #[test]
    fn releases_and_extensions_share_scripts() {
        let batch = [set(1), release(2), extend(3), set(4), release(5)];
        let request = Request::new(&batch, Compare::ByScript, false);
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
        let valkey = Request::new(&batch, VALKEY, false);
        let expected = [
            "SET k1 # NX PX 1000",
            "PTTL k2",
            "SET k2 # IFEQ # PX 1000",
            "DELIFEQ k3 #",
        ];
        assert_eq!(shown(&valkey), expected);
        let redis = Request::new(&batch, REDIS, false);
        assert_eq!(shown(&redis)[3], "DELEX k3 IFEQ #");
        for (left, set, extension) in [
            (Value::Int(700), Value::Okay, EXTENDED),
            (error("NOPERM"), Value::Okay, GRANTED),
            (Value::Int(700), Value::Nil, DENIED),
            (Value::Int(-2), Value::Nil, DENIED),
        ] {
            let replies = vec![Value::Okay, left, set, Value::Int(1)];
            let (answers, _) = read(Request::new(&batch, VALKEY, false), replies);
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
            let request = Request::new(&batch, Compare::ByScript, false);
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
        let request = Request::new(&batch, Compare::ByScript, false);
        let (answers, again) = read(request, vec![error("NOSCRIPT"), Value::Okay]);
        assert_eq!(answers, [None, GRANTED, None]);
        let again = again.expect("the script in full");
        assert!(again.replaced.is_empty());
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
        for compare in [REDIS, VALKEY] {
            let request = Request::new(&batch, compare, false);
            let replies = vec![Value::Int(700), error("ERR"), error("NOPERM")];
            let (_, again) = read(request, replies);
            let again = again.expect("scripts");
            assert_eq!(again.replaced, [0, 1]);
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
            (error("OOM"), "OOM because"),
            (Value::BulkString(b"1".to_vec()), "unexpected answer: "),
            (Value::Int(7), "unexpected answer: int(7)"),
            (
                Value::BulkString(b"x1".to_vec()),
                "unexpected answer: a vote that is no digit",
            ),
        ] {
            let (answers, again) =
                read(Request::new(&batch, Compare::ByScript, false), vec![reply]);
            assert!(again.is_none());
            let Some(Err(error)) = &answers[0] else {
                panic!("{answers:?}");
            };
            assert!(error.to_string().starts_with(expected), "{error}");
            assert!(answers[1].is_some());
        }
        let native = Request::new(&batch, VALKEY, false);
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

    #[test]
    fn what_one_key_may_have_spoilt_is_asked_again_key_by_key() {
        let batch = [extend(1), release(2), extend(3), release(4)];
        let request = Request::new(&batch, Compare::ByScript, false);
        let (answers, again) = read(request, vec![error("NOPERM"), error("CROSSSLOT")]);
        assert!(answers.iter().all(Option::is_none));
        let again = again.expect("each key on its own");
        let [extend, release] = [script::EXTEND.source(), script::RELEASE.source()];
        let expected = [
            format!("EVAL {extend} 1 k1 # 1000"),
            format!("EVAL {extend} 1 k3 # 1000"),
            format!("EVAL {release} 1 k2 #"),
            format!("EVAL {release} 1 k4 #"),
        ];
        assert_eq!(shown(&again), expected);
        let text = |text: &str| Value::BulkString(text.into());
        let replies = vec![text("700"), error("NOPERM"), error("NOPERM"), text("1")];
        let mut answers = answers;
        assert!(again.read(replies, &mut answers).is_none(), "it is said");
        assert_eq!([&answers[0], &answers[3]], [&EXTENDED, &GRANTED]);
        assert!(matches!(&answers[1], Some(Err(_))) && matches!(&answers[2], Some(Err(_))));
    }

    #[test]
    fn an_extension_needs_no_memory() {
        let (_, again) = read(
            Request::new(&[extend(1)], VALKEY, false),
            vec![Value::Int(700), error("OOM")],
        );
        let again = again.expect("by script");
        assert!(again.replaced.is_empty(), "the command as such is known");
    }

    #[test]
    fn no_script_holds_up_the_server_for_long() {
        let long = |lease| {
            let key = Key::new(vec![b'k'; Key::MAX_LEN]).unwrap();
            Command::new(key, release(lease).operation())
        };
        let batch: Vec<_> = (0..5).map(long).collect();
        let request = Request::new(&batch, Compare::ByScript, false);
        assert_eq!(request.pipeline.len(), 3, "two keys of 64 KiB each");
        assert_eq!(request.positions, [0, 1, 2, 3, 4]);
    }
}
