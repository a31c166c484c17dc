use super::error::ClusterError;
use crate::node::redis::{
    address::Endpoint,
    connect::ConnectionSettings,
    url::{NodeUrl, UrlError},
};

/// Nodes of a cluster from which the others are learned.
pub(super) struct Seeds {
    pub(super) endpoints: Vec<Endpoint>,
    /// How to connect to any node.
    pub(super) settings: ConnectionSettings,
}

impl Seeds {
    /// Reads the URLs. Their settings apply to all nodes, so they must agree.
    pub(super) fn parse(urls: &[String]) -> Result<Self, ClusterError> {
        let mut seeds: Option<Self> = None;
        for (index, url) in urls.iter().enumerate() {
            let defect = |error| ClusterError::Seed {
                position: index + 1,
                error,
            };
            let NodeUrl { endpoint, settings } = parse(url).map_err(defect)?;
            match &mut seeds {
                None => {
                    seeds = Some(Self {
                        endpoints: vec![endpoint],
                        settings,
                    });
                }
                Some(seeds) if agree(&seeds.settings, &settings) => seeds.endpoints.push(endpoint),
                Some(_) => {
                    return Err(defect(UrlError::new(
                        "user, password and TLS apply to all nodes, so they must be those of the first seed",
                    )));
                }
            }
        }
        seeds.ok_or(ClusterError::NoSeeds)
    }
}

fn parse(url: &str) -> Result<NodeUrl, UrlError> {
    let parsed = NodeUrl::parse(url)?;
    if parsed.endpoint.host().is_none() {
        return Err(UrlError::new("a cluster has no Unix sockets"));
    }
    if parsed.settings.redis().db() != 0 {
        return Err(UrlError::new("a cluster has no other database than 0"));
    }
    Ok(parsed)
}

fn agree(one: &ConnectionSettings, other: &ConnectionSettings) -> bool {
    let [redis, other_redis] = [one, other].map(ConnectionSettings::redis);
    redis.username() == other_redis.username()
        && redis.password() == other_redis.password()
        && one.uses_tls() == other.uses_tls()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_the_seeds_apply_to_every_node() {
        let urls = [
            "redis://ann:secret@a:1?protocol=resp2",
            "redis://ann:secret@b",
        ];
        let seeds = Seeds::parse(&urls.map(str::to_owned)).unwrap();
        let shown: Vec<_> = seeds.endpoints.iter().map(Endpoint::to_string).collect();
        assert_eq!(shown, ["a:1", "b:6379"]);
        assert!(seeds.settings.excludes_resp3);
        let redis = seeds.settings.redis();
        let user = (redis.username(), redis.password());
        assert_eq!(user, (Some("ann"), Some("secret")));
    }
}
