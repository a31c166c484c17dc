use redlock_core::Owner;

use super::*;

fn id(letter: u8) -> MemberId {
    MemberId::new([letter; MemberId::LEN])
}

fn at(text: &str) -> Endpoint {
    Endpoint::parse(text, None).unwrap()
}

/// What a member says if `owner` is the master of the first node, nobody that of the second one, and it knows
/// `members`.
fn view_of(members: &str, myself: u8, owner: u8) -> View {
    let place = |host: char| Some(Place::Announced(at(&format!("{host}:1"))));
    let owner = Owner::new(char::from(owner).to_string());
    View {
        myself: id(myself),
        members: members
            .chars()
            .map(|it| (id(it as u8), place(it)))
            .collect(),
        tenures: vec![Some(Tenure { owner, epoch: 1 }), None],
        age: Duration::ZERO,
    }
}

fn view(myself: u8, owner: u8) -> View {
    view_of("abc", myself, owner)
}

/// The answer of the only member of another authority.
fn foreign() -> View {
    view_of("d", b'd', b'd')
}

fn roster_at(listed: &[&str], map: Option<AddressMap>) -> Roster {
    Roster::new(listed.iter().map(|it| at(it)).collect(), map)
}

/// A roster with one configured address, which leads to member `a` by another name.
fn roster() -> Roster {
    roster_at(&["seed:1"], None)
}

