use super::*;

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const C: &str = "cccccccccccccccccccccccccccccccccccccccc";
const D: &str = "dddddddddddddddddddddddddddddddddddddddd";

/// What the node says if all slots but the last belong to the node at `owner`, and it knows `A`, `B` and `C`.
fn layout(myself: &str, owner: &str) -> Arc<Layout> {
    let line = |id: &str| {
        let host = &id[..1];
        let flags = if id == myself {
            "myself,master"
        } else {
            "master"
        };
        let slots = if id == owner { " 0-16382" } else { "" };
        format!("{id} {host}:6379@1 {flags} - 0 0 1 connected{slots}\n")
    };
    let text: String = [A, B, C].map(line).concat();
    Arc::new(Layout::parse(&text).unwrap())
}

/// The answer of the only node of another cluster.
fn foreign() -> Arc<Layout> {
    let text = format!("{D} d:6379@1 myself,master - 0 0 1 connected 0-16383\n");
    Arc::new(Layout::parse(&text).unwrap())
}

fn at(text: &str) -> Endpoint {
    Endpoint::parse(text, None).unwrap()
}

fn slot(number: u16) -> KeySlot {
    KeySlot::new(number).unwrap()
}

/// A directory with one seed, which leads to node `A` by another name.
fn directory() -> Directory {
    Directory::new(vec![at("seed:1")], false, None)
}

fn shown(directory: &Directory, number: u16) -> String {
    let objection = directory.objection(slot(number));
    objection.map_or_else(String::new, |it| it.to_string())
}

#[tokio::test(start_paused = true)]
async fn every_announced_address_is_asked_beside_the_seeds() {
    let directory = directory();
    assert_eq!(directory.endpoints(), [at("seed:1")].into());
    let standing = directory.note_answer(&at("seed:1"), &layout(A, A));
    assert_eq!(standing, Standing::Own);
    directory.changed.notified().await;
    let all = ["a:6379", "b:6379", "c:6379", "seed:1"].map(at);
    assert_eq!(directory.endpoints(), all.into());
    let member = layout(B, A).myself;
    assert_eq!(directory.endpoint_of(member), Some(Ok(at("b:6379"))));
}

