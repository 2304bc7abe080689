//! `--json-schema`: the answer is JSON that matches a schema, or the exit status says that it is not.

use std::fmt;

use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use super::ask::{HeadlessSession, SessionResult};
use super::{Job, exit, exit_code, note};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::message::{Message, Visibility};
use aye_runtime::{RunRequest, RuntimeError};
use aye_session::Queue;

/// The number of attempts the model has to repair an answer.
const REPAIRS: usize = 2;
/// Maximum errors that are reported of one answer.
const MAX_ERRORS: usize = 20;
/// Maximum characters of one of them: each may quote a part of the answer.
const MAX_ERROR: usize = 300;

/// The schema that an answer must match.
#[derive(Debug)]
pub struct AnswerSchema {
    validator: jsonschema::Validator,
    text: String,
}

/// Why a text is no schema.
#[derive(Debug)]
pub enum AnswerSchemaError {
    /// It is no JSON.
    Json(serde_json::Error),
    /// It is JSON of another kind.
    NoObject,
    /// It breaks the rules of JSON Schema.
    Schema(Box<jsonschema::ValidationError<'static>>),
}

impl fmt::Display for AnswerSchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "invalid JSON: {error}"),
            Self::NoObject => f.write_str("a JSON Schema must be an object"),
            // The library's own text is about its features.
            Self::Schema(error) if matches!(error.kind(), ValidationErrorKind::Referencing(_)) => f.write_str(
                "invalid JSON Schema: a `$ref` leads nowhere; refer to a part of the same file, such as `#/$defs/name`",
            ),
            Self::Schema(error) => write!(f, "invalid JSON Schema: {error}"),
        }
    }
}

impl std::error::Error for AnswerSchemaError {}

impl AnswerSchema {
    /// Reads a JSON Schema.
    ///
    /// # Errors
    /// [`AnswerSchemaError`].
    pub fn parse(text: &str) -> Result<Self, AnswerSchemaError> {
        let schema: Value = serde_json::from_str(text).map_err(AnswerSchemaError::Json)?;
        if !schema.is_object() && !schema.is_boolean() {
            return Err(AnswerSchemaError::NoObject);
        }
        let validator = jsonschema::validator_for(&schema)
            .map_err(|error| AnswerSchemaError::Schema(Box::new(error.to_owned())))?;
        Ok(Self { validator, text: schema.to_string() })
    }

    /// Returns the instruction that the model reads along with the task.
    pub fn instruction(&self) -> Message {
        let text = format!(
            "The final answer to this task must be one JSON value that matches the JSON Schema below, and \
             nothing else: no text before or after it, no code fence. This applies to the final answer only; \
             use tools as usual before it.\n<json-schema>\n{}\n</json-schema>",
            self.text
        );
        internal(Message::system(text))
    }

    fn repair(&self, errors: &[String]) -> Message {
        let text = format!(
            "Your last answer does not match the JSON Schema of this task:\n- {}\nAnswer again with the \
             corrected JSON value and nothing else: no text before or after it, no code \
             fence.\n<json-schema>\n{}\n</json-schema>",
            errors.join("\n- "),
            self.text
        );
        internal(Message::user(text))
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn check(&self, answer: &str) -> Result<Value, Vec<String>> {
        let value: Value = serde_json::from_str(without_fence(answer))
            .map_err(|error| vec![format!("the answer is not a single JSON value: {error}")])?;
        let errors: Vec<String> = self
            .validator
            .iter_errors(&value)
            .take(MAX_ERRORS)
            .map(|error| {
                let path = error.instance_path().to_string();
                let place = if path.is_empty() { "the whole answer" } else { path.as_str() };
                format!("{place}: {error}").chars().take(MAX_ERROR).collect()
            })
            .collect();
        if errors.is_empty() { Ok(value) } else { Err(errors) }
    }

    /// Checks the answer of a job that is done, and lets the model repair it.
    pub(super) async fn enforce<'a>(
        &self,
        thread: &ThreadId,
        desk: impl Fn() -> HeadlessSession<'a>,
        mut done: SessionResult,
    ) -> Result<SessionResult, RuntimeError> {
        for repairs in 0..=REPAIRS {
            if !matches!(exit_code(&done.result).0, exit::DONE | exit::EXPIRED) {
                break;
            }
            let errors = match self.check(&done.result.response) {
                Ok(value) => {
                    done.output = Some(Ok(value));
                    break;
                }
                Err(errors) => errors,
            };
            if repairs == REPAIRS {
                done.output = Some(Err(errors));
                break;
            }
            note(&format!(
                "  the answer does not match the schema; requesting a repair ({} of {REPAIRS})",
                repairs + 1
            ));
            let request = RunRequest::new(thread.clone(), vec![self.repair(&errors)]);
            let mut next = Box::pin(desk().attend(Job::Run(request), Queue::Nothing)).await?;
            // Usage, steps and the outcomes of questions cover the whole job.
            next.result.usage.add(&done.result.usage);
            next.result.steps += done.result.steps;
            next.result.expired.splice(0..0, done.result.expired);
            next.denied.splice(0..0, done.denied);
            done = next;
        }
        Ok(done)
    }
}

