use proptest::prelude::*;

use super::*;

/// The answer of Redis 7: three masters, of which one is cut off, and three replicas.
const REDIS_7: &str = "\
07c37dfeb235213a872192d90877d0cd55635b91 127.0.0.1:30004@31004,hostname4 slave e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 0 1426238317239 4 connected
67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1 127.0.0.1:30002@31002,hostname2 master - 0 1426238316232 2 connected 5461-10922
292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f 127.0.0.1:30003@31003,hostname3 master,fail? - 0 1426238318243 3 disconnected 10923-16383
6ec23923021cf3ffec47632106199cb7f496ce01 127.0.0.1:30005@31005,hostname5 slave,fail 67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1 0 1426238316232 5 connected
824fe116063bc5fcf9f4ffd895bc17aee7731ac3 :0@0 slave,noaddr 292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f 0 1426238317741 6 connected
e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 127.0.0.1:30001@31001,hostname1 myself,master - 0 0 1 connected 0-5000 5002 5001 5003-5460 [5002->-67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1] [77-<-292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f]
1111111111111111111111111111111111111111 127.0.0.1:30009@31009 handshake - 0 0 0 connected
";

fn id(digits: &str) -> MemberId {
    member_id(digits).unwrap()
}

const FIRST: &str = "e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca";
const THIRD: &str = "292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f";

fn slot(number: u16) -> KeySlot {
    KeySlot::new(number).unwrap()
}

fn owner(layout: &Layout, number: u16) -> Option<(String, u64)> {
    let tenure = layout.tenure(slot(number))?;
    Some((tenure.owner.as_str().to_owned(), tenure.epoch))
}

#[test]
fn every_node_but_those_in_a_handshake_is_a_member() {
    let layout = Layout::parse(REDIS_7).unwrap();
    assert_eq!(layout.myself, id(FIRST));
    assert_eq!(layout.nodes.len(), 6);
    assert!(!layout.nodes.contains_key(&id(&"1".repeat(40))));
}

#[test]
fn the_owner_of_a_slot_is_named_with_its_config_epoch() {
    let layout = Layout::parse(REDIS_7).unwrap();
    for number in [0, 5000, 5001, 5002, 5460] {
        assert_eq!(owner(&layout, number), Some((FIRST.into(), 1)), "{number}");
    }
    // A node that is suspected still owns its slots.
    assert_eq!(owner(&layout, 16_383), Some((THIRD.into(), 3)));
    let hole = REDIS_7.replace("10923-16383", "10923-16000");
    assert_eq!(owner(&Layout::parse(&hole).unwrap(), 16_383), None);
}

#[test]
fn addresses_are_those_that_the_nodes_announce() {
    let layout = Layout::parse(REDIS_7).unwrap();
    let reached = Endpoint::tcp("seed", 1).unwrap();
    let announced_by = |member: &str, uses_tls| {
        let view = layout.view(&[], uses_tls, &reached);
        view.members[&id(member)].clone()
    };
    let at = |text: &str| Endpoint::parse(text, None).unwrap();
    for (uses_tls, expected) in [(false, "127.0.0.1:30001"), (true, "hostname1:30001")] {
        let expected = Some(Place::Announced(at(expected)));
        assert_eq!(announced_by(FIRST, uses_tls), expected);
    }
    let unknown = "824fe116063bc5fcf9f4ffd895bc17aee7731ac3";
    assert_eq!(announced_by(unknown, false), None);

    let other = |text: &str| announced(text).unwrap();
    for (text, expected) in [
        ("10.0.0.1:6379", "10.0.0.1:6379"),
        ("2001:db8::1:6379@16379,", "[2001:db8::1]:6379"),
        ("10.0.0.1:6379@16379,,shard-id=69bc0", "10.0.0.1:6379"),
        ("?:6379@16379,a.internal", "a.internal:6379"),
    ] {
        let expected = Some(Place::Announced(at(expected)));
        assert_eq!(other(text).place(false, Some(&reached)), expected, "{text}");
    }
    // A node that has met no other does not know its own address.
    let hostless = other(":6379@16379");
    let expected = Some(Place::Reached(at("seed:6379")));
    assert_eq!(hostless.place(false, Some(&reached)), expected);
    assert_eq!(hostless.place(false, None), None);
}

#[test]
fn answers_that_make_no_sense_are_refused() {
    let first = REDIS_7.lines().next().unwrap();
    let again = format!("{REDIS_7}{first}");
    for (from, to, named) in [
        ("myself,", "", "no node that claims"),
        ("master,fail?", "myself,master", "two nodes that claim"),
        ("10923-16383", "10922-16383", "two nodes that own one slot"),
        ("10923-16383", "10923-16384", "slots"),
        ("10923-16383", "16383-10923", "slots"),
        ("10923-16383", "-", "slots"),
        ("1426238318243 3 dis", "1426238318243 x dis", "config epoch"),
        (
            "1426238318243 3 dis",
            "1426238318243 -3 dis",
            "config epoch",
        ),
        ("127.0.0.1:30001@", "127.0.0.1:70001@", "invalid address"),
        ("127.0.0.1:30001@", "localhost@", "invalid address"),
        ("e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 1", "xyz 1", "id"),
        ("4 connected\n", "\n", "config epoch"),
        (
            "127.0.0.1:30009@31009 handshake - 0 0 0 connected",
            "127.0.0.1:30009@31009 handshake - 0 0 0",
            "link state",
        ),
    ] {
        let text = REDIS_7.replacen(from, to, 1);
        assert_ne!(text, REDIS_7, "{from}");
        let error = Layout::parse(&text).unwrap_err().to_string();
        assert!(error.contains(named), "{from}: {error}");
    }
    assert!(Layout::parse("").is_err());
    let error = Layout::parse(&again).unwrap_err().to_string();
    assert!(error.contains("one id"), "{error}");
}

#[test]
fn an_answer_that_names_very_many_nodes_is_not_believed() {
    let text = |count: usize| {
        let line = |number| {
            let flags = if number == 0 {
                "myself,master"
            } else {
                "slave"
            };
            format!("{number:040x} 10.0.0.1:1@1 {flags} - 0 0 1 connected\n")
        };
        (0..count).map(line).collect::<String>()
    };
    let largest = Layout::parse(&text(MOST_NODES)).unwrap();
    assert_eq!(largest.nodes.len(), MOST_NODES);
    let error = Layout::parse(&text(MOST_NODES + 1))
        .unwrap_err()
        .to_string();
    assert!(error.contains("more than 1000 nodes"), "{error}");
}

proptest! {
    /// An answer with some bytes changed is refused or read, and never names two owners of one slot.
    #[test]
    fn rubbish_is_refused_or_read(
        changes in prop::collection::vec((0..1100_usize, any::<char>()), 0..8),
        cut in 0..1200_usize,
    ) {
        let mut text: Vec<char> = REDIS_7.chars().collect();
        for (at, to) in changes {
            let len = text.len();
            text[at % len] = to;
        }
        text.truncate(cut);
        let text: String = text.into_iter().collect();
        if let Ok(layout) = Layout::parse(&text) {
            prop_assert!(layout.nodes.contains_key(&layout.myself));
        }
    }
}
