use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::convert::prepare;
use aye_core::contract::inference::InferenceOverride;
use aye_core::contract::message::ToolCall;
use aye_core::contract::tool::ToolDescriptor;

fn call(id: &str, proof: Option<&str>) -> ToolCall {
    let mut call = ToolCall::new(id, "Read", json!({"file_path": id}));
    call.signatures = proof.map(str::to_owned).into_iter().collect();
    call
}

fn request(model: &str, answer: Message) -> InferenceRequest {
    InferenceRequest {
        model: model.into(),
        system: vec![ContentBlock::text("be brief"), ContentBlock::text("be kind")],
        messages: Arc::new(vec![
            Message::user_with(vec![ContentBlock::text("see"), ContentBlock::image("image/png", "AAAA")])
                .into(),
            answer.into(),
            Message::tool_with("1", vec![ContentBlock::image("image/png", "BBBB")]).into(),
            Message::tool("2", "two").into(),
            Message::user("and now?").into(),
        ]),
        tools: vec![ToolDescriptor::new("Read", "Read", "reads")],
        ..InferenceRequest::default()
    }
}

fn body(request: &InferenceRequest) -> Value {
    build(&prepare(request), request)
}

#[test]
fn a_conversation_has_its_turns_results_and_images() {
    let answer =
        Message::assistant_with(vec![ContentBlock::text("so")], vec![call("1", None), call("2", None)]);
    let body = body(&request("gemini-2.5-pro", answer));
    assert_eq!(body["systemInstruction"], json!({"parts": [{"text": "be brief\n\nbe kind"}]}));
    assert_eq!(body["tools"][0]["functionDeclarations"][0]["name"], "Read");
    let result = |id: &str, text: &str| json!({"functionResponse": {"id": id, "name": "Read", "response": {"name": "Read", "content": text}}});
    let asked = |id: &str| json!({"functionCall": {"id": id, "name": "Read", "args": {"file_path": id}}});
    assert_eq!(
        body["contents"],
        json!([
            {"role": "user", "parts": [{"text": "see"}, {"inline_data": {"mime_type": "image/png", "data": "AAAA"}}]},
            {"role": "model", "parts": [{"text": "so"}, asked("1"), asked("2")]},
            {"role": "user", "parts": [result("1", "The image follows."), result("2", "two")]},
            {"role": "user", "parts": [
                {"text": PICTURES},
                {"inline_data": {"mime_type": "image/png", "data": "BBBB"}},
            ]},
            {"role": "user", "parts": [{"text": "and now?"}]},
        ])
    );
}

#[test]
fn signatures_return_only_to_their_origin() {
    let thought =
        |proof: &str| ContentBlock::Thinking { thinking: "hm".into(), signature: Some(proof.into()) };
    let answer = Message::assistant_with(
        vec![thought("anthropic:foreign"), thought("gemini:of-text"), ContentBlock::text("so")],
        vec![call("1", Some("gemini:of-call")), call("2", Some("openai_responses:foreign"))],
    );
    let sent = body(&request("gemini-3.8-flash", answer));
    let parts = &sent["contents"][1]["parts"];
    assert_eq!(parts[0], json!({"text": "so", "thoughtSignature": "of-text"}));
    assert_eq!(parts[1]["thoughtSignature"], "of-call");
    assert!(parts[2].get("thoughtSignature").is_none(), "{parts}");
    assert!(!sent.to_string().contains("foreign") && !sent.to_string().contains("\"hm\""), "{sent}");
    // Calls of another provider have no signature, and the third generation needs one for the first call.
    let answer = || Message::assistant_with(Vec::new(), vec![call("1", None), call("2", None)]);
    let sent = body(&request("gemini-3.8-flash", answer()));
    assert_eq!(sent["contents"][1]["parts"][0]["thoughtSignature"], NO_PROOF);
    assert!(sent["contents"][1]["parts"][1].get("thoughtSignature").is_none());
    let sent = body(&request("gemini-2.5-pro", answer()));
    assert!(sent["contents"][1]["parts"][0].get("thoughtSignature").is_none());
}

#[test]
fn parameters_match_each_model_generation() {
    let config = |model: &str, overrides: InferenceOverride| {
        let mut request = request(model, Message::assistant("so"));
        request.overrides = overrides;
        body(&request).get("generationConfig").cloned().unwrap_or_default()
    };
    let with = |effort| InferenceOverride { reasoning_effort: Some(effort), ..InferenceOverride::default() };
    let high = |model: &str| config(model, with(ReasoningEffort::High))["thinkingConfig"].clone();
    assert_eq!(high("gemini-3.8-flash"), json!({"thinkingLevel": "HIGH", "includeThoughts": true}));
    assert_eq!(high("gemini-10-pro"), json!({"thinkingLevel": "HIGH", "includeThoughts": true}));
    assert_eq!(high("gemini-2.5-pro"), json!({"thinkingBudget": 24_000, "includeThoughts": true}));
    assert_eq!(
        config("gemini-2.5-pro", with(ReasoningEffort::Budget(512)))["thinkingConfig"]["thinkingBudget"],
        512
    );
    let off = |model: &str| config(model, with(ReasoningEffort::None)).get("thinkingConfig").cloned();
    assert_eq!(off("gemini-3.8-flash"), Some(json!({"thinkingLevel": "LOW", "includeThoughts": true})));
    assert_eq!(off("gemini-2.5-flash"), Some(json!({"thinkingBudget": 0})));
    assert_eq!(off("gemini-2.5-pro"), Some(json!({"thinkingBudget": 128, "includeThoughts": true})));
    assert_eq!(off("gemini-1.5-pro"), None);
    let all = InferenceOverride {
        temperature: Some(0.5),
        top_p: Some(0.9),
        max_tokens: Some(100),
        ..InferenceOverride::default()
    };
    assert_eq!(
        config("gemini-1.5-pro", all),
        json!({"temperature": 0.5, "topP": 0.9, "maxOutputTokens": 100})
    );
    assert_eq!(config("gemini-1.5-pro", InferenceOverride::default()), Value::Null);
}