fn internal(mut message: Message) -> Message {
    message.visibility = Visibility::Internal;
    message
}

/// The text between the fences of a single code block, or all of it.
fn without_fence(answer: &str) -> &str {
    let text = answer.trim();
    let inner = text
        .strip_prefix("```")
        .and_then(|rest| rest.strip_suffix("```"))
        .and_then(|rest| rest.split_once('\n'))
        .filter(|(language, _)| matches!(language.trim(), "" | "json" | "JSON"))
        .map(|(_, body)| body.trim());
    inner.unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::AnswerSchema;

    fn schema() -> AnswerSchema {
        let schema = json!({
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
            "required": ["name", "age"],
            "additionalProperties": false,
        });
        AnswerSchema::parse(&schema.to_string()).expect("a schema")
    }

    #[test]
    fn an_answer_is_one_json_value_with_or_without_a_fence() {
        let wanted = json!({"name": "Ada", "age": 36});
        for answer in [
            wanted.to_string(),
            format!("\n {wanted} \n"),
            format!("```json\n{wanted}\n```"),
            format!("```\n{wanted}\n```\n"),
        ] {
            assert_eq!(schema().check(&answer), Ok(wanted.clone()), "{answer}");
        }
        for answer in
            ["", "Here it is: {}", "{\"name\": \"Ada\"} {}", "```rust\n{}\n```", &"[".repeat(10_000)]
        {
            let errors = schema().check(answer).expect_err("no JSON value");
            assert!(errors[0].starts_with("the answer is not a single JSON value"), "{errors:?}");
        }
    }

    #[test]
    fn every_error_names_its_place() {
        let errors = schema().check(r#"{"age": -1, "extra": true}"#).expect_err("three errors");
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors.iter().any(|error| error.starts_with("/age: ")), "{errors:?}");
        assert!(
            errors.iter().any(|error| error.starts_with("the whole answer: ") && error.contains("name")),
            "{errors:?}"
        );
        let long = format!("{{\"name\": 1, \"age\": \"{}\"}}", "x".repeat(5000));
        let errors = schema().check(&long).expect_err("two errors");
        assert!(errors.iter().all(|error| error.chars().count() <= 300), "{errors:?}");
    }

    #[test]
    fn an_invalid_schema_is_reported() {
        for (text, why) in [
            ("{", "invalid JSON"),
            ("[]", "must be an object"),
            (r#"{"type": "nonsense"}"#, "invalid JSON Schema"),
            (r#"{"$ref": "https://example.com/schema.json"}"#, "a `$ref` leads nowhere"),
            (r#"{"$ref": "file:///etc/passwd"}"#, "a `$ref` leads nowhere"),
            (r##"{"$ref": "#/$defs/none"}"##, "a `$ref` leads nowhere"),
        ] {
            let error = AnswerSchema::parse(text).expect_err(text);
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }
}
