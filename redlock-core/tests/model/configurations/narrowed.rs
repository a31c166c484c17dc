//! Worlds that would be too large otherwise: where faults may strike, and what clients may do.

use redlock_core::Operation;

use crate::{steps::Step, world::World};

/// What the message that was sent last from a client to a master asks for.
fn newest(world: &World, client: usize, master: usize) -> Option<Operation> {
    let message = world.clients[client].links[master].last()?;
    Some(message.operation)
}

/// SETs may be late, A's extensions may be lost on master 1, and only master 2 restarts.
pub(super) fn late_set_after_restart(world: &World, step: &Step) -> bool {
    let is_set = |operation| matches!(operation, Some(Operation::Acquire { .. }));
    let is_extend = |operation| matches!(operation, Some(Operation::Extend { .. }));
    match *step {
        Step::Begin(client) => (client == 0) == (world.now == 0),
        Step::Release(_) => false,
        Step::Delay {
            client,
            master,
            given_up,
        } => !given_up && is_set(newest(world, client, master)),
        Step::Lose {
            client,
            master,
            carried_out,
        } => !carried_out && (client, master) == (0, 1) && is_extend(newest(world, client, master)),
        Step::Restart(master) => master == 2,
        Step::Tick { stalled } => stalled != Some(1),
        _ => true,
    }
}

/// SETs may be lost on their way, and only master 2 is replaced.
pub(super) fn promotion(world: &World, step: &Step) -> bool {
    match *step {
        Step::Promote(master) => master == 2,
        Step::Lose {
            client,
            master,
            carried_out,
        } => {
            let newest = newest(world, client, master);
            !carried_out && matches!(newest, Some(Operation::Acquire { .. }))
        }
        _ => true,
    }
}

/// SETs may be lost, and releases may be late.
pub(super) fn late_release(world: &World, step: &Step) -> bool {
    match *step {
        Step::Delay {
            client,
            master,
            given_up,
        } => {
            !given_up
                && matches!(
                    newest(world, client, master),
                    Some(Operation::Release { .. })
                )
        }
        Step::Lose { client, master, .. } => {
            matches!(
                newest(world, client, master),
                Some(Operation::Acquire { .. })
            )
        }
        _ => true,
    }
}
