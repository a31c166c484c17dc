//! The meaning of a server's errors for a lock.

use std::{error::Error, io, sync::Arc};

use deadpool_redis::redis::{RedisError, ServerError};

use super::address::Endpoint;
use crate::node::NodeError;

pub(super) fn refusal(error: &ServerError) -> NodeError {
    NodeError::Refused {
        code: shorten(error.code().to_owned()).into(),
        message: shorten(error.details().unwrap_or_default().to_owned()).into(),
    }
}

/// Returns the error of a connection that broke while it was used.
pub(super) fn disconnected(error: &RedisError) -> NodeError {
    NodeError::Disconnected(shorten(error.to_string()).into())
}

pub(super) fn needs_password() -> NodeError {
    NodeError::Misconfigured("the server asks for a password".into())
}

/// Returns what an error while connecting means: that no server is there, or that one is and objects.
pub(super) fn connect_error(error: &RedisError) -> NodeError {
    // The server's own text is a paragraph (`HELLO`).
    if error.to_string().contains("NOAUTH") {
        return needs_password();
    }
    let text = shorten(in_words(error.to_string())).into();
    // Rustls reports a certificate that it does not trust in this way. The redis crate keeps the error in
    // an `Arc` that shows as a source of its own.
    let is_distrust = error
        .source()
        .and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>())
        .and_then(|error| error.downcast_ref::<io::Error>())
        .is_some_and(|error| error.kind() == io::ErrorKind::InvalidData);
    if (error.is_io_error() && !is_distrust) || is_temporary(error) {
        NodeError::Unreachable(text)
    } else {
        NodeError::Misconfigured(text)
    }
}

/// Says in words what rustls shows as a value: why a certificate is invalid.
fn in_words(text: String) -> String {
    [
        (
            "Other(OtherError(UnsupportedCertVersion))",
            "it is of X.509 version 1, as openssl makes it without extensions, and must be of version 3",
        ),
        (
            "Other(OtherError(CaUsedAsEndEntity))",
            "it is that of a CA, and the server needs one of its own",
        ),
    ]
    .into_iter()
    .fold(text, |text, (value, words)| text.replace(value, words))
}

/// Names the server in an error while connecting, since the name of the node is that of a slot or of a group.
pub(super) fn connect_error_at(endpoint: &Endpoint, error: NodeError) -> NodeError {
    // A sentinel may say anything.
    let address = shorten(endpoint.to_string());
    let at = |text| format!("{address}: {text}").into();
    match error {
        NodeError::Unreachable(text) => NodeError::Unreachable(at(text)),
        NodeError::Misconfigured(text) => NodeError::Misconfigured(at(text)),
        other => other,
    }
}

/// Returns whether the server only asks for patience. The redis crate keeps the error's code for some
/// commands, and only its text for others.
fn is_temporary(error: &RedisError) -> bool {
    let code = error.code().unwrap_or_default();
    let detail = error.detail().unwrap_or_default();
    matches!(code, "BUSY" | "LOADING" | "MASTERDOWN" | "TRYAGAIN")
        || [
            "Redis is busy",
            "Redis is loading",
            "Link with MASTER is down",
            "max number of clients reached",
        ]
        .iter()
        .any(|words| detail.contains(words))
}

/// Returns whether the client may not use a command, or the server has none of that name, whatever the
/// keys are.
pub(super) fn is_denied_command(error: &ServerError) -> bool {
    let details = error.details().unwrap_or_default();
    match error.code() {
        "NOPERM" => details.contains("permissions to run"),
        "ERR" => details.starts_with("unknown command"),
        _ => false,
    }
}

/// Returns whether the client may use the command, but not with this key.
pub(super) fn is_denied_key(error: &ServerError) -> bool {
    error.code() == "NOPERM" && !is_denied_command(error)
}

/// Returns whether an error concerns the whole server, so that each key alone would get it too.
pub(super) fn concerns_server(error: &ServerError) -> bool {
    matches!(
        error.code(),
        "NOSCRIPT"
            | "BUSY"
            | "LOADING"
            | "READONLY"
            | "MASTERDOWN"
            | "MISCONF"
            | "NOAUTH"
            | "NOREPLICAS"
            | "OOM"
    )
}

/// Returns a server's text as it may stand in an error message: short, and without control characters,
/// which could change a terminal or forge lines of a log.
pub(super) fn shorten(mut text: String) -> String {
    const LONGEST: usize = 200;
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push_str("..");
    }
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, " ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_short_and_has_no_control_characters() {
        assert_eq!(shorten("as it is".into()), "as it is");
        assert_eq!(shorten("a\r\n\x1b[31mb".into()), "a   [31mb");
        assert_eq!(shorten("ü".repeat(201)), "ü".repeat(200) + "..");
        for value in ["UnsupportedCertVersion", "CaUsedAsEndEntity"] {
            let error = format!("invalid peer certificate: Other(OtherError({value}))");
            let error = connect_error(&io::Error::new(io::ErrorKind::InvalidData, error).into());
            let text = error.to_string();
            assert!(text.contains("certificate: it is"), "{text}");
        }
        let endpoint = Endpoint::tcp(&"x".repeat(100_000), 6379).unwrap();
        let error = connect_error_at(&endpoint, NodeError::Unreachable("refused".into()));
        let text = error.to_string();
        assert!(text.len() < 300 && text.ends_with(": refused"), "{text}");
    }
}
