use std::mem;

use redlock_core::{Eligibility, NodeId, Operation, RoundId, Timestamp};

use crate::{
    Holder, Objection,
    node::{Answer, Vote},
};

/// The last round that matters to the holder, and the nodes that did not agree to it.
#[derive(Debug, Default)]
pub(super) struct WatchedRound {
    round: Option<(RoundId, Aim)>,
    /// `None` if there are none, as for most leases.
    objections: Option<Box<Objections>>,
}

#[derive(Debug, Default)]
struct Objections {
    list: Vec<(NodeId, Objection)>,
    /// Whether they are to the attempt before.
    are_old: bool,
    /// The client that had the key according to the last probe, and until when. [`Timestamp::MAX`] for a key without an
    /// end.
    taken_by: Option<(Holder, Timestamp)>,
    /// How many processes stood before this one in the line of the key, if it stands in one.
    ahead: Option<u32>,
}

/// What a round is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    Acquire,
    /// To keep a lock, or to adopt one.
    Keep,
    Release,
}

impl WatchedRound {
    /// Starts to watch a round.
    ///
    /// The objections to the attempt before stay until the first node objects to the next one. An attempt that is cut
    /// short before that fails for the same reasons.
    pub(super) fn watch(&mut self, id: RoundId, operation: Operation) {
        if matches!(
            operation,
            Operation::Extend { .. } | Operation::Release { .. }
        ) {
            self.objections = None;
        } else if let Some(objections) = &mut self.objections {
            objections.are_old = true;
        }
        let aim = match operation {
            Operation::Acquire { .. } => Aim::Acquire,
            Operation::Release { .. } => Aim::Release,
            _ => Aim::Keep,
        };
        self.round = Some((id, aim));
    }

    /// Notes why a node does not agree, if this is its answer to the watched round.
    pub(super) fn note_answer(
        &mut self,
        now: Timestamp,
        round: RoundId,
        node: NodeId,
        answer: Answer,
        eligibility: Eligibility,
    ) {
        if let Ok(Vote::Taken {
            remaining,
            by: Some(by),
        }) = answer
        {
            let objections = self.objections.get_or_insert_default();
            objections.taken_by = Some((by, now.saturating_add(remaining)));
            return;
        }
        let Some((_, aim)) = self.round.filter(|(watched, _)| *watched == round) else {
            return;
        };
        let objection = match answer {
            // A release needs no vote.
            Ok(Vote::Granted) if aim == Aim::Release => return,
            Ok(Vote::Granted | Vote::Extended { .. } | Vote::Outbid { .. }) => {
                match Objection::to_vote(now, eligibility) {
                    Some(objection) => objection,
                    None => return,
                }
            }
            Ok(Vote::Denied) if aim == Aim::Acquire => Objection::Taken,
            Ok(Vote::Denied) => Objection::Lost,
            // A probe is not watched.
            Ok(_) => return,
            Err(error) => Objection::Failed(error),
        };
        let objections = self.objections.get_or_insert_default();
        if mem::take(&mut objections.are_old) {
            objections.list.clear();
        }
        let objections = &mut objections.list;
        // A late node has two answers. The first one only says that it is late.
        objections.retain(|(earlier, _)| *earlier != node);
        objections.push((node, objection));
    }

    /// Notes how many processes stand before this one in the line of the key.
    pub(super) fn note_place(&mut self, ahead: u32) {
        self.objections.get_or_insert_default().ahead = Some(ahead);
    }

    pub(super) fn ahead(&self) -> Option<u32> {
        self.objections.as_ref()?.ahead
    }

    /// Returns the client that had the key according to the last probe, and until when.
    pub(super) fn taken_by(&self) -> Option<&(Holder, Timestamp)> {
        self.objections.as_ref()?.taken_by.as_ref()
    }

    /// Returns the nodes that objected to the watched round, or to the attempt before it, and why.
    pub(super) fn objections(&self) -> &[(NodeId, Objection)] {
        self.objections
            .as_ref()
            .map_or(&[], |objections| &objections.list)
    }
}
