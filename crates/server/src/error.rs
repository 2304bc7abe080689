//! Errors of requests, as `{"error": {"code", "message", "field"?}}` and a status.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use aye_core::contract::error_code::ErrorCode;
use aye_core::contract::storage::StoreError;
use aye_runtime::{DecideError, RuntimeError};
use aye_session::Ended;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// A request that cannot be carried out.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    field: Option<Box<str>>,
    /// Members beside `error`.
    also: Option<Box<Map<String, Value>>>,
}

impl ApiError {
    /// Creates an error with a status, a code for programs and a sentence for users.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), field: None, also: None }
    }

    /// A member of the body that is missing or wrong: 400.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, "invalid", message);
        Self { field: Some(field.into().into_boxed_str()), ..error }
    }

    /// Something that does not exist: 404.
    pub fn not_found(what: &str, id: &str) -> Self {
        let shown: String = id.chars().take(80).collect();
        Self::new(StatusCode::NOT_FOUND, ErrorCode::NotFound.as_str(), format!("unknown {what} `{shown}`"))
    }

    /// Something that stands in the way of a request: 409.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// A failure of aye: 500. The reason goes to the log, because it may name files.
    pub fn internal(reason: impl std::fmt::Display) -> Self {
        tracing::error!(%reason, "a request failed");
        let code = ErrorCode::Internal.as_str();
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, "internal error; see aye's log")
    }

    /// The same error with another member in its body.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.also.get_or_insert_default().insert(name.to_owned(), value);
        self
    }

    /// Returns the sentence for users.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether an answer came after its question was closed.
    pub(super) fn is_late(&self) -> bool {
        ["already_decided", "closed", "expired"].contains(&self.code)
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }
}

/// The body of an error.
#[derive(Serialize, JsonSchema)]
pub(super) struct ErrorBody {
    error: ErrorDetail,
    /// Further details, such as the card of a question.
    #[serde(flatten)]
    also: Map<String, Value>,
}

/// The details of an error.
#[derive(Serialize, JsonSchema)]
struct ErrorDetail {
    /// For programs.
    code: &'static str,
    /// A message for users.
    message: String,
    /// The member of the body that is missing or wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<Box<str>>,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = ErrorDetail { code: self.code, message: self.message, field: self.field };
        let also = self.also.map(|also| *also).unwrap_or_default();
        (self.status, Json(ErrorBody { error, also })).into_response()
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let code = error.code().as_str();
        match error {
            StoreError::NoThread(id) => Self::not_found("conversation", id.as_str()),
            StoreError::Duplicate { .. } | StoreError::Exists { .. } => {
                Self::new(StatusCode::CONFLICT, code, error.to_string())
            }
            StoreError::Owned { .. } => Self::new(StatusCode::CONFLICT, code, error.to_string()),
            StoreError::Damaged { .. } => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, error.to_string())
            }
            StoreError::ReadOnly => Self::new(StatusCode::SERVICE_UNAVAILABLE, code, error.to_string()),
            StoreError::Full => Self::new(StatusCode::INSUFFICIENT_STORAGE, code, error.to_string()),
            other => Self::internal(other),
        }
    }
}

impl From<RuntimeError> for ApiError {
    fn from(error: RuntimeError) -> Self {
        let status = match &error {
            error if Ended::of_error(error).is_busy() => StatusCode::CONFLICT,
            RuntimeError::NothingToResume { .. }
            | RuntimeError::NotQueued { .. }
            | RuntimeError::Fenced { .. } => StatusCode::CONFLICT,
            RuntimeError::AgentNotFound { .. }
            | RuntimeError::ResolveFailed { .. }
            | RuntimeError::NoMessage { .. } => StatusCode::BAD_REQUEST,
            RuntimeError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            RuntimeError::Damaged { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            RuntimeError::Full => StatusCode::INSUFFICIENT_STORAGE,
            _ => return Self::internal(error),
        };
        Self::new(status, error.code().as_str(), error.to_string())
    }
}

impl From<DecideError> for ApiError {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::Store(error) => error.into(),
            unfit => Self::field("result", unfit.to_string()),
        }
    }
}
