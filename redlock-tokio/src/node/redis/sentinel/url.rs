//! Reading the URL of a group.

use crate::node::redis::url::UrlError;

/// The schemes of such a URL.
const PLAIN: &str = "redis+sentinel://";
const TLS: &str = "rediss+sentinel://";

/// The URL of a group in parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct GroupUrl {
    pub(super) name: String,
    pub(super) sentinels: Vec<String>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
    pub(super) has_tls: bool,
    pub(super) sentinel_user: Option<String>,
    pub(super) sentinel_password: Option<String>,
    pub(super) has_sentinel_tls: bool,
    pub(super) excludes_resp3: bool,
}

impl GroupUrl {
    /// Reads a URL. Returns `None` if the URL is not one of a group.
    pub(super) fn parse(url: &str) -> Option<Result<Self, UrlError>> {
        match (url.strip_prefix(PLAIN), url.strip_prefix(TLS)) {
            (Some(rest), _) => Some(Self::read(rest, false)),
            (None, Some(rest)) => Some(Self::read(rest, true)),
            (None, None) => None,
        }
    }

    fn read(rest: &str, has_tls: bool) -> Result<Self, UrlError> {
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
        let database = if database.is_empty() { "0" } else { database };
        let mut url = Self {
            name: decoded(name)?,
            sentinels: sentinels.split(',').map(str::to_owned).collect(),
            user: some(decoded(user)?),
            password: some(decoded(password)?),
            database: database
                .parse()
                .map_err(|_| UrlError::new("the database is not a number"))?,
            has_tls,
            ..Self::default()
        };
        for parameter in query.split('&').filter(|part| !part.is_empty()) {
            url.set(parameter)?;
        }
        Ok(url)
    }

    /// Sets a parameter of the query.
    fn set(&mut self, parameter: &str) -> Result<(), UrlError> {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = decoded(value)?;
        match (name, &*value) {
            ("sentinel_user", _) => self.sentinel_user = some(value),
            ("sentinel_password", _) => self.sentinel_password = some(value),
            ("sentinel_tls", "true" | "false") => self.has_sentinel_tls = value == "true",
            ("protocol", "resp2" | "resp3") => self.excludes_resp3 = value == "resp2",
            _ => {
                return Err(UrlError::new(
                    "the URL of a sentinel group has the parameters sentinel_user, sentinel_password, \
                     sentinel_tls=true and protocol=resp2, and no others",
                ));
            }
        }
        Ok(())
    }
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// Replaces `%40` and the like.
fn decoded(text: &str) -> Result<String, UrlError> {
    let error =
        || UrlError::new("a `%` must be followed by two hexadecimal digits of a UTF-8 text");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = others
            .get(..2)
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = str::from_utf8(digits.ok_or_else(error)?).map_err(|_| error())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| error())?);
        rest = &others[2..];
    }
    String::from_utf8(bytes).map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<GroupUrl, UrlError> {
        GroupUrl::parse(url).expect("the scheme is one of a group")
    }

    #[test]
    fn a_url_has_the_settings_of_servers_and_of_sentinels() {
        let url = "redis+sentinel://me:s%40cret@S1,[::1]:7/my%20group/3\
                   ?sentinel_user=you&sentinel_password=p%26w&protocol=resp2";
        let expected = GroupUrl {
            name: "my group".into(),
            sentinels: vec!["S1".into(), "[::1]:7".into()],
            user: Some("me".into()),
            password: Some("s@cret".into()),
            database: 3,
            sentinel_user: Some("you".into()),
            sentinel_password: Some("p&w".into()),
            excludes_resp3: true,
            ..GroupUrl::default()
        };
        assert_eq!(read(url), Ok(expected));
        let bare = GroupUrl {
            name: "g".into(),
            sentinels: vec!["s1".into()],
            password: Some("pw".into()),
            ..GroupUrl::default()
        };
        assert_eq!(read("redis+sentinel://:pw@s1/g"), Ok(bare));
    }

    #[test]
    fn tls_is_apart_for_servers_and_sentinels() {
        let tls = |url| {
            let url = read(url).unwrap();
            [url.has_tls, url.has_sentinel_tls]
        };
        assert_eq!(tls("rediss+sentinel://s1/g"), [true, false]);
        assert_eq!(
            tls("redis+sentinel://s1/g?sentinel_tls=true"),
            [false, true]
        );
    }

    #[test]
    fn other_urls_are_none_of_a_group() {
        for url in ["redis://a", "rediss://a", "", "redis+sentinel"] {
            assert!(GroupUrl::parse(url).is_none(), "{url}");
        }
    }

    #[test]
    fn bad_urls_are_named_without_their_text() {
        for (url, words) in [
            ("redis+sentinel://:hunter2@s1", "name"),
            ("redis+sentinel://s1/g/hunter2", "database"),
            ("redis+sentinel://:%zzhunter2@s1/g", "%"),
            ("redis+sentinel://:%ffhunter2@s1/g", "%"),
            ("redis+sentinel://:a#hunter2@s1/g", "%23"),
            ("redis+sentinel://me:1234/hunter2@s1/g", "%2F"),
            ("redis+sentinel://me:1234/hunter2@s1", "%2F"),
            (
                "redis+sentinel://s1/g?password=hunter2",
                "sentinel_password",
            ),
        ] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.contains(words), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{url}: {error}");
        }
    }
}
