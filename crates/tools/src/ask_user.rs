//! AskUser: asks the user a question. The answer is the result.

use std::collections::BTreeSet;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::args::{CallArgs, invalid};
use aye_core::contract::question::{QuestionParameters, WrittenChoice};
use aye_core::contract::suspension::{
    ACTION_ASK_USER, PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode,
};
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};

const NAME: &str = "AskUser";
/// More choices than this are not a question but a list.
const MAX_CHOICES: usize = 12;

/// Asks the user a question.
pub(super) struct AskUser;

struct Question<'a> {
    text: &'a str,
    header: Option<&'a str>,
    choices: Vec<(&'a str, Option<&'a str>)>,
    multi: bool,
    free_text: bool,
}

fn parse(args: &Value) -> Result<Question<'_>, ToolError> {
    let args = CallArgs::new(NAME, args, &["question", "header", "choices", "multi", "free_text"])?;
    let mut choices = Vec::new();
    for (at, value) in args.opt_list("choices")?.unwrap_or_default().iter().enumerate() {
        choices.push(match value {
            Value::String(label) => (label.as_str(), None),
            value => {
                let choice = CallArgs::new("a choice", value, &["label", "description"])
                    .map_err(|error| invalid(format!("`choices[{at}]`: {}", bare(&error))))?;
                (choice.text("label")?, choice.opt_text("description")?)
            }
        });
    }
    if choices.len() > MAX_CHOICES {
        return Err(invalid(format!(
            "`choices` has {} entries; the maximum is {MAX_CHOICES}",
            choices.len()
        )));
    }
    let mut labels = BTreeSet::new();
    for (label, _) in &choices {
        if label.trim().is_empty() {
            return Err(invalid("a label in `choices` is empty"));
        }
        if !labels.insert(label) {
            return Err(invalid(format!("duplicate label {label:?} in `choices`")));
        }
    }
    let free_text = args.flag("free_text", choices.is_empty())?;
    if choices.is_empty() && !free_text {
        return Err(invalid("the question needs `choices` or `free_text`"));
    }
    Ok(Question {
        text: args.filled("question")?,
        header: args.opt_text("header")?,
        multi: args.flag("multi", false)?,
        choices,
        free_text,
    })
}

fn bare(error: &ToolError) -> String {
    let text = error.to_string();
    text.strip_prefix("invalid arguments: ").unwrap_or(&text).to_owned()
}

impl Question<'_> {
    fn parameters(&self) -> Value {
        let choice = |(label, description): &(&str, Option<&str>)| WrittenChoice {
            label: (*label).to_owned(),
            description: Some(description.map(str::to_owned)),
            value: None,
        };
        QuestionParameters {
            question: Some(self.text.to_owned()),
            header: Some(self.header.map(str::to_owned)),
            choices: Some(self.choices.iter().map(choice).collect()),
            multi: Some(self.multi),
            free_text: Some(self.free_text),
            ..QuestionParameters::default()
        }
        .into()
    }

    /// Returns the schema of the answer; an answer that is not one of the choices is valid only if free text
    /// is allowed.
    fn response_schema(&self) -> Value {
        let mut item = json!({"type": "string"});
        if !self.free_text {
            item["enum"] = self.choices.iter().map(|(label, _)| *label).collect();
        }
        let (name, value) = if self.multi {
            ("answers", json!({"type": "array", "items": item, "minItems": 1}))
        } else {
            ("answer", item)
        };
        json!({
            "type": "object",
            "properties": {name: value},
            "required": [name],
            "additionalProperties": false,
        })
    }
}

#[async_trait]
impl Tool for AskUser {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(NAME, include_str!("ask_user.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {
                    "question": {"type": "string"},
                    "header": {"type": "string", "description": "1-3 words"},
                    "choices": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"label": {"type": "string"}, "description": {"type": "string"}},
                            "required": ["label"]
                        }
                    },
                    "multi": {"type": "boolean"},
                    "free_text": {"type": "boolean"}
                },
                "required": ["question"]
            }))
            .with_category("person")
            .with_class(ToolClass::Pure)
            .with_primary_argument("question")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        parse(args).map(|_| ())
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let question = parse(&args)?;
        let ticket = SuspendTicket {
            suspension: Suspension {
                // Call ids are unique in a run only.
                id: format!("ask_{}_{}", ctx.call_id, ctx.run_identity.run_id).into(),
                action: ACTION_ASK_USER.into(),
                message: question.text.into(),
                parameters: question.parameters(),
                response_schema: Some(question.response_schema()),
                expires_at: None,
            },
            pending: PendingToolCall {
                id: ctx.call_id.as_str().into(),
                name: NAME.into(),
                arguments: args.clone(),
            },
            resume_mode: ToolCallResumeMode::UseDecisionAsToolResult,
        };
        Ok(ToolResult::suspended_with(NAME, question.text, ticket).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sandbox;

    async fn ticket(args: Value) -> SuspendTicket {
        let result = Sandbox::new().call("AskUser", args).await.expect("it suspends");
        assert!(result.is_pending());
        *result.suspension.expect("a ticket")
    }

    #[tokio::test]
    async fn a_question_with_choices_takes_one_of_them() {
        let args = json!({"question": "Which?", "choices": [{"label": "a", "description": "first"}, "b"]});
        let ticket = ticket(args.clone()).await;
        assert_eq!(ticket.suspension.id.as_str(), "ask_call-1_run-1");
        assert_eq!(ticket.suspension.action, ACTION_ASK_USER);
        assert_eq!(ticket.resume_mode, ToolCallResumeMode::UseDecisionAsToolResult);
        assert_eq!(ticket.pending.arguments, args);
        assert_eq!(
            ticket.suspension.parameters,
            json!({
                "question": "Which?", "header": null, "multi": false, "free_text": false,
                "choices": [{"label": "a", "description": "first"}, {"label": "b", "description": null}],
            })
        );
        let schema = ticket.suspension.response_schema.expect("a schema");
        let validator = jsonschema::validator_for(&schema).expect("a valid schema");
        assert!(validator.is_valid(&json!({"answer": "b"})));
        for wrong in [json!({"answer": "c"}), json!({"answers": ["a"]}), json!({}), json!("a")] {
            assert!(!validator.is_valid(&wrong), "{wrong}");
        }
    }

    #[tokio::test]
    async fn several_answers_and_free_text() {
        let ticket =
            ticket(json!({"question": "?", "choices": ["a", "b"], "multi": true, "free_text": true})).await;
        let schema = ticket.suspension.response_schema.expect("a schema");
        let validator = jsonschema::validator_for(&schema).expect("a valid schema");
        assert!(validator.is_valid(&json!({"answers": ["a", "mine"]})));
        assert!(!validator.is_valid(&json!({"answers": []})));
    }

    #[tokio::test]
    async fn an_invalid_question_is_refused() {
        let sandbox = Sandbox::new();
        for (args, word) in [
            (json!({"question": " "}), "`question` is empty"),
            (json!({"question": "?", "choices": [{"name": "x"}]}), "`choices[0]`: unknown field \"name\""),
            (json!({"question": "?", "choices": ["a", "a"]}), "duplicate label"),
            (json!({"question": "?", "choices": [""]}), "empty"),
            (json!({"question": "?", "free_text": false}), "needs `choices` or `free_text`"),
        ] {
            let text = sandbox.refused("AskUser", args).await;
            assert!(text.contains(word), "{text}");
        }
    }
}
