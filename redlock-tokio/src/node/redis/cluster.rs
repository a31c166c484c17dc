//! A cluster whose slots vote, each as a node of its own.

pub(super) mod identity;
mod layout;
mod voters;

use std::{collections::BTreeMap, sync::Arc};

use self::voters::Voters;
use super::{
    RedisNode, UrlNodes,
    connect::ConnectionSettings,
    key_slot::KeySlot,
    options::NodeOptions,
    survey::Survey,
    url::{ServersUrl, UrlError, decoded, login},
};
use crate::node::{Authority, AuthorityKind, NamedBy, Node};

const PORT: u16 = 6379;

/// As many nodes as a lock can have, and an odd number.
const MAX_VOTERS: usize = 63;

/// The longest tag, in bytes.
const MAX_TAG: usize = 64;

/// Returns the voters of the cluster at a URL, or `None` if the URL is not one of a cluster.
pub(super) fn at(url: &str, options: &NodeOptions) -> Option<Result<UrlNodes, UrlError>> {
    let url = ServersUrl::parse(url, "cluster")?;
    Some(url.and_then(|url| read(&url, options)))
}

fn read(url: &ServersUrl<'_>, options: &NodeOptions) -> Result<UrlNodes, UrlError> {
    let (mut voters, mut tags) = (None, None);
    let (mut may_share_server, mut excludes_resp3) = (false, false);
    for parameter in url.parameters() {
        match parameter {
            ("voters", count) => {
                let count = count.parse();
                voters = Some(count.map_err(|_| UrlError::new("`voters` is not a number"))?);
            }
            ("tags", list) => {
                let list = list.split(',').map(decoded);
                tags = Some(list.collect::<Result<Vec<_>, _>>()?);
            }
            ("allow_shared_servers", value @ ("true" | "false")) => {
                may_share_server = value == "true";
            }
            ("protocol", value @ ("resp2" | "resp3")) => excludes_resp3 = value == "resp2",
            _ => {
                return Err(UrlError::new(
                    "the URL of a cluster has the parameters voters=3, tags=a,b,c, allow_shared_servers=true \
                     and protocol=resp2, and no others",
                ));
            }
        }
    }
    let tags = match (voters, tags) {
        (voters, None) => usual_tags(voters.unwrap_or(3))?,
        (None, Some(tags)) => {
            check_count(tags.len())?;
            check_tags(&tags)?;
            tags
        }
        (Some(_), Some(_)) => {
            return Err(UrlError::new("`tags` names the voters: leave `voters` out"));
        }
    };
    if !matches!(url.path, None | Some("" | "0")) {
        return Err(UrlError::new("a cluster has no other database than 0"));
    }
    let seeds = url.endpoints("seed", PORT)?;
    let redis = login(&url.user, &url.password);
    let settings = ConnectionSettings::new(redis, url.uses_tls, excludes_resp3, options)?;
    let name = seeds[0].to_string();
    let survey = Survey::new(Voters::new(settings, &tags), seeds, options.map.clone());
    let authority: Arc<dyn Authority> = Arc::new(survey);
    let node = |(index, tag): (usize, &String)| {
        let slot = KeySlot::of(tag.as_bytes()).number();
        // With the tag, by which an operator finds the keys.
        let address = format!("slot {slot} {{{tag}}} of the cluster at {name}");
        let kind = AuthorityKind::Cluster {
            slot,
            may_share_server,
        };
        let named_by = NamedBy::new(Arc::clone(&authority), index, kind);
        Arc::new(RedisNode::named(address, named_by)) as Arc<dyn Node>
    };
    Ok(UrlNodes {
        nodes: tags.iter().enumerate().map(node).collect(),
        // The braces count too.
        tag_len: tags.iter().map(|tag| tag.len() + 2).max().unwrap_or(0),
    })
}

/// Returns the tags of this number of voters. Each has a slot in the middle of its part of all slots.
fn usual_tags(voters: usize) -> Result<Vec<String>, UrlError> {
    check_count(voters)?;
    let tag = |voter| KeySlot::of_voter(voter, voters).tag();
    Ok((0..voters).map(tag).collect())
}

fn check_count(voters: usize) -> Result<(), UrlError> {
    if voters.is_multiple_of(2) || voters > MAX_VOTERS {
        let text = format!("{voters} voters: choose an odd number, at most {MAX_VOTERS}");
        return Err(UrlError::of_options(text));
    }
    Ok(())
}

fn check_tags(tags: &[String]) -> Result<(), UrlError> {
    let mut positions = BTreeMap::new();
    for (index, tag) in tags.iter().enumerate() {
        let position = index + 1;
        let is_odd = |it: char| it.is_control() || matches!(it, '{' | '}');
        if tag.is_empty() || tag.len() > MAX_TAG || tag.contains(is_odd) {
            return Err(UrlError::of_options(format!(
                "tag {position}: a tag has 1 to {MAX_TAG} bytes, and neither braces nor control characters"
            )));
        }
        let slot = KeySlot::of(tag.as_bytes()).number();
        if let Some(first) = positions.insert(slot, position) {
            return Err(UrlError::of_options(format!(
                "tags {first} and {position} are both in slot {slot}: choose tags of different slots"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(parameters: &str) -> UrlNodes {
        let url = format!(" rediss+cluster://ann:hunter2@a:7000,[::1]/?{parameters} ");
        let url = url.replace(
            "rediss",
            if cfg!(feature = "tls-rustls") {
                "rediss"
            } else {
                "redis"
            },
        );
        at(&url, &NodeOptions::default())
            .expect("a cluster")
            .unwrap()
    }

    #[test]
    fn the_voters_are_the_documented_slots_unless_there_are_tags() {
        for (parameters, documented) in [
            ("", "21418 8209 16418"),
            ("voters=1", "8209"),
            ("voters=5", "736 11431 8209 9345 12226"),
            (
                "voters=7&protocol=resp2",
                "2589 7989 29029 8209 28798 15018 3238",
            ),
            ("tags=a,b,%63", "a b c"),
        ] {
            let nodes = voters(parameters).nodes;
            let tag = |node: &Arc<dyn Node>| {
                let name = node.address().split_once('{').unwrap().1;
                name.split_once('}').unwrap().0.to_owned()
            };
            let tags: Vec<_> = nodes.iter().map(tag).collect();
            assert_eq!(tags.join(" "), documented);
        }
    }

    #[test]
    fn each_voter_has_a_name_without_secrets() {
        let voters = voters("");
        let name = voters.nodes[1].address();
        assert_eq!(name, "slot 8192 {8209} of the cluster at a:7000");
        assert_eq!(voters.tag_len, "{21418}".len());
        assert!(at("redis://a", &NodeOptions::default()).is_none());
    }

    #[test]
    fn voters_share_servers_only_if_the_url_says_so() {
        for may_share_server in [false, true] {
            let parameters = format!("allow_shared_servers={may_share_server}");
            let kind = voters(&parameters).nodes[1].named_by().unwrap().kind;
            let slot = 8192;
            let expected = AuthorityKind::Cluster {
                slot,
                may_share_server,
            };
            assert_eq!(kind, expected);
        }
    }
}
