use crate::RedlockBuilder;

impl RedlockBuilder {
    /// Adds masters by a list of URLs in one text, such as the value of an environment variable. Commas, spaces or line
    /// breaks separate the URLs. [`RedisNode::from_url`](crate::RedisNode::from_url) lists the forms of a URL.
    ///
    /// The URL of a Sentinel group has commas of its own, which separate its sentinels, and that of a cluster between its
    /// seeds and its tags. They do not end the URL. Write any other comma in a URL, such as one in a password, as `%2C`.
    ///
    /// [`build`](Self::build) reports a URL that cannot be used, with its position in the list. It refuses a list
    /// without any URL, unless other calls add nodes.
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // `redis://a,redis://b,redis://c`, `redis+sentinel://s1,s2,s3/orders` or `redis+cluster://a,b,c?voters=3`
    /// let nodes = std::env::var("REDLOCK_NODES")?;
    /// let redlock = Redlock::builder().node_list(&nodes).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn node_list(self, list: &str) -> Self {
        self.nodes(urls_in(list))
    }
}

/// Returns the URLs in a list.
fn urls_in(list: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    let is_separator = |it: char| it == ',' || it.is_whitespace();
    for part in list.split(is_separator).filter(|part| !part.is_empty()) {
        match urls.last_mut().filter(|url| may_go_on(url)) {
            Some(url) if !part.contains("://") => *url += &format!(",{part}"),
            _ => urls.push(part.to_owned()),
        }
    }
    urls
}

/// Returns true if the text is the URL of a cluster, or that of a Sentinel group without the slash that follows the last
/// sentinel.
fn may_go_on(url: &str) -> bool {
    let sentinels = url.split_once("+sentinel://");
    url.contains("+cluster://") || sentinels.is_some_and(|(_, rest)| !rest.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_white_space_separate_urls_but_not_the_servers_of_one() {
        let group = "redis+sentinel://:secret@a:1,b:2/orders?protocol=resp2";
        for (list, expected) in [
            ("redis://a,redis://b", &["redis://a", "redis://b"][..]),
            (
                " redis://a, redis://b\n\tunix:///c.sock,,\n",
                &["redis://a", "redis://b", "unix:///c.sock"],
            ),
            (
                &format!("{group},{group},redis://c"),
                &[group, group, "redis://c"],
            ),
            (&group.replace(',', ",\n  "), &[group]),
            (
                "redis+sentinel://a,b,redis://c",
                &["redis+sentinel://a,b", "redis://c"],
            ),
            (
                "redis+cluster://a,b:1?tags=x,y,z,redis://c",
                &["redis+cluster://a,b:1?tags=x,y,z", "redis://c"],
            ),
            ("redis://a,nonsense,", &["redis://a", "nonsense"]),
            ("", &[]),
            (" ,\n", &[]),
        ] {
            assert_eq!(urls_in(list), expected, "{list}");
        }
    }
}
