//! Reading the URL of a cluster.

use super::ClusterNodes;
use crate::node::redis::url::{ServersUrl, UrlError, decoded};

impl ClusterNodes {
    /// Returns the cluster at a URL, or `None` if the URL is not one of a cluster. The seeds are read later.
    pub(crate) fn from_url(url: &str) -> Option<Result<Self, UrlError>> {
        let url = url.trim();
        if let Some(rest) = url.strip_prefix("redis+cluster://") {
            return Some(Self::read("redis", rest));
        }
        let rest = url.strip_prefix("rediss+cluster://")?;
        Some(Self::read("rediss", rest))
    }

    fn read(scheme: &str, rest: &str) -> Result<Self, UrlError> {
        let url = ServersUrl::parse(rest)?;
        let (mut voters, mut tags) = (None, None);
        let (mut allows_shared_servers, mut protocol) = (false, "");
        for parameter in url.parameters() {
            match parameter {
                ("voters", count) => {
                    let count = count.parse();
                    let count = count.map_err(|_| UrlError::new("`voters` is not a number"))?;
                    voters = Some(count);
                }
                ("tags", list) => {
                    let list = list.split(',').map(decoded);
                    tags = Some(list.collect::<Result<Vec<_>, _>>()?);
                }
                ("allow_shared_servers", "true") => allows_shared_servers = true,
                ("allow_shared_servers", "false") | ("protocol", "resp3") => {}
                ("protocol", "resp2") => protocol = "?protocol=resp2",
                _ => {
                    return Err(UrlError::new(
                        "the URL of a cluster has the parameters voters=3, tags=a,b,c, allow_shared_servers=true \
                         and protocol=resp2, and no others",
                    ));
                }
            }
        }
        let at = if url.credentials.is_empty() { "" } else { "@" };
        let (credentials, path) = (url.credentials, url.path.unwrap_or_default());
        let seeds = url.servers.split(',');
        let seeds = seeds.map(|it| format!("{scheme}://{credentials}{at}{it}/{path}{protocol}"));
        let mut cluster = Self::new(seeds);
        cluster = match (voters, tags) {
            (None, None) => cluster,
            (Some(count), None) => cluster.voters(count),
            (None, Some(tags)) => cluster.tags(tags),
            (Some(_), Some(_)) => {
                return Err(UrlError::new("`tags` names the voters: leave `voters` out"));
            }
        };
        if allows_shared_servers {
            cluster = cluster.allow_shared_servers();
        }
        Ok(cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_and_the_methods_are_the_same() {
        let seeds = |urls: &[&str]| ClusterNodes::new(urls);
        for (url, expected) in [
            (
                "redis+cluster://a,b:7000",
                seeds(&["redis://a/", "redis://b:7000/"]),
            ),
            (
                " rediss+cluster://ann:s%2Fcret@[::1]:7/?voters=1&protocol=resp2 ",
                seeds(&["rediss://ann:s%2Fcret@[::1]:7/?protocol=resp2"]).voters(1),
            ),
            (
                "redis+cluster://a/0?tags=x,%7By,z&allow_shared_servers=true",
                seeds(&["redis://a/0"])
                    .tags(["x", "{y", "z"])
                    .allow_shared_servers(),
            ),
        ] {
            let read = ClusterNodes::from_url(url).unwrap().unwrap();
            let parts = |it: ClusterNodes| (it.seeds.clone(), format!("{it:?}"));
            assert_eq!(parts(read), parts(expected), "{url}");
        }
        assert!(ClusterNodes::from_url("redis://a").is_none());
    }
}
