//! Answers that make no sense.

use std::time::Duration;

use redlock_tokio::{
    FencingToken, NodeError,
    node::{Answer, Command, Operation, Vote},
};

use super::{Network, Request, Response};
use crate::seen::Seen;

impl Network {
    /// Spoils an answer, if the weather says so.
    ///
    /// A yes may become anything. Another answer becomes anything that is no yes: a server that says yes and does
    /// nothing is beyond the assumptions.
    pub(crate) fn spoil(&mut self, request: &Request, response: Response) -> Response {
        let (Request::Execute(commands), Response::Executed(answers)) = (request, &response) else {
            return response;
        };
        let before = answers;
        let mut answers = answers.clone();
        for (command, answer) in commands.iter().zip(&mut answers) {
            if self.befalls(Seen::Rubbish) {
                *answer = self.senseless(command, answer);
            }
        }
        if self.befalls(Seen::AnswersMissing) {
            let left = self.rng.usize(..answers.len());
            answers.truncate(left);
        }
        if self.befalls(Seen::AnswersDoubled) {
            answers.extend_from_within(..);
        }
        if answers.len() > 1 && self.befalls(Seen::AnswersOutOfStep) {
            answers.rotate_right(1);
        }
        if &answers != before {
            self.note_spoiled(request);
        }
        Response::Executed(answers)
    }

    fn senseless(&mut self, command: &Command, answer: &Answer) -> Answer {
        let absurd = self.rng.pick(&[
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_secs(1 << 40),
            Duration::MAX,
        ]);
        let counter = if command.fence().is_some() {
            // Others propose a larger one, and must be able to.
            FencingToken::new(self.rng.u64(1..1_000_000))
        } else {
            FencingToken::new(self.rng.u64(1..FencingToken::MAX.get()))
        };
        let any_yes = [
            Ok(Vote::Granted),
            Ok(Vote::Extended { remaining: absurd }),
            Ok(Vote::Outbid { counter }),
        ];
        let mut senseless = vec![
            Ok(Vote::Denied),
            Ok(Vote::Free),
            Ok(Vote::Taken {
                remaining: absurd,
                by: None,
            }),
            Err(NodeError::Unexpected("rubbish".into())),
            Err(NodeError::Unexpected("a number without an end".into())),
        ];
        let is_probe = matches!(command.operation(), Operation::Probe { .. });
        match answer {
            // The key is set, but the counter is not raised.
            Ok(Vote::Outbid { .. }) => senseless.push(Ok(Vote::Outbid { counter })),
            Ok(Vote::Granted | Vote::Extended { .. }) => senseless.extend(any_yes),
            _ if is_probe => senseless.extend(any_yes),
            _ => {}
        }
        let index = self.rng.usize(..senseless.len());
        senseless.swap_remove(index)
    }
}
