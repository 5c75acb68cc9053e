//! The answer to a request: an object, or one line with the reason for a refusal.

use std::fmt::Display;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorLine {
    /// One line: the problem, its location and the remedy.
    pub error: String,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The status of the answer.
    pub status: StatusCode,
    /// One line.
    pub error: String,
}

/// An answer, or a refusal.
pub type Answer = Result<Response, Refused>;

impl Refused {
    /// A refusal with its status; line breaks become spaces.
    pub fn new(status: StatusCode, why: impl Display) -> Refused {
        Refused { status, error: format!("{why:#}").replace('\n', " ") }
    }

    /// The request itself is invalid: 400.
    pub fn bad(why: impl Display) -> Refused {
        Refused::new(StatusCode::BAD_REQUEST, why)
    }

    /// The named object does not exist: 404.
    pub fn missing(why: impl Display) -> Refused {
        Refused::new(StatusCode::NOT_FOUND, why)
    }

    /// It cannot be as the router is now: 409.
    pub fn conflict(why: impl Display) -> Refused {
        Refused::new(StatusCode::CONFLICT, why)
    }

    /// Not now: 503.
    pub fn unavailable(why: impl Display) -> Refused {
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, why)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        object(self.status, &ErrorLine { error: self.error })
    }
}

/// A value as a JSON object and a line end.
pub fn object<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => written(status, "application/json", text + "\n"),
        Err(why) => {
            let text = format!("{{\"error\":\"the answer cannot be written: {}\"}}\n", why.line());
            written(StatusCode::INTERNAL_SERVER_ERROR, "application/json", text)
        }
    }
}

/// A text of some kind.
pub fn written(status: StatusCode, kind: &'static str, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, kind)], Body::from(text)).into_response()
}

/// Reads the object that a request carries.
///
/// # Errors
/// 400, with what is wrong and at which line and column.
pub fn read<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body)
        .map_err(|why| Refused::bad(nilometer_files::document::one_line(&why.to_string())))
}
