//! The master of a group that sentinels watch.

mod group;
mod question;

use std::sync::Arc;

use self::group::Group;
use super::{
    RedisNode,
    address::Endpoint,
    connect::ConnectionSettings,
    options::NodeOptions,
    survey::Survey,
    url::{ServersUrl, UrlError, database_number, decoded, login},
};
use crate::node::{AuthorityKind, NamedBy};

const PORT: u16 = 26379;

/// Returns the master of the group at a URL, or `None` if the URL is not one of a group.
pub(super) fn at(url: &str, options: &NodeOptions) -> Option<Result<RedisNode, UrlError>> {
    let url = ServersUrl::parse(url, "sentinel")?;
    Some(url.and_then(|url| {
        let (group, sentinels) = read(&url, options)?;
        let address = address(&group, &sentinels);
        let count = sentinels.len();
        let survey = Survey::new(group, sentinels, options.map.clone());
        let named_by = NamedBy::new(Arc::new(survey), 0, AuthorityKind::Sentinels);
        let named_by = named_by.with_fewest_members(count);
        Ok(RedisNode::named(address, named_by))
    }))
}

/// Returns what logs call the node.
fn address(group: &Group, sentinels: &[Endpoint]) -> String {
    let sentinels: Vec<_> = sentinels.iter().map(Endpoint::to_string).collect();
    let database = match group.server_settings.redis().db() {
        0 => String::new(),
        database => format!("/{database}"),
    };
    format!("{}{database}@{}", group.name, sentinels.join(","))
}

/// Reads which group it is, and where its sentinels are.
fn read(url: &ServersUrl<'_>, options: &NodeOptions) -> Result<(Group, Vec<Endpoint>), UrlError> {
    let nameless = || {
        UrlError::new(
            "the URL of a sentinel group lacks the group's name (a list that was split at its commas?)",
        )
    };
    let path = url.path.ok_or_else(nameless)?;
    let (name, database) = path.split_once('/').unwrap_or((path, ""));
    let mut servers = login(&url.user, &url.password);
    if !database.is_empty() {
        // What is no number is none that a server can have.
        servers = servers.set_db(database_number(database.parse().unwrap_or(-1))?);
    }
    let (mut user, mut password) = (String::new(), String::new());
    let (mut sentinel_tls, mut excludes_resp3) = (false, false);
    for (parameter, value) in url.parameters() {
        let value = decoded(value)?;
        match (parameter, &*value) {
            ("sentinel_user", _) => user = value,
            ("sentinel_password", _) => password = value,
            ("sentinel_tls", "true" | "false") => sentinel_tls = value == "true",
            ("protocol", "resp2" | "resp3") => excludes_resp3 = value == "resp2",
            _ => {
                return Err(UrlError::new(
                    "the URL of a sentinel group has the parameters sentinel_user, sentinel_password, \
                     sentinel_tls=true and protocol=resp2, and no others",
                ));
            }
        }
    }
    let name = decoded(name)?;
    if name.is_empty() {
        return Err(nameless());
    }
    let listed = url.endpoints("sentinel", PORT)?;
    // The TLS options are for those connections that use TLS, of which there must be some.
    let of = |uses_tls: bool, other: bool| NodeOptions {
        tls: options.tls.clone().filter(|_| uses_tls || !other),
        ..options.clone()
    };
    let at_servers = of(url.uses_tls, sentinel_tls);
    let at_sentinels = NodeOptions {
        credentials: None,
        ..of(sentinel_tls, url.uses_tls)
    };
    let sentinels = login(&user, &password);
    let settings = |redis, uses_tls, options| {
        ConnectionSettings::new(redis, uses_tls, excludes_resp3, options)
    };
    let group = Group {
        sentinel_settings: settings(sentinels, sentinel_tls, &at_sentinels)?,
        server_settings: settings(servers, url.uses_tls, &at_servers)?,
        name,
    };
    Ok((group, listed))
}

#[cfg(test)]
mod tests {
    use deadpool_redis::redis::RedisConnectionInfo;

    use super::*;

    fn group(url: &str) -> Result<(Group, Vec<Endpoint>), UrlError> {
        let url = ServersUrl::parse(url, "sentinel").expect("a group");
        read(&url?, &NodeOptions::default())
    }

    #[test]
    fn a_url_says_how_to_connect_to_servers_and_to_sentinels() {
        let (group, listed) = group(
            "redis+sentinel://me:s%40cret@S1,[::1]:7/my%20group/3\
             ?sentinel_user=you&sentinel_password=p%26w&protocol=resp2",
        )
        .unwrap();
        let login = |it: &RedisConnectionInfo| {
            let [user, password] = [it.username(), it.password()];
            (user.map(str::to_owned), password.map(str::to_owned))
        };
        let pair = |user: &str, password: &str| (Some(user.into()), Some(password.into()));
        let Group {
            server_settings: servers,
            sentinel_settings: sentinels,
            ..
        } = &group;
        assert_eq!(login(servers.redis()), pair("me", "s@cret"));
        assert_eq!(login(sentinels.redis()), pair("you", "p&w"));
        assert_eq!((servers.redis().db(), sentinels.redis().db()), (3, 0));
        assert!(servers.excludes_resp3 && sentinels.excludes_resp3);
        assert_eq!(address(&group, &listed), "my group/3@s1:26379,[::1]:7");
    }

    #[test]
    fn a_url_for_tls_needs_the_feature() {
        for (url, expected) in [
            ("rediss+sentinel://s1/g", [true, false]),
            ("redis+sentinel://s1/g?sentinel_tls=true", [false, true]),
        ] {
            let group = group(url);
            assert_eq!(group.is_ok(), cfg!(feature = "tls-rustls"));
            match group {
                Ok((group, _)) => {
                    let settings = [&group.server_settings, &group.sentinel_settings];
                    assert_eq!(settings.map(ConnectionSettings::uses_tls), expected);
                }
                Err(error) => assert!(error.to_string().contains("the feature"), "{error}"),
            }
        }
    }
}