fn missing(roster: &Roster) -> String {
    let missing = roster.missing();
    missing.iter().map(|it| format!("{it} ")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_member_that_others_know_is_missing_until_it_answers_at_any_address() {
    let roster = roster_at(&["seed:1", "alias:1"], None);
    assert_eq!(missing(&roster), "");
    let standing = roster.note_answer(&at("seed:1"), &view(b'a', b'a'));
    assert_eq!(standing, Standing::Own);
    assert_eq!(missing(&roster), "b:1 c:1 ");
    assert_eq!(roster.place_of(id(b'b')), Ok(Some(at("b:1"))));
    roster.note_answer(&at("alias:1"), &view(b'b', b'a'));
    assert_eq!(missing(&roster), "c:1 ");
    tokio::time::advance(FRESH_FOR + Duration::from_millis(1)).await;
    assert_eq!(missing(&roster), "a:1 b:1 c:1 ");
    // The others have come to know that the third one is gone.
    for (from, myself) in [("seed:1", b'a'), ("alias:1", b'b')] {
        roster.note_answer(&at(from), &view_of("ab", myself, b'a'));
    }
    assert_eq!(missing(&roster), "");
    assert!(!roster.has(&at("c:1")));
}

#[tokio::test(start_paused = true)]
async fn a_member_of_another_authority_at_an_old_address_does_not_count_and_is_news_once() {
    let roster = roster();
    roster.note_answer(&at("seed:1"), &view(b'a', b'a'));
    let error = NodeError::Unreachable("a node that no other knows".into());
    for is_news in [true, false] {
        let standing = roster.note_answer(&at("b:1"), &foreign());
        assert_eq!(standing, Standing::Unknown);
        let noted = roster.note_outcome(&at("b:1"), Some(error.clone()));
        assert_eq!(noted, is_news);
    }
    let standing = roster.note_answer(&at("b:1"), &view(b'b', b'a'));
    assert_eq!(standing, Standing::Own);
    assert!(roster.note_outcome(&at("b:1"), None));
    assert!(roster.poll(0).failures.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_poll_says_what_is_missing() {
    let roster = roster();
    let counts = |index| {
        let poll = roster.poll(index);
        (poll.answering, poll.all, poll.agreeing)
    };
    assert_eq!(counts(0), (0, 0, 0));
    assert!(!roster.poll(0).is_refused, "nothing was asked yet");
    let refused = Some(NodeError::Misconfigured("wrong password".into()));
    roster.note_outcome(&at("seed:1"), refused.clone());
    assert!(roster.poll(0).is_refused);
    assert!(!roster.note_outcome(&at("seed:1"), refused), "no news");

    roster.note_answer(&at("seed:1"), &view(b'a', b'a'));
    assert_eq!(counts(0), (1, 3, 1));
    assert_eq!(roster.poll(0).silent, "b:1, c:1");
    assert!(roster.has_become_short());
    assert!(!roster.has_become_short(), "no news");
    roster.note_answer(&at("b:1"), &view(b'b', b'b'));
    assert!(!roster.has_become_short());
    assert_eq!(counts(0), (2, 3, 1), "they do not agree");
    assert_eq!(counts(1), (2, 3, 0), "nobody names an owner");
    roster.note_answer(&at("b:1"), &view(b'b', b'a'));
    assert_eq!(counts(0), (2, 3, 2));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_asked_no_more_is_forgotten() {
    let roster = roster();
    roster.note_answer(&at("seed:1"), &view(b'a', b'a'));
    roster.note_outcome(&at("old:1"), Some(NodeError::Unreachable("gone".into())));
    assert!(roster.poll(0).failures.contains_key(&at("old:1")));
    roster.forget(&at("old:1"));
    assert!(roster.poll(0).failures.is_empty());
}

/// Twenty members know each other. Each address is translated once for each answer, and not once for each pair of
/// answers and members.
#[tokio::test(start_paused = true)]
async fn each_answer_is_translated_once() {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    const MEMBERS: &str = "abcdefghijklmnopqrst";
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let map: AddressMap = Arc::new(move |_| {
        counter.fetch_add(1, Relaxed);
        None
    });
    let roster = roster_at(&["seed:1"], Some(map));
    for member in MEMBERS.chars() {
        let from = match member {
            'a' => at("seed:1"),
            _ => at(&format!("{member}:1")),
        };
        let standing = roster.note_answer(&from, &view_of(MEMBERS, member as u8, b'a'));
        assert_eq!(standing, Standing::Own);
    }
    assert_eq!(missing(&roster), "");
    assert_eq!(calls.load(Relaxed), MEMBERS.len() * MEMBERS.len());
}

#[tokio::test(start_paused = true)]
async fn a_map_that_fails_takes_no_known_address_and_one_that_knows_more_is_asked_again() {
    let known = Arc::new(Mutex::new(Some("b")));
    let now = Arc::clone(&known);
    let map: AddressMap = Arc::new(move |announced| match *now.lock() {
        Some("b") if announced.starts_with('b') => Some("near-b:2".into()),
        Some("all") => Some(format!("near-{announced}")),
        _ => panic!("it knows nothing of {announced}"),
    });
    let roster = roster_at(&["seed:1"], Some(map));
    let answer = view(b'a', b'a');
    roster.note_answer(&at("seed:1"), &answer);
    assert_eq!(missing(&roster), "near-b:2 ");
    let failure = || roster.poll(0).map_failure.map(|it| it.to_string());
    assert!(failure().unwrap().contains("panicked at"));
    assert!(roster.place_of(id(b'c')).unwrap_err().is_refusal());
    *known.lock() = None;
    roster.note_answer(&at("seed:1"), &answer);
    assert_eq!(missing(&roster), "near-b:2 ");
    *known.lock() = Some("all");
    roster.note_answer(&at("seed:1"), &answer);
    assert_eq!(missing(&roster), "near-b:1 near-c:1 ");
    assert_eq!(failure(), None);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_leads_to_another_authority_is_named_and_its_other_members_are_not_asked() {
    let roster = roster_at(&["seed:1", "seed:2"], None);
    roster.note_answer(&at("seed:1"), &view(b'a', b'a'));
    let foreign = foreign();
    let standing = roster.note_answer(&at("seed:2"), &foreign);
    assert_eq!(standing, Standing::Foreign);
    assert_eq!(roster.name_of(foreign.myself), "seed:2");
    assert!(!roster.has(&at("d:1")));
    // However long its own authority is away.
    tokio::time::advance(2 * KEPT_FOR).await;
    let standing = roster.note_answer(&at("seed:2"), &foreign);
    assert_eq!(standing, Standing::Foreign);
    assert!(roster.has(&at("b:1")));
}
