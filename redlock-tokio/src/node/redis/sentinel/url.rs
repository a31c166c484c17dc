//! Reading the URL of a group.

use super::SentinelNodeBuilder;
use crate::node::redis::{
    tls::TlsOptions,
    url::{ServersUrl, UrlError, decoded},
};

impl SentinelNodeBuilder {
    /// Returns the builder of the node at a URL, or `None` if the URL is not one of a group.
    pub(in crate::node::redis) fn from_url(url: &str) -> Option<Result<Self, UrlError>> {
        let url = url.trim();
        if let Some(rest) = url.strip_prefix("redis+sentinel://") {
            return Some(Self::read(rest));
        }
        let rest = url.strip_prefix("rediss+sentinel://")?;
        Some(Self::read(rest).map(|group| group.tls(TlsOptions::new())))
    }

    fn read(rest: &str) -> Result<Self, UrlError> {
        let url = ServersUrl::parse(rest)?;
        let nameless = || {
            UrlError::new(
                "the URL of a sentinel group lacks the group's name. Was a list of URLs split at its commas? \
                 RedlockBuilder::node_list keeps the sentinels of a group together",
            )
        };
        let path = url.path.ok_or_else(nameless)?;
        let (user, password) = url
            .credentials
            .split_once(':')
            .unwrap_or((url.credentials, ""));
        let (name, database) = path.split_once('/').unwrap_or((path, ""));
        let mut group = Self::new(&decoded(name)?, url.servers.split(','));
        if !user.is_empty() {
            group = group.user(decoded(user)?);
        }
        if !password.is_empty() {
            group = group.password(decoded(password)?);
        }
        if !database.is_empty() {
            let number = database.parse();
            let number = number.map_err(|_| UrlError::new("the database is not a number"))?;
            group = group.database(number);
        }
        url.parameters().try_fold(group, Self::with_parameter)
    }

    fn with_parameter(self, (name, value): (&str, &str)) -> Result<Self, UrlError> {
        let value = decoded(value)?;
        Ok(match (name, &*value) {
            ("sentinel_user" | "sentinel_password", "")
            | ("sentinel_tls", "false")
            | ("protocol", "resp3") => self,
            ("sentinel_user", _) => self.sentinel_user(value),
            ("sentinel_password", _) => self.sentinel_password(value),
            ("sentinel_tls", "true") => self.sentinel_tls(TlsOptions::new()),
            ("protocol", "resp2") => self.resp2(),
            _ => {
                return Err(UrlError::new(
                    "the URL of a sentinel group has the parameters sentinel_user, sentinel_password, \
                     sentinel_tls=true and protocol=resp2, and no others",
                ));
            }
        })
    }
}
