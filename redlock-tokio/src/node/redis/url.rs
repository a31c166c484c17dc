//! Reading the URLs of nodes.

use std::{fmt::Display, sync::Arc};

use deadpool_redis::redis::{
    ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};

use super::{address::Endpoint, connect::ConnectionSettings, options::NodeOptions};

/// Why a URL cannot be used, by itself or with the options of the builder. Does not repeat the URL, which may hold a
/// password, and no private key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlError(Arc<str>);

impl UrlError {
    pub(super) fn new(text: impl Display) -> Self {
        Self::of_options(format!(
            "{text}; expected redis://[user:password@]host[:port][/database], rediss://.. for TLS, unix:///path, \
             redis+sentinel://host,host/group or redis+cluster://host,host, with %2C for a comma in a password"
        ))
    }

    /// Returns the error of a URL that has the right form.
    pub(super) fn of_options(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }
}

pub(super) struct NodeUrl {
    pub(super) endpoint: Endpoint,
    pub(super) settings: ConnectionSettings,
}

impl NodeUrl {
    /// Returns the node's name in errors and logs: the server, and the database, unless that is the first one. Locks in
    /// different databases of a server are different locks.
    pub(super) fn name(&self) -> String {
        match (&self.endpoint, self.settings.redis().db()) {
            (endpoint, 0) => endpoint.to_string(),
            (Endpoint::Tcp { .. }, database) => format!("{}/{database}", self.endpoint),
            (Endpoint::Unix(_), database) => format!("{}?db={database}", self.endpoint),
        }
    }

    pub(super) fn parse(url: &str, options: &NodeOptions) -> Result<Self, UrlError> {
        // The parser drops the text after a `#`, for instance a part of a password.
        if url.contains('#') {
            return Err(UrlError::new("a `#` must be written as %23"));
        }
        // Otherwise a part of a password would be taken for a path.
        let after_host = url
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once(['/', '?']));
        if after_host.is_some_and(|(host, rest)| !host.is_empty() && rest.contains('@')) {
            return Err(unescaped());
        }
        let info = url.trim().into_connection_info().map_err(|error| {
            let text = error.to_string();
            if text.contains("with TLS, the feature is not enabled") {
                let text = "TLS needs the feature `tls-rustls` of redlock-tokio";
                return UrlError::of_options(text);
            }
            // Without the text of the URL: after a comma in a password, it is the rest of the password.
            match url.trim().split_once("://") {
                Some(("redis" | "rediss" | "valkey" | "valkeys" | "unix", _)) => {
                    UrlError::new(text)
                }
                Some(_) => UrlError::new("the scheme in front of `://` is unknown"),
                None => {
                    UrlError::new("the scheme is missing: write redis:// in front of the address")
                }
            }
        })?;
        let endpoint = Endpoint::of(info.addr())
            .ok_or_else(|| UrlError::new("the address is of an unknown kind"))?;
        let (_, query) = url.trim().split_once('?').unwrap_or((url, ""));
        let mut says_protocol = false;
        for (parameter, _) in parameters(query) {
            match (parameter, &endpoint) {
                ("protocol", _) => says_protocol = true,
                ("db" | "user" | "pass", Endpoint::Unix(_)) => {}
                // The parser passes over the others: a `?db=1` would lock in the wrong database.
                _ => {
                    return Err(UrlError::new(
                        "the URL of a server has the parameter protocol=resp2, that of a socket also db, user and pass, \
                         and no others",
                    ));
                }
            }
        }
        let redis = info.redis_settings().clone();
        database_number(redis.db())?;
        let excludes_resp3 = says_protocol && redis.protocol() == ProtocolVersion::RESP2;
        let uses_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        Ok(Self {
            endpoint,
            settings: ConnectionSettings::new(redis, uses_tls, excludes_resp3, options)?,
        })
    }
}

/// A URL that names several servers:
/// `redis+kind://[user[:password]@]host[:port],host[:port][/path][?name=value&..]`.
pub(super) struct ServersUrl<'a> {
    pub(super) uses_tls: bool,
    pub(super) user: String,
    pub(super) password: String,
    servers: &'a str,
    /// `None` without a slash.
    pub(super) path: Option<&'a str>,
    query: &'a str,
}

impl<'a> ServersUrl<'a> {
    /// Returns `None` if the URL is not of this kind.
    pub(super) fn parse(url: &'a str, kind: &str) -> Option<Result<Self, UrlError>> {
        let (scheme, rest) = url.trim().split_once("://")?;
        let scheme = scheme.strip_suffix(kind)?;
        let uses_tls = match scheme {
            "redis+" => false,
            "rediss+" => true,
            _ => return None,
        };
        Some(Self::read(uses_tls, rest))
    }

    fn read(uses_tls: bool, rest: &'a str) -> Result<Self, UrlError> {
        if rest.contains('#') {
            return Err(UrlError::new("a `#` must be written as %23"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, Some(path)),
            None => (rest, None),
        };
        if path.is_some_and(|path| path.contains('@')) {
            return Err(unescaped());
        }
        let (credentials, servers) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        Ok(Self {
            uses_tls,
            user: decoded(user)?,
            password: decoded(password)?,
            servers,
            path,
            query,
        })
    }

    /// Returns the addresses, which are called `kind` in errors.
    pub(super) fn endpoints(&self, kind: &str, port: u16) -> Result<Vec<Endpoint>, UrlError> {
        let mut endpoints = Vec::new();
        for (index, address) in self.servers.split(',').enumerate() {
            let defect = |text: &dyn Display| {
                let position = index + 1;
                UrlError::new(format_args!("{kind} {position}: {text}"))
            };
            let endpoint = Endpoint::parse(address, Some(port)).map_err(|error| defect(&error))?;
            if endpoints.contains(&endpoint) {
                return Err(defect(&"it is given twice"));
            }
            endpoints.push(endpoint);
        }
        Ok(endpoints)
    }

    /// Returns the names and the values behind the `?`, percent-encoded.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        parameters(self.query)
    }
}

fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "")))
}

/// Returns the number of a database, unless no server can have so many.
pub(super) fn database_number(number: i64) -> Result<i64, UrlError> {
    let text = "the database is not a number from 0 to 2147483646";
    let is_possible = (0..i32::MAX.into()).contains(&number);
    is_possible
        .then_some(number)
        .ok_or_else(|| UrlError::new(text))
}

/// Returns what authenticates a connection. An empty user or password is none.
pub(super) fn login(user: &str, password: &str) -> RedisConnectionInfo {
    let mut redis = RedisConnectionInfo::default();
    if !user.is_empty() {
        redis = redis.set_username(user);
    }
    if !password.is_empty() {
        redis = redis.set_password(password);
    }
    redis
}

/// Otherwise a part of a password could be taken for a name or a host, which logs show.
fn unescaped() -> UrlError {
    UrlError::new(
        "in a user or a password, a `/` must be written as %2F and a `?` as %3F; in a path or a parameter, an `@` as %40",
    )
}

/// Replaces `%40` and the like.
pub(super) fn decoded(text: &str) -> Result<String, UrlError> {
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
