use std::{fmt, str::FromStr, sync::Arc};

use axum::http::request::Parts as Head;
use futures::future::{BoxFuture, FutureExt, ready};
use redlock_tower::KeyRejection;

use super::json::JsonField;

/// A part of a request that goes into a key.
///
/// Made by [`path`](crate::path), [`header`](crate::header), [`query`](crate::query),
/// [`json_field`](crate::json_field), [`matched_path`](crate::matched_path) and [`typed`](crate::typed). A part alone
/// is not a key, because order 7 and customer 7 would have the same one: [`key`](crate::key()) adds a scope.
///
/// # One resource, one spelling
///
/// The client chooses the text, and so it chooses the key. `7`, `07` and `+7` are one number to a handler with
/// `Path<u64>`, but three keys: a client that varies the spelling gets around the lock. If the handler does not compare
/// the text byte by byte, the part must do what the handler or its database does:
///
/// - [`parse`](Self::parse) for numbers, UUIDs and other types: `path("order").parse::<u64>()`.
/// - [`map`](Self::map) for text of which case or accents do not count: `query("email").map(str::to_lowercase)`.
#[derive(Clone)]
pub struct KeyPart {
    /// For messages, such as "the header `x-tenant`".
    pub(super) name: Arc<str>,
    pub(super) source: Source,
    /// Makes one text of all that mean the same.
    normalise: Option<Arc<Normalise>>,
}

type Normalise = dyn Fn(String) -> Result<String, KeyRejection> + Send + Sync;

/// The place of the value in the request.
#[derive(Clone)]
pub(super) enum Source {
    Head(Arc<ReadHead>),
    Json(JsonField),
}

pub(super) type ReadHead = dyn Fn(&mut Head) -> BoxFuture<'_, Found> + Send + Sync;

/// A value, or `None` if no route matched the request.
pub(super) type Found = Result<Option<String>, KeyRejection>;

impl KeyPart {
    /// Parses the value as the type that the handler takes, and uses it as that type displays it. So all spellings of
    /// one value are one key.
    ///
    /// A request whose value cannot be parsed gets a 400, with the error of the parser.
    ///
    /// ```
    /// use redlock_axum::{json_field, key, path};
    ///
    /// // `order:7` for `/orders/7`, `/orders/07` and `/orders/+7`
    /// let order = key("order", path("order").parse::<u64>());
    /// // `host:2001\:db8\:\:1` for `{"host": "2001:db8::1"}` and for `{"host": "2001:DB8:0::1"}`
    /// let host = key("host", json_field("host", 4096).parse::<std::net::IpAddr>());
    /// # drop((order, host));
    /// ```
    #[must_use]
    pub fn parse<T>(self) -> Self
    where
        T: FromStr<Err: fmt::Display> + fmt::Display,
    {
        let name = Arc::clone(&self.name);
        self.then(move |text| match text.parse::<T>() {
            Ok(value) => Ok(value.to_string()),
            Err(error) => Err(KeyRejection::request(format!(
                "{name} is not valid: {error}"
            ))),
        })
    }

    /// Replaces the value by another one. Use it for text of which the database does not compare all: its case, its
    /// accents, or spaces at its ends.
    ///
    /// For a column that ignores case, `str::to_lowercase` comes close enough: texts that differ in case become one
    /// key. A user's text can also be one character or two for one letter (`é`). With the crate
    /// `unicode-normalization`, `|text| text.nfc().collect::<String>()` makes one text of both.
    ///
    /// ```
    /// use redlock_axum::{key, query};
    ///
    /// // `user:ada@example.org` for `?email=Ada@Example.org` too
    /// let user = key("user", query("email").map(str::to_lowercase));
    /// # drop(user);
    /// ```
    #[must_use]
    pub fn map<V: fmt::Display>(
        self,
        normalise: impl Fn(&str) -> V + Send + Sync + 'static,
    ) -> Self {
        self.then(move |text| Ok(normalise(&text).to_string()))
    }

    fn then(
        self,
        next: impl Fn(String) -> Result<String, KeyRejection> + Send + Sync + 'static,
    ) -> Self {
        let normalise: Arc<Normalise> = match self.normalise {
            Some(first) => Arc::new(move |text| next(first(text)?)),
            None => Arc::new(next),
        };
        Self {
            normalise: Some(normalise),
            ..self
        }
    }

    /// Returns the text for the key that is made of a text in the request.
    pub(super) fn normalise(&self, text: String) -> Result<String, KeyRejection> {
        match &self.normalise {
            Some(normalise) => normalise(text),
            None => Ok(text),
        }
    }

    pub(super) fn new(
        name: impl Into<Arc<str>>,
        read: impl Fn(&mut Head) -> BoxFuture<'_, Found> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            source: Source::Head(Arc::new(read)),
            normalise: None,
        }
    }

    pub(super) fn at_once(
        name: impl Into<Arc<str>>,
        read: impl Fn(&Head) -> Found + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |head| ready(read(head)).boxed())
    }

    pub(super) fn json(name: impl Into<Arc<str>>, field: JsonField) -> Self {
        Self {
            name: name.into(),
            source: Source::Json(field),
            normalise: None,
        }
    }
}

impl fmt::Debug for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyPart").field(&self.name).finish()
    }
}

/// Lets [`key`](crate::key()) accept one part or several.
impl From<KeyPart> for Vec<KeyPart> {
    fn from(part: KeyPart) -> Self {
        vec![part]
    }
}
