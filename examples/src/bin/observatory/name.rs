use std::{fmt, str::FromStr};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// The name of a client or of a key: short, and the same in a URL, in a label and in the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Name(String);

impl Name {
    /// How many characters a name may have.
    const LIMIT: usize = 20;

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || ":-_".contains(c);
        let is_name = (1..=Self::LIMIT).contains(&text.len()) && text.chars().all(is_allowed);
        let shown: String = text.chars().take(Self::LIMIT).collect();
        ensure!(
            is_name,
            "`{shown}` is not a name: use 1 to 20 letters, digits, `:`, `-` and `_`"
        );
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Name {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
