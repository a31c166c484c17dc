use std::error::Error as _;

use axum::{
    Json,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use redlock_axum::LockLost;
use serde_json::json;
use thiserror::Error;

use crate::store::StoreError;

/// The error of a request, as problem JSON (RFC 9457). The lock layer has its own errors, in the same form.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error("there is no such event")]
    NoEvent,
    #[error("the seats are numbered from 1 to {0}")]
    NoSeat(u32),
    #[error("the header `buyer` must contain your name, in UTF-8 and percent-encoded")]
    NoName,
    #[error("the name in the header `buyer` has more than {limit} characters")]
    LongName { limit: usize },
    #[error("the seat was sold to {owner}")]
    Sold { owner: String },
    #[error("the seat is free, so it cannot be given back")]
    NotSold,
    #[error("the seat is not yours but belongs to {owner}")]
    NotYours { owner: String },
    #[error("too many pages are open; come back later")]
    Crowded,
    #[error("the store does not answer; repeat the request to find out whether it was carried out")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Lost(#[from] LockLost),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        // The second is the type of the problem, for programs.
        let (status, kind) = match &self {
            Self::Lost(lost) => return lost.into_response(),
            Self::NoEvent => (StatusCode::NOT_FOUND, "no-event"),
            Self::NoSeat(_) => (StatusCode::NOT_FOUND, "no-seat"),
            Self::NoName => (StatusCode::BAD_REQUEST, "no-name"),
            Self::LongName { .. } => (StatusCode::BAD_REQUEST, "long-name"),
            Self::Sold { .. } => (StatusCode::CONFLICT, "sold"),
            Self::NotSold => (StatusCode::CONFLICT, "not-sold"),
            Self::NotYours { .. } => (StatusCode::FORBIDDEN, "not-yours"),
            Self::Crowded => (StatusCode::SERVICE_UNAVAILABLE, "crowded"),
            Self::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store"),
        };
        let mut problem = json!({
            "type": format!("urn:tickets:problem:{kind}"),
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": self.to_string(),
        });
        if let Self::Sold { owner } | Self::NotYours { owner } = &self {
            problem["owner"] = owner.as_str().into();
        }
        let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
        let body = (content_type, Json(problem));
        match self {
            Self::Store(error) => {
                // The text of this error does not contain its source.
                let cause = error.source().map(ToString::to_string);
                tracing::warn!("{error}: {}", cause.unwrap_or_default());
                (status, [(header::RETRY_AFTER, "1")], body).into_response()
            }
            Self::Crowded => (status, [(header::RETRY_AFTER, "5")], body).into_response(),
            _ => (status, body).into_response(),
        }
    }
}
