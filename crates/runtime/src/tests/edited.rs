//! Calls with arguments edited by the user, and decisions with comments.

use super::*;

fn edited(arguments: Value) -> ToolCallResume {
    ToolCallResume { arguments: Some(arguments), ..answer(ResumeDecisionAction::Resume) }
}

#[tokio::test]
async fn an_edited_call_runs_as_edited_and_is_reported_so() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("I see.")]);
    let runtime = house.runtime(&script);
    let (result, _) = send(&runtime, "go").await;
    let id = result.waiting[0].id.clone();
    let yes = ToolCallResume { reason: Some("only the docs".into()), ..edited(json!({"id": "other"})) };
    assert!(matches!(runtime.decide(&id, yes, actor()).await.unwrap(), DecideOutcome::Accepted(_)));

    // Another process executes the call.
    let (result, events) = wake(&house.runtime(&script), UnknownPolicy::Ask).await;
    assert_eq!(house.executed(), 1);
    let reported = script.result_of("c1");
    assert_eq!(
        reported,
        "The user edited the call before approving it. It ran as: {\"id\":\"other\"}\nComment: only the \
         docs\n{\"ran\":{\"id\":\"other\"}}"
    );
    let done = events.iter().find_map(|event| match event {
        AgentEvent::ToolCallDone { result, .. } => result.touched.clone(),
        _ => None,
    });
    let done = done.expect("front ends receive it too");
    assert_eq!(done.arguments, Some(json!({"id": "other"})));
    assert_eq!(done.comment.as_deref(), Some("only the docs"));

    let row = house.store.suspension(&id).await.unwrap().unwrap();
    assert_eq!(row.ticket.pending.arguments, json!({"id": "c1"}), "the proposed call");
    assert_eq!(row.decision.unwrap().arguments, Some(json!({"id": "other"})), "the allowed call");
    let intents = house.store.intents(&result.run_id).await.unwrap();
    assert_eq!(intents[0].0.arguments, json!({"id": "other"}));
    let audit = house.store.audit(aye_store_sqlite::AuditFilter::default()).await.unwrap();
    let body = |kind: &str| &audit.iter().find(|row| row.kind.as_str() == kind).unwrap().body;
    assert_eq!(body("asked")["arguments"], json!({"id": "c1"}));
    assert_eq!(body("decided")["arguments"], json!({"id": "other"}));
    assert_eq!(body("decided")["reason"], "only the docs");
    assert_eq!(body("began")["arguments"], json!({"id": "other"}));
}

#[tokio::test]
async fn invalid_edited_arguments_are_refused_without_effect() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("ok")]);
    let runtime = house.runtime(&script);
    send(&runtime, "go").await;
    let id: SuspensionId = "perm_c1".into();
    let no_with = ToolCallResume { action: ResumeDecisionAction::Cancel, ..edited(json!({})) };
    let silent = ToolCallResume {
        result: ToolCallResume::modify_payload(),
        reason: Some("  ".into()),
        ..answer(ResumeDecisionAction::Cancel)
    };
    for (wrong, why) in [
        (edited(json!("ls")), "must be a JSON object"),
        (edited(json!([])), "must be a JSON object"),
        (edited(json!({"id": 7})), "`/id`"),
        (edited(json!({"forbidden": true})), "forbidden"),
        (no_with, "a denial takes no edited arguments"),
        (silent, "the feedback is empty"),
    ] {
        let error = runtime.decide(&id, wrong, actor()).await.expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(house.store.suspension(&id).await.unwrap().unwrap().decision, None);
    let audit = house.store.audit(aye_store_sqlite::AuditFilter::default()).await.unwrap();
    assert!(!audit.iter().any(|row| row.kind.as_str() == "decided"));

    // A question of another kind takes neither arguments nor feedback.
    let house = House::new();
    let script = Script::of([calls(&[("c1", "hang")]), text("ok")]);
    kill_at(&house, &script, "tool_call_stream_delta").await;
    let runtime = house.runtime(&script);
    let (result, _) = wake(&runtime, UnknownPolicy::Ask).await;
    let id = &result.waiting[0].id;
    let error = runtime.decide(id, edited(json!({})), actor()).await.expect_err("unknown outcome");
    assert!(error.to_string().contains("only an approval request takes edited arguments"), "{error}");
    let modify = ToolCallResume {
        result: ToolCallResume::modify_payload(),
        reason: Some("x".into()),
        ..answer(ResumeDecisionAction::Cancel)
    };
    let error = runtime.decide(id, modify, actor()).await.expect_err("unknown outcome");
    assert!(error.to_string().contains("changes can be requested only"), "{error}");
}

