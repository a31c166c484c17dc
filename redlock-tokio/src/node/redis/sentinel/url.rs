//! Reading the URL of a group.

use super::builder::SentinelNodeBuilder;
use crate::node::redis::{tls::TlsOptions, url::UrlError};

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
        if rest.contains('#') {
            return Err(UrlError::new("a `#` must be written as %23"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let nameless = || {
            UrlError::new(
                "the URL of a sentinel group lacks the group's name. Was a list of URLs split at its commas? \
                 RedlockBuilder::node_list keeps the sentinels of a group together",
            )
        };
        let (authority, path) = rest.split_once('/').ok_or_else(nameless)?;
        if path.contains('@') {
            // Otherwise a part of a password could be taken for a name, which logs show.
            return Err(UrlError::new(
                "a `/` in a user or a password must be written as %2F, and an `@` in the group's name as %40",
            ));
        }
        let (credentials, sentinels) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        let (name, database) = path.split_once('/').unwrap_or((path, ""));
        let mut group = Self::new(&decoded(name)?, sentinels.split(','));
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
        let mut parameters = query.split('&').filter(|part| !part.is_empty());
        parameters.try_fold(group, Self::with_parameter)
    }

    fn with_parameter(self, parameter: &str) -> Result<Self, UrlError> {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
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

/// Replaces `%40` and the like.
fn decoded(text: &str) -> Result<String, UrlError> {
    let error =
        || UrlError::new("a `%` must be followed by two hexadecimal digits of a UTF-8 text");
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or_else(error)?;
        // A sign would be accepted otherwise.
        let byte = u8::from_str_radix(digits, 16).ok();
        let byte = byte.filter(|_| !digits.starts_with('+'));
        bytes.push(byte.ok_or_else(error)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| error())
}
