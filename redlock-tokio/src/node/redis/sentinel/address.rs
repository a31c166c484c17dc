use crate::node::redis::connect::Endpoint;

/// Reads `host:port`. An address without a port has this one. The host of an IPv6 address is in brackets.
pub(super) fn parse_address(text: &str, port: Option<u16>) -> Option<Endpoint> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(digits) => digits.parse().ok()?,
        None if rest.is_empty() => port?,
        None => return None,
    };
    let is_plain = |it: char| !it.is_whitespace() && !"/?#@,".contains(it);
    (!host.is_empty() && port > 0 && host.chars().all(is_plain)).then(|| Endpoint::Tcp {
        host: host.into(),
        port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let shown = |text| parse_address(text, Some(26379)).map(|it| it.to_string());
        for (text, expected) in [
            ("S1.internal", "s1.internal:26379"),
            ("10.0.0.1:7", "10.0.0.1:7"),
            ("[fe80::1]", "[fe80::1]:26379"),
            ("[fe80::1]:7", "[fe80::1]:7"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            ":7",
            "a:",
            "a:x",
            "a:0",
            "a:99999",
            "fe80::1",
            "[a",
            "[]:7",
            "a b:7",
            "redis://a",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
        assert_eq!(parse_address("a", None), None);
    }
}
