//! The extractors of requests. They check the path and the headers before a buyer waits for a lock.

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};
use percent_encoding::percent_decode;

use crate::{event::Event, office::BoxOffice, refusal::Refusal};

/// How many characters a name may have.
const NAME_LIMIT: usize = 40;

/// The event in the path.
pub(crate) struct OfEvent(pub(crate) Arc<Event>);

impl FromRequestParts<Arc<BoxOffice>> for OfEvent {
    type Rejection = Refusal;

    async fn from_request_parts(
        parts: &mut Parts,
        office: &Arc<BoxOffice>,
    ) -> Result<Self, Refusal> {
        // Some routes have the parameter `seat`, too.
        let Path(path) = Path::<Vec<(String, String)>>::from_request_parts(parts, office)
            .await
            .map_err(|_| Refusal::NoEvent)?;
        let name = path.iter().find(|(parameter, _)| parameter == "event");
        name.and_then(|(_, name)| office.event(name))
            .map(|event| Self(Arc::clone(event)))
            .ok_or(Refusal::NoEvent)
    }
}

/// The seat in the path, which exists.
pub(crate) struct OfSeat {
    pub(crate) event: Arc<Event>,
    pub(crate) seat: u32,
}

impl FromRequestParts<Arc<BoxOffice>> for OfSeat {
    type Rejection = Refusal;

    async fn from_request_parts(
        parts: &mut Parts,
        office: &Arc<BoxOffice>,
    ) -> Result<Self, Refusal> {
        let OfEvent(event) = OfEvent::from_request_parts(parts, office).await?;
        let refusal = Refusal::NoSeat(event.terms.seats);
        let Ok(Path((_, text))) = Path::<(String, String)>::from_request_parts(parts, office).await
        else {
            return Err(refusal);
        };
        // The key of the lock is the text in the path. A seat must have one key, so `07` is not a seat.
        match text.parse() {
            Ok(seat) if (1..=event.terms.seats).contains(&seat) && text == seat.to_string() => {
                Ok(Self { event, seat })
            }
            _ => Err(refusal),
        }
    }
}

/// The buyer, by the header `buyer`, which takes the place of a login in this example.
///
/// A page of another origin cannot send such a header, so a link on that page cannot buy a seat.
#[derive(Clone)]
pub(crate) struct Buyer(pub(crate) String);

impl<S: Sync> FromRequestParts<S> for Buyer {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let header = parts.headers.get("buyer").ok_or(Refusal::NoName)?;
        let name = percent_decode(header.as_bytes())
            .decode_utf8()
            .map_err(|_| Refusal::NoName)?;
        let name = name.trim();
        if !name.contains(char::is_alphanumeric) || name.contains(is_unprintable) {
            Err(Refusal::NoName)
        } else if name.chars().count() > NAME_LIMIT {
            Err(Refusal::LongName { limit: NAME_LIMIT })
        } else {
            Ok(Self(name.to_owned()))
        }
    }
}

/// Returns whether a character is invisible, or changes how the text around it is shown.
fn is_unprintable(c: char) -> bool {
    let shows_nothing = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    c.is_control() || shows_nothing
}
