//! Errors by the names that clients of the protocol know.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::ApiError;

/// An error by the name that clients know it by.
pub(crate) struct A2aError {
    status: StatusCode,
    reason: &'static str,
    message: String,
}

impl A2aError {
    pub(crate) fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into() }
    }

    pub(super) fn no_task(id: &str) -> Self {
        let shown: String = id.chars().take(80).collect();
        Self::new(StatusCode::NOT_FOUND, "TASK_NOT_FOUND", format!("there is no task `{shown}`"))
    }

    pub(super) fn unsupported(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "UNSUPPORTED_OPERATION", message)
    }

    fn details(&self) -> Value {
        json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason,
            "domain": "a2a-protocol.org",
        }])
    }

    /// The error of a JSON-RPC response.
    pub(super) fn rpc(&self) -> Value {
        let code = match self.reason {
            "TASK_NOT_FOUND" => -32001,
            "TASK_NOT_CANCELABLE" => -32002,
            "PUSH_NOTIFICATION_NOT_SUPPORTED" => -32003,
            "UNSUPPORTED_OPERATION" => -32004,
            "VERSION_NOT_SUPPORTED" => -32009,
            "INTERNAL" => -32603,
            _ => -32602,
        };
        json!({ "code": code, "message": self.message, "data": self.details() })
    }
}

impl From<ApiError> for A2aError {
    fn from(error: ApiError) -> Self {
        let status = error.status();
        let reason = match status {
            StatusCode::FORBIDDEN => "FORBIDDEN",
            StatusCode::CONFLICT => "CONFLICT",
            StatusCode::INTERNAL_SERVER_ERROR => "INTERNAL",
            StatusCode::INSUFFICIENT_STORAGE => "DISK_FULL",
            _ => "INVALID_PARAMS",
        };
        Self { status, reason, message: error.message().to_owned() }
    }
}

impl IntoResponse for A2aError {
    fn into_response(self) -> Response {
        let status = match self.status {
            StatusCode::NOT_FOUND => "NOT_FOUND",
            StatusCode::FORBIDDEN => "PERMISSION_DENIED",
            StatusCode::CONFLICT => "FAILED_PRECONDITION",
            StatusCode::INTERNAL_SERVER_ERROR => "INTERNAL",
            StatusCode::INSUFFICIENT_STORAGE => "RESOURCE_EXHAUSTED",
            _ => "INVALID_ARGUMENT",
        };
        let body = json!({ "error": {
            "code": self.status.as_u16(),
            "status": status,
            "message": self.message,
            "details": self.details(),
        } });
        (self.status, Json(body)).into_response()
    }
}
