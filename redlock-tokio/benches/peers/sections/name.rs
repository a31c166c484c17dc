use std::str::FromStr;

/// A section's name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    OwnKeys,
    EvenDistance,
    UnevenDistance,
    Sickness,
    Held,
}

impl Name {
    const ALL: [Self; 5] = [
        Self::OwnKeys,
        Self::EvenDistance,
        Self::UnevenDistance,
        Self::Sickness,
        Self::Held,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::OwnKeys => "own-keys",
            Self::EvenDistance => "even-distance",
            Self::UnevenDistance => "uneven-distance",
            Self::Sickness => "sickness",
            Self::Held => "held",
        }
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let section = Self::ALL.into_iter().find(|it| it.as_str() == text);
        section.ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("there is no section {text}; there are {names}")
        })
    }
}
