//! Permits: several holders at once, in two processes.

use shuttle::thread;

use super::{
    explore::{explore, sometimes},
    world::{Handed, World, patient},
};

/// One client holds both permits. One of its requests gives up while another waits, and so does one of another client.
#[test]
fn permits_that_come_free_while_a_request_gives_up() {
    let reached = &["handed over", "granted", "cancelled with a permit"];
    explore(
        "permits_that_come_free_while_a_request_gives_up",
        reached,
        || {
            let holder = World::new();
            let other = World::beside(&holder);
            let acquire = |world: &World| {
                let permits = world.redlock.semaphore("k", 2);
                permits.acquire().options(patient())
            };
            let guards = [0; 2].map(|_| holder.hold(acquire(&holder)));
            for guard in &guards {
                holder.referee.enter(guard);
            }
            let mut first = holder.wait(acquire(&holder));
            let visits = [&holder, &other].map(|world| world.visit(acquire(world)));
            let cancel = thread::spawn(move || {
                let polled = futures::FutureExt::now_or_never(&mut first);
                sometimes("cancelled with a permit", polled.is_some());
            });
            let releases = guards.map(|guard| {
                let referee = holder.referee.clone();
                thread::spawn(move || {
                    referee.exit(&guard);
                    drop(guard);
                })
            });
            let time = other.run_time();
            for visit in visits {
                let handed = visit.join().unwrap().expect("permits are free in the end");
                sometimes("handed over", handed == Handed::Over);
                sometimes("granted", handed == Handed::ByNodes);
            }
            cancel.join().unwrap();
            for release in releases {
                release.join().unwrap();
            }
            time.stop();
            holder.drain();
            other.end();
            holder.end();
        },
    );
}