#[tokio::test(start_paused = true)]
async fn a_seed_is_left_alone_while_its_node_answers_where_it_announces() {
    let directory = directory();
    let answer = layout(A, A);
    directory.note_answer(&at("seed:1"), &answer);
    assert!(!directory.is_redundant(&at("seed:1"), answer.myself));
    directory.note_answer(&at("a:6379"), &answer);
    directory.note_answer(&at("b:6379"), &layout(B, A));
    directory.note_answer(&at("a:6379"), &answer);
    assert!(directory.is_redundant(&at("seed:1"), answer.myself));
    assert!(!directory.is_redundant(&at("a:6379"), answer.myself));
    tokio::time::advance(FRESH_FOR + Duration::from_millis(1)).await;
    assert!(!directory.is_redundant(&at("seed:1"), answer.myself));
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_cluster_at_an_old_address_does_not_count_and_is_news_once() {
    let directory = directory();
    directory.note_answer(&at("seed:1"), &layout(A, A));
    let error = NodeError::Unreachable("a node that no other knows".into());
    for is_news in [true, false] {
        let standing = directory.note_answer(&at("b:6379"), &foreign());
        assert_eq!(standing, Standing::Unknown);
        let noted = directory.note_failure(&at("b:6379"), error.clone());
        assert_eq!(noted, is_news);
    }
    let standing = directory.note_answer(&at("b:6379"), &layout(B, A));
    assert_eq!(standing, Standing::Own);
    assert_eq!(directory.objection(slot(0)), None);
}

#[tokio::test(start_paused = true)]
async fn an_objection_says_what_is_missing() {
    let directory = directory();
    assert_eq!(directory.objection(slot(0)), None, "nothing was asked yet");
    let refused = NodeError::Misconfigured("wrong password".into());
    directory.note_failure(&at("seed:1"), refused.clone());
    assert!(directory.objection(slot(0)).unwrap().is_refusal());
    assert!(shown(&directory, 0).contains("seed:1: misconfigured: wrong password"));
    assert!(!directory.note_failure(&at("seed:1"), refused), "no news");

    directory.note_answer(&at("seed:1"), &layout(A, A));
    let text = shown(&directory, 0);
    assert!(
        text.contains("1 of 3 nodes of the cluster answer, including replicas, and 2 are needed"),
        "{text}"
    );
    assert!(text.contains("silent: b:6379, c:6379. Forget"), "{text}");
    assert!(directory.newly_short(slot(0)).is_some());
    assert_eq!(directory.newly_short(slot(0)), None, "no news");
    directory.note_answer(&at("b:6379"), &layout(B, B));
    for (number, words) in [
        (0, "do not agree on the owner of slot 0"),
        (16_383, "no node of the cluster owns slot 16383"),
    ] {
        let text = shown(&directory, number);
        assert!(text.contains(words), "{text}");
    }
    directory.note_answer(&at("b:6379"), &layout(B, A));
    assert_eq!(directory.objection(slot(0)), None);
}

#[tokio::test(start_paused = true)]
async fn voters_that_come_together_are_named_once() {
    let directory = directory();
    let slots = [slot(0), slot(1)];
    assert_eq!(directory.newly_shared(&slots), None, "no owner is known");
    directory.note_answer(&at("seed:1"), &layout(A, A));
    directory.note_answer(&at("b:6379"), &layout(B, A));
    let shared = directory.newly_shared(&slots).expect("both are on A");
    assert_eq!((shared.first, shared.second), (0, 1));
    assert_eq!(directory.name_of(shared.member), "a:6379");
    assert_eq!(directory.newly_shared(&slots), None, "no news");
    directory.note_answer(&at("b:6379"), &layout(B, B));
    directory.note_answer(&at("seed:1"), &layout(A, B));
    let shared = directory.newly_shared(&slots).expect("both are on B");
    assert_eq!(directory.name_of(shared.member), "b:6379");
    directory.note_answer(&at("c:6379"), &layout(C, B));
    assert_eq!(directory.newly_shared(&slots[..1]), None, "they are apart");
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_asked_no_more_is_forgotten() {
    let directory = directory();
    directory.note_answer(&at("seed:1"), &layout(A, A));
    directory.note_failure(&at("old:1"), NodeError::Unreachable("gone".into()));
    assert!(shown(&directory, 0).contains("old:1"));
    directory.forget(&at("old:1"));
    assert!(!shown(&directory, 0).contains("old:1"));
}

/// Twenty nodes know each other. Each address is translated once for each answer, and not once for each pair of
/// answers and nodes.
#[tokio::test(start_paused = true)]
async fn each_answer_is_translated_once() {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    const COUNT: usize = 20;
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let map: AddressMap = Arc::new(move |_| {
        counter.fetch_add(1, Relaxed);
        None
    });
    let directory = Directory::new(vec![at("seed:1")], false, Some(map));
    let answer = |myself: usize| {
        let line = |number: usize| {
            let flags = if number == myself {
                "myself,master"
            } else {
                "slave"
            };
            format!("{number:040x} h{number}:6379@1 {flags} - 0 0 1 connected\n")
        };
        let text: String = (0..COUNT).map(line).collect();
        Arc::new(Layout::parse(&text).unwrap())
    };
    for number in 0..COUNT {
        let from = match number {
            0 => at("seed:1"),
            _ => at(&format!("h{number}:6379")),
        };
        assert_eq!(directory.note_answer(&from, &answer(number)), Standing::Own);
    }
    assert_eq!(directory.endpoints().len(), COUNT + 1);
    assert_eq!(calls.load(Relaxed), COUNT * COUNT);
}

#[tokio::test(start_paused = true)]
async fn a_map_that_fails_takes_no_known_address_and_one_that_knows_more_is_asked_again() {
    let known = Arc::new(Mutex::new(Some("a")));
    let now = Arc::clone(&known);
    let map: AddressMap = Arc::new(move |announced| match *now.lock() {
        Some("a") if announced.starts_with('a') => Some("near-a:1".into()),
        Some("all") => Some(format!("near-{announced}")),
        _ => panic!("it knows nothing of {announced}"),
    });
    let directory = Directory::new(vec![at("seed:1")], false, Some(map));
    let answer = layout(A, A);
    directory.note_answer(&at("seed:1"), &answer);
    assert_eq!(directory.endpoints(), ["near-a:1", "seed:1"].map(at).into());
    assert!(shown(&directory, 0).contains("panicked at"));
    *known.lock() = None;
    directory.note_answer(&at("seed:1"), &answer);
    assert_eq!(directory.endpoints(), ["near-a:1", "seed:1"].map(at).into());
    *known.lock() = Some("all");
    directory.note_answer(&at("seed:1"), &answer);
    let all = ["near-a:6379", "near-b:6379", "near-c:6379", "seed:1"];
    assert_eq!(directory.endpoints(), all.map(at).into());
    assert!(!shown(&directory, 0).contains("panicked"));
}

#[tokio::test(start_paused = true)]
async fn a_seed_that_leads_to_another_cluster_is_named_and_its_other_nodes_are_not_asked() {
    let directory = Directory::new(vec![at("seed:1"), at("seed:2")], false, None);
    directory.note_answer(&at("seed:1"), &layout(A, A));
    let foreign = foreign();
    let standing = directory.note_answer(&at("seed:2"), &foreign);
    assert_eq!(standing, Standing::Foreign);
    assert_eq!(directory.name_of(foreign.myself), "seed:2");
    assert!(!directory.has(&at("d:6379")));
    // However long its own cluster is away.
    tokio::time::advance(2 * KEPT_FOR).await;
    let standing = directory.note_answer(&at("seed:2"), &foreign);
    assert_eq!(standing, Standing::Foreign);
    assert!(directory.has(&at("b:6379")));
}