#[tokio::test]
async fn the_rules_judge_the_edited_version() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("ok")]);
    let runtime = house.runtime(&script);
    send(&runtime, "go").await;
    runtime.decide(&"perm_c1".into(), edited(json!({"id": "evil"})), actor()).await.unwrap();
    wake(&runtime, UnknownPolicy::Ask).await;
    assert_eq!(house.executed(), 0);
    let reported = script.result_of("c1");
    assert!(
        reported.contains("The user edited the call to: ") && reported.contains("evil is denied"),
        "{reported}"
    );
    assert!(!reported.contains("It ran as"), "{reported}");
}

#[tokio::test]
async fn a_lost_edited_call_is_replayed_only_as_edited() {
    for edits in [true, false] {
        let house = House::new();
        let script = Script::of([calls(&[("c1", "ask_hang")]), text("ok")]);
        let runtime = house.runtime(&script);
        send(&runtime, "go").await;
        let yes = if edits { edited(json!({"id": "other"})) } else { answer(ResumeDecisionAction::Resume) };
        runtime.decide(&"perm_c1".into(), yes, actor()).await.unwrap();
        kill_at_resume(&house, &script).await;

        let runtime = house.runtime(&script);
        let (result, _) = wake(&runtime, UnknownPolicy::Ask).await;
        let question = &result.waiting[0];
        let ran = if edits { json!({"id": "other"}) } else { json!({"id": "c1"}) };
        assert_eq!(question.ticket.pending.arguments, ran, "the card shows what ran");
        let again = ToolCallResume {
            result: json!({"choice": "rerun"}),
            reason: Some("it should be quick now".into()),
            ..answer(ResumeDecisionAction::Resume)
        };
        house.hangs.store(false, Ordering::SeqCst);
        runtime.decide(&question.id, again, actor()).await.unwrap();
        wake(&runtime, UnknownPolicy::Ask).await;
        assert_eq!(house.executed(), 2);
        let reported = script.result_of("c1");
        assert!(reported.ends_with(&json!({"ran": ran}).to_string()), "{reported}");
        assert_eq!(reported.contains("It ran as: {\"id\":\"other\"}"), edits, "{reported}");
        assert!(reported.contains("omment: it should be quick now"), "{reported}");
    }
}

#[tokio::test]
async fn feedback_ends_the_call_with_its_own_message() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("Fine.")]);
    let runtime = house.runtime(&script);
    send(&runtime, "go").await;
    let modify = ToolCallResume {
        result: ToolCallResume::modify_payload(),
        reason: Some("use make instead".into()),
        ..answer(ResumeDecisionAction::Cancel)
    };
    runtime.decide(&"perm_c1".into(), modify, actor()).await.unwrap();
    let (_, events) = wake(&runtime, UnknownPolicy::Ask).await;
    assert_eq!(names(&events)[2], "tool_call_done(cancelled)");
    let reported = script.result_of("c1");
    assert!(reported.contains("requested changes") && reported.contains("use make instead"), "{reported}");
    assert!(!reported.contains("declined"), "{reported}");
    assert_eq!(house.executed(), 0);
    let audit = house.store.audit(aye_store_sqlite::AuditFilter::default()).await.unwrap();
    let decided = &audit.iter().find(|row| row.kind.as_str() == "decided").unwrap().body;
    assert_eq!(
        (&decided["result"]["decision"], &decided["reason"]),
        (&json!("modify"), &json!("use make instead"))
    );
}

#[tokio::test]
async fn a_comment_with_any_decision_reaches_the_model() {
    for (action, expected) in [
        (ResumeDecisionAction::Resume, "The user approved this with the comment: go easy\n{\"ran\""),
        (ResumeDecisionAction::Cancel, "denied this call. It did not run. Reason: go easy"),
    ] {
        let house = House::new();
        let script = Script::of([calls(&[("c1", "ask")]), text("Fine.")]);
        let runtime = house.runtime(&script);
        send(&runtime, "go").await;
        let decision = ToolCallResume { reason: Some("go easy".into()), ..answer(action) };
        runtime.decide(&"perm_c1".into(), decision, actor()).await.unwrap();
        wake(&runtime, UnknownPolicy::Ask).await;
        let reported = script.result_of("c1");
        assert!(reported.contains(expected), "{reported}");
    }
    for choice in ["done", "skip"] {
        let house = House::new();
        let script = Script::of([calls(&[("c1", "hang")]), text("ok")]);
        kill_at(&house, &script, "tool_call_stream_delta").await;
        let runtime = house.runtime(&script);
        let (result, _) = wake(&runtime, UnknownPolicy::Ask).await;
        let decision = ToolCallResume {
            result: json!({"choice": choice}),
            reason: Some("I looked".into()),
            ..answer(ResumeDecisionAction::Resume)
        };
        runtime.decide(&result.waiting[0].id, decision, actor()).await.unwrap();
        wake(&runtime, UnknownPolicy::Ask).await;
        let reported = script.result_of("c1");
        assert!(reported.starts_with("The user's comment: I looked\n"), "{reported}");
    }
}
