//! A file with the URLs of nodes.

/// A URL, and the number of the line on which it begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) url: String,
    pub(crate) line: usize,
}

/// Reads the URLs as `RedlockBuilder::node_list` does. Besides, quotes around them, a byte order mark at the beginning, and
/// what follows a `#` at the beginning of a line or after a space, are left out. No URL has any of these.
pub(crate) fn parse(text: &str) -> Vec<Listed> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut listed: Vec<Listed> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let is_separator = |it: char| it == ',' || it.is_whitespace();
        let parts = line.split(is_separator);
        let parts = parts.take_while(|part| !part.starts_with('#'));
        let parts = parts.map(|part| part.trim_matches(['"', '\'']));
        for part in parts.filter(|part| !part.is_empty()) {
            match listed.last_mut().filter(|it| may_go_on(&it.url)) {
                Some(last) if !part.contains("://") => last.url += &format!(",{part}"),
                _ => listed.push(Listed {
                    url: part.to_owned(),
                    line: index + 1,
                }),
            }
        }
    }
    listed
}

/// Returns whether a comma may be a part of this URL: the one of a cluster, or of a Sentinel group up to the slash.
fn may_go_on(url: &str) -> bool {
    let sentinels = url.split_once("+sentinel://");
    url.contains("+cluster://") || sentinels.is_some_and(|(_, rest)| !rest.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(usize, String)> {
        parse(text)
            .into_iter()
            .map(|it| (it.line, it.url))
            .collect()
    }

    #[test]
    fn comments_quotes_and_marks_of_editors_are_left_out() {
        for text in [
            "redis://a\nredis://b\n",
            "\u{feff}redis://a\r\nredis://b\r\n",
            "\"redis://a\",\n'redis://b'",
            "redis://a # the first, as redis://x\n\tredis://b,#",
            "redis://a,\n redis://b,",
        ] {
            let expected = [(1, "redis://a".to_owned()), (2, "redis://b".to_owned())];
            assert_eq!(parsed(text), expected, "{text:?}");
        }
        assert_eq!(
            parsed("# redis://a\n\n  #\n,\n\u{feff}"),
            [(5, "\u{feff}".into())]
        );
        assert_eq!(parsed("\u{feff}"), []);
    }

    #[test]
    fn each_url_has_the_number_of_its_line() {
        let text = "# ours\nredis://a, redis://b\n\nnonsense\n";
        let expected = [(2, "redis://a"), (2, "redis://b"), (4, "nonsense")];
        let expected = expected.map(|(line, url)| (line, url.to_owned()));
        assert_eq!(parsed(text), expected);
    }

    #[test]
    fn the_url_of_several_servers_may_have_several_lines() {
        let text = "redis+sentinel://s1, # here\n  s2/orders\nredis+cluster://a,\nb?tags=x,y,z\nredis://c#d";
        let expected = [
            (1, "redis+sentinel://s1,s2/orders"),
            (3, "redis+cluster://a,b?tags=x,y,z"),
            // The client refuses it, and says how a `#` is written.
            (5, "redis://c#d"),
        ];
        let expected = expected.map(|(line, url)| (line, url.to_owned()));
        assert_eq!(parsed(text), expected);
    }
}
