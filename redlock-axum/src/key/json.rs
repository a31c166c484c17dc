use std::fmt;

use redlock_tower::KeyRejection;
use serde_core::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Deserializer, value::RawValue};

use super::body::BodyLimit;

/// A field of a JSON body, and the limit for reading the body.
#[derive(Clone)]
pub(super) struct JsonField {
    /// Names of members, joined by dots.
    pub(super) field: String,
    pub(super) limit: BodyLimit,
}

impl JsonField {
    pub(super) fn find(&self, body: &[u8]) -> Result<String, KeyRejection> {
        let mut value: &RawValue =
            serde_json::from_slice(body).map_err(|error| not_json(&error))?;
        for name in self.field.split('.') {
            value = match member(value, name).map_err(|error| not_json(&error))? {
                Member::Once(value) => value,
                Member::None => return Err(self.rejection("the body has no field", "")),
                Member::Twice => return Err(self.rejection("the body has more than one field", "")),
            };
        }
        self.text(value.get())
    }

    fn text(&self, value: &str) -> Result<String, KeyRejection> {
        match value.as_bytes() {
            [b'"', ..] => serde_json::from_str(value).map_err(|error| not_json(&error)),
            [b'-' | b'0'..=b'9', ..] if is_whole(value) => Ok(value.to_owned()),
            [b'-' | b'0'..=b'9', ..] => Err(self.rejection(
                "the field",
                " is a number with a fraction, an exponent or more than 64 bits, or -0. Such a number \
                 can be written in several ways: send it as a string",
            )),
            _ => Err(self.rejection("the field", " is neither a string nor a number")),
        }
    }

    fn rejection(&self, before: &str, after: &str) -> KeyRejection {
        KeyRejection::request(format!("{before} `{}`{after}", self.field))
    }
}

fn not_json(error: &serde_json::Error) -> KeyRejection {
    KeyRejection::request(format!("the body is not JSON: {error}"))
}

/// Returns whether a JSON number has one spelling only. JSON has no plus sign and no leading zeros.
fn is_whole(number: &str) -> bool {
    let fits = number.parse::<u64>().is_ok() || number.parse::<i64>().is_ok();
    fits && number != "-0"
}

/// A member of an object, which JSON allows to occur several times.
enum Member<'a> {
    None,
    Once(&'a RawValue),
    Twice,
}

/// Finds a member of a JSON value. Only objects have members.
fn member<'a>(value: &'a RawValue, name: &str) -> serde_json::Result<Member<'a>> {
    if value.get().starts_with('{') {
        Deserializer::from_str(value.get()).deserialize_map(MemberOf(name))
    } else {
        Ok(Member::None)
    }
}

struct MemberOf<'n>(&'n str);

impl<'de> Visitor<'de> for MemberOf<'_> {
    type Value = Member<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Member<'de>, A::Error> {
        let mut found = Member::None;
        while let Some(name) = map.next_key::<String>()? {
            if name == self.0 {
                let value = map.next_value()?;
                found = match found {
                    Member::None => Member::Once(value),
                    Member::Once(_) | Member::Twice => Member::Twice,
                };
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}
