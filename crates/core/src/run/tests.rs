use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::contract::executor::ToolExecutionMode;
use crate::contract::lifecycle::RunStatus;
use crate::contract::suspension::{
    ACTION_PERMISSION, PendingToolCall, ResumeDecisionAction, Suspension, ToolCallResumeMode,
};

fn id(n: usize) -> CallId {
    CallId::from(format!("c{n}"))
}

fn asked(n: usize) -> SuspensionId {
    SuspensionId::from(format!("perm_c{n}"))
}

fn ticket(call: &CallId, resume_mode: ToolCallResumeMode) -> SuspendTicket {
    SuspendTicket {
        suspension: Suspension {
            id: format!("perm_{call}").into(),
            action: ACTION_PERMISSION.into(),
            message: "run it?".into(),
            parameters: Value::Null,
            response_schema: None,
            expires_at: None,
        },
        pending: PendingToolCall { id: call.clone(), name: "Bash".into(), arguments: json!({}) },
        resume_mode,
    }
}

fn decision(name: &str, action: ResumeDecisionAction) -> ToolCallResume {
    ToolCallResume {
        decision_id: name.into(),
        action,
        result: Value::Null,
        reason: None,
        arguments: None,
        profile: None,
        updated_at: 0,
    }
}

fn done(phase: Phase) -> Fact {
    Fact::PhaseDone { phase, stop: None }
}

/// Drives a run up to the gate of its `calls` calls.
fn at_tools(mode: ToolExecutionMode, calls: usize) -> (Run, Vec<Directive>) {
    let mut run = Run::new(mode);
    run.apply(Fact::Started).unwrap();
    for phase in [Phase::RunStart, Phase::StepStart, Phase::BeforeInference] {
        run.apply(done(phase)).unwrap();
    }
    run.apply(Fact::Inferred { calls: (0..calls).map(id).collect() }).unwrap();
    let out = run.apply(done(Phase::AfterInference)).unwrap();
    (run, out)
}

fn notices(out: &[Directive]) -> Vec<Notice> {
    out.iter()
        .filter_map(|d| match d {
            Directive::Emit(notice) => Some(notice.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_text_answer_ends_the_run_in_the_documented_order() {
    let mut run = Run::new(ToolExecutionMode::Sequential);
    let mut seen = notices(&run.apply(Fact::Started).unwrap());
    for phase in [Phase::RunStart, Phase::StepStart, Phase::BeforeInference] {
        seen.extend(notices(&run.apply(done(phase)).unwrap()));
    }
    seen.extend(notices(&run.apply(Fact::Inferred { calls: Vec::new() }).unwrap()));
    for phase in [Phase::AfterInference, Phase::StepEnd, Phase::RunEnd] {
        seen.extend(notices(&run.apply(done(phase)).unwrap()));
    }
    use Notice as N;
    let end = N::RunFinish(TerminationReason::NaturalEnd);
    assert_eq!(seen, [N::RunStart, N::StepStart, N::StepEnd, end]);
    assert_eq!(run.status(), RunStatus::Done);
}

#[test]
fn an_approved_call_resumes_under_the_same_run() {
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 1);
    let gate = Gate::Suspend(ticket(&id(0), ToolCallResumeMode::ReplayToolCall));
    let out = run.apply(Fact::Gated { call: id(0), gate }).unwrap();
    assert_eq!(out[0], Directive::Checkpoint { intent: None }, "the question is durable before it is shown");
    assert_eq!(
        notices(&out),
        [
            Notice::CallDone(id(0), ToolCallStatus::Suspended),
            Notice::StepEnd,
            Notice::RunFinish(TerminationReason::Suspended)
        ]
    );
    assert_eq!(run.status(), RunStatus::Waiting);

    let yes = decision("d1", ResumeDecisionAction::Resume);
    let out = run.apply(Fact::Decided { call: id(0), suspension: asked(0), decision: yes.clone() }).unwrap();
    assert_eq!(notices(&out), [Notice::RunStart, Notice::CallResumed(id(0))]);
    assert_eq!(out.last(), Some(&Directive::Gate { call: id(0), resume: Some(yes) }));
    let out = run.apply(Fact::Gated { call: id(0), gate: Gate::Proceed }).unwrap();
    assert_eq!(out, [Directive::Checkpoint { intent: Some(id(0)) }, Directive::Execute { call: id(0) }]);
    let out = run.apply(Fact::Settled { call: id(0), outcome: Settled::Succeeded }).unwrap();
    assert_eq!(notices(&out), [Notice::CallDone(id(0), ToolCallStatus::Succeeded)]);
    let out = run.apply(done(Phase::StepEnd)).unwrap();
    assert_eq!(notices(&out), [Notice::StepStart], "the step's end was emitted before the wait");
}

/// Asks about a call and answers it.
fn answered(asks: SuspendTicket, decision: ToolCallResume) -> (Run, Vec<Directive>) {
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 1);
    run.apply(Fact::Gated { call: id(0), gate: Gate::Suspend(asks) }).unwrap();
    let out = run.apply(Fact::Decided { call: id(0), suspension: asked(0), decision }).unwrap();
    (run, out)
}

#[test]
fn edited_arguments_stay_with_the_call_in_every_outcome() {
    let edited = json!({"command": "ls"});
    let yes = ToolCallResume {
        arguments: Some(edited.clone()),
        reason: Some(" look first ".into()),
        ..decision("d1", ResumeDecisionAction::Resume)
    };
    // Whatever the ticket says about answers.
    for mode in [
        ToolCallResumeMode::ReplayToolCall,
        ToolCallResumeMode::UseDecisionAsToolResult,
        ToolCallResumeMode::PassDecisionToTool,
    ] {
        let (mut run, out) = answered(ticket(&id(0), mode), yes.clone());
        assert_eq!(out.last(), Some(&Directive::Gate { call: id(0), resume: Some(yes.clone()) }));
        run.apply(Fact::Gated { call: id(0), gate: Gate::Proceed }).unwrap();
        // The process dies during the call, and the user is asked about the outcome.
        let mut run: Run = serde_json::from_value(serde_json::to_value(&run).unwrap()).unwrap();
        let mut unknown = ticket(&id(0), ToolCallResumeMode::ReplayToolCall);
        unknown.suspension.action = crate::contract::suspension::ACTION_UNKNOWN_OUTCOME.into();
        run.apply(Fact::Recovered { lost: vec![(id(0), Lost::Ask(unknown))] }).unwrap();
        let again = ToolCallResume {
            result: json!({"choice": "rerun"}),
            reason: Some("once more".into()),
            ..decision("d2", ResumeDecisionAction::Resume)
        };
        run.apply(Fact::Decided { call: id(0), suspension: asked(0), decision: again }).unwrap();
        let call = run.call(&id(0)).unwrap();
        assert_eq!(call.edited.as_ref(), Some(&edited), "{mode:?}");
        assert_eq!(call.comments, ["look first", "once more"]);
    }
}

#[test]
fn invalid_edited_arguments_never_run_a_call() {
    let edited = |arguments: Value| ToolCallResume {
        arguments: Some(arguments),
        ..decision("d1", ResumeDecisionAction::Resume)
    };
    for arguments in [json!(null), json!("ls"), json!([1])] {
        let (run, out) = answered(ticket(&id(0), ToolCallResumeMode::ReplayToolCall), edited(arguments));
        assert!(out.contains(&Directive::Record { call: id(0), closing: Closing::BadPayload }));
        assert_eq!(run.call(&id(0)).unwrap().edited, None);
    }
    let mut other = ticket(&id(0), ToolCallResumeMode::ReplayToolCall);
    other.suspension.action = "tool:AskUser".into();
    let (_, out) = answered(other.clone(), edited(json!({})));
    assert!(out.contains(&Directive::Record { call: id(0), closing: Closing::BadPayload }));
    other.suspension.action = crate::contract::suspension::ACTION_UNKNOWN_OUTCOME.into();
    let (_, out) = answered(other, edited(json!({})));
    assert!(out.contains(&Directive::Record { call: id(0), closing: Closing::Skipped }));
}

#[test]
fn requested_changes_differ_from_a_denial() {
    let modify = ToolCallResume {
        result: ToolCallResume::modify_payload(),
        reason: Some("use make".into()),
        ..decision("d1", ResumeDecisionAction::Cancel)
    };
    let (run, out) = answered(ticket(&id(0), ToolCallResumeMode::ReplayToolCall), modify);
    let closing = Closing::ChangeWanted { feedback: "use make".into() };
    assert!(out.contains(&Directive::Record { call: id(0), closing }));
    assert_eq!(run.call(&id(0)).unwrap().status(), ToolCallStatus::Cancelled);
}

#[test]
fn a_denied_call_is_cancelled_and_the_run_continues() {
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 2);
    let gate = Gate::Suspend(ticket(&id(0), ToolCallResumeMode::ReplayToolCall));
    run.apply(Fact::Gated { call: id(0), gate }).unwrap();
    let no = decision("d1", ResumeDecisionAction::Cancel);
    let out = run.apply(Fact::Decided { call: id(0), suspension: asked(0), decision: no }).unwrap();
    assert!(out.contains(&Directive::Record { call: id(0), closing: Closing::Declined { reason: None } }));
    assert_eq!(
        out.last(),
        Some(&Directive::Gate { call: id(1), resume: None }),
        "the delayed call starts now"
    );
    assert!(!out.iter().any(|d| matches!(d, Directive::Execute { .. })));
}

#[test]
fn batch_approval_holds_calls_until_all_are_decided() {
    let (mut run, out) = at_tools(ToolExecutionMode::ParallelBatchApproval, 2);
    assert_eq!(out.len(), 2);
    for n in 0..2 {
        let gate = Gate::Suspend(ticket(&id(n), ToolCallResumeMode::ReplayToolCall));
        run.apply(Fact::Gated { call: id(n), gate }).unwrap();
    }
    let out = run
        .apply(Fact::Decided {
            call: id(1),
            suspension: asked(1),
            decision: decision("d1", ResumeDecisionAction::Resume),
        })
        .unwrap();
    assert_eq!(out, [Directive::Checkpoint { intent: None }]);
    assert_eq!(run.status(), RunStatus::Waiting);
    let out = run
        .apply(Fact::Decided {
            call: id(0),
            suspension: asked(0),
            decision: decision("d2", ResumeDecisionAction::Resume),
        })
        .unwrap();
    assert_eq!(out.iter().filter(|d| matches!(d, Directive::Gate { .. })).count(), 2);
}

#[test]
fn in_a_fork_an_approved_call_may_already_have_started() {
    let (mut run, _) = at_tools(ToolExecutionMode::ParallelBatchApproval, 2);
    for n in 0..2 {
        let gate = Gate::Suspend(ticket(&id(n), ToolCallResumeMode::ReplayToolCall));
        run.apply(Fact::Gated { call: id(n), gate }).unwrap();
    }
    let copied = |n| Fact::MayHaveStarted { call: id(n) };
    assert!(run.apply(copied(0)).is_err(), "nobody approved");
    let yes = decision("d1", ResumeDecisionAction::Resume);
    run.apply(Fact::Decided { call: id(1), suspension: asked(1), decision: yes }).unwrap();
    assert_eq!(run.apply(copied(1)).unwrap(), [Directive::Checkpoint { intent: Some(id(1)) }]);
    let call = run.call(&id(1)).unwrap();
    assert_eq!((call.status(), call.attempt), (ToolCallStatus::Running, 1));
    assert!(run.apply(copied(1)).is_err(), "it is counted once");
}

#[test]
fn streaming_approval_starts_a_decided_call_while_another_waits() {
    let (mut run, _) = at_tools(ToolExecutionMode::ParallelStreaming, 3);
    for n in [0, 2] {
        let gate = Gate::Suspend(ticket(&id(n), ToolCallResumeMode::ReplayToolCall));
        run.apply(Fact::Gated { call: id(n), gate }).unwrap();
    }
    run.apply(Fact::Gated { call: id(1), gate: Gate::Proceed }).unwrap();
    let out = run
        .apply(Fact::Decided {
            call: id(2),
            suspension: asked(2),
            decision: decision("d", ResumeDecisionAction::Resume),
        })
        .unwrap();
    assert!(matches!(out.last(), Some(Directive::Gate { resume: Some(_), .. })));
    assert_eq!(run.status(), RunStatus::Running);
}

#[test]
fn answers_as_results_never_execute() {
    for payload in [Value::Null, json!(false), json!({"answer": "x"})] {
        let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 1);
        run.apply(Fact::Gated { call: id(0), gate: Gate::Proceed }).unwrap();
        let ask = ticket(&id(0), ToolCallResumeMode::UseDecisionAsToolResult);
        run.apply(Fact::Settled { call: id(0), outcome: Settled::Suspended(ask) }).unwrap();
        let answer = ToolCallResume { result: payload, ..decision("d", ResumeDecisionAction::Resume) };
        let out = run.apply(Fact::Decided { call: id(0), suspension: asked(0), decision: answer }).unwrap();
        assert!(out.contains(&Directive::Record { call: id(0), closing: Closing::Answered }));
        assert!(!out.iter().any(|d| matches!(d, Directive::Execute { .. } | Directive::Gate { .. })));
    }
}

#[test]
fn a_payload_that_is_not_arguments_is_an_error_result() {
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 1);
    let gate = Gate::Suspend(ticket(&id(0), ToolCallResumeMode::PassDecisionToTool));
    run.apply(Fact::Gated { call: id(0), gate }).unwrap();
    let bad = ToolCallResume { result: json!("rm"), ..decision("d", ResumeDecisionAction::Resume) };
    let out = run.apply(Fact::Decided { call: id(0), suspension: asked(0), decision: bad }).unwrap();
    assert!(out.contains(&Directive::Record { call: id(0), closing: Closing::BadPayload }));
}

#[test]
fn an_answer_to_a_superseded_question_is_refused() {
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 1);
    let gate = Gate::Suspend(ticket(&id(0), ToolCallResumeMode::ReplayToolCall));
    run.apply(Fact::Gated { call: id(0), gate }).unwrap();
    let decision = decision("d", ResumeDecisionAction::Resume);
    let stray = Fact::Decided { call: id(0), suspension: "perm_old".into(), decision };
    assert_eq!(run.apply(stray), Err(RefusedFact::OtherQuestion { call: id(0) }));
}

#[test]
fn a_block_ends_the_run_and_gives_every_call_a_result() {
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 3);
    let gate = Gate::Block { reason: "no".into() };
    let out = run.apply(Fact::Gated { call: id(0), gate }).unwrap();
    let records = out.iter().filter(|d| matches!(d, Directive::Record { .. })).count();
    assert_eq!(records, 3);
    let out = run.apply(done(Phase::RunEnd)).unwrap();
    assert_eq!(notices(&out), [Notice::RunFinish(TerminationReason::Blocked("no".into()))]);
}

#[test]
fn a_limit_interrupts_active_work_and_says_why() {
    let reason = || TerminationReason::stopped("timeout", "2.0 s spent; the limit is 2 s");
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 2);
    run.apply(Fact::Gated { call: id(0), gate: Gate::Proceed }).unwrap();
    let out = run.apply(Fact::LimitReached { reason: reason() }).unwrap();
    assert_eq!(out[0], Directive::AbortInFlight);
    let why = "2.0 s spent; the limit is 2 s".to_owned();
    assert!(out.contains(&Directive::Record { call: id(0), closing: Closing::Stopped { why } }));
    assert!(out.contains(&Directive::Record { call: id(1), closing: Closing::NotRun }));
    // Late limits change nothing.
    assert_eq!(run.apply(Fact::LimitReached { reason: reason() }).unwrap(), []);
    let out = run.apply(done(Phase::RunEnd)).unwrap();
    assert_eq!(notices(&out), [Notice::RunFinish(reason())]);
}

#[test]
fn cancelling_a_waiting_run_emits_only_its_end() {
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 1);
    let gate = Gate::Suspend(ticket(&id(0), ToolCallResumeMode::ReplayToolCall));
    run.apply(Fact::Gated { call: id(0), gate }).unwrap();
    let out = run.apply(Fact::CancelRequested { superseded: true }).unwrap();
    assert!(out.contains(&Directive::Record { call: id(0), closing: Closing::Superseded }));
    assert_eq!(notices(&out), []);
    let late = Fact::Decided {
        call: id(0),
        suspension: asked(0),
        decision: decision("d", ResumeDecisionAction::Resume),
    };
    assert!(run.apply(late).is_err());
    let out = run.apply(done(Phase::RunEnd)).unwrap();
    assert_eq!(notices(&out), [Notice::RunFinish(TerminationReason::Cancelled)]);
}

#[test]
fn recovery_keeps_questions_and_never_executes() {
    let (mut run, _) = at_tools(ToolExecutionMode::ParallelStreaming, 3);
    let gate = Gate::Suspend(ticket(&id(0), ToolCallResumeMode::ReplayToolCall));
    run.apply(Fact::Gated { call: id(0), gate }).unwrap();
    run.apply(Fact::Gated { call: id(1), gate: Gate::Proceed }).unwrap();
    let before = run.clone();
    assert_eq!(run.apply(Fact::Recovered { lost: Vec::new() }), Err(RefusedFact::Unaccounted(id(1))));
    assert_eq!(run, before);
    let ask = ticket(&id(1), ToolCallResumeMode::ReplayToolCall);
    let out = run.apply(Fact::Recovered { lost: vec![(id(1), Lost::Ask(ask))] }).unwrap();
    assert!(!out.iter().any(|d| matches!(d, Directive::Execute { .. })));
    assert_eq!(run.call(&id(0)).unwrap().status(), ToolCallStatus::Suspended);
    assert_eq!(run.call(&id(1)).unwrap().status(), ToolCallStatus::Suspended);
    assert!(matches!(out.last(), Some(Directive::Gate { call, resume: None }) if *call == id(2)));
}

#[test]
fn a_decision_followed_by_a_crash_is_spent_once() {
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 1);
    let gate = Gate::Suspend(ticket(&id(0), ToolCallResumeMode::ReplayToolCall));
    run.apply(Fact::Gated { call: id(0), gate }).unwrap();
    let yes = decision("d", ResumeDecisionAction::Resume);
    run.apply(Fact::Decided { call: id(0), suspension: asked(0), decision: yes }).unwrap();
    assert!(run.call(&id(0)).unwrap().spends().is_some());
    run.apply(Fact::Gated { call: id(0), gate: Gate::Proceed }).unwrap();
    assert!(run.call(&id(0)).unwrap().spends().is_some());
    run.apply(Fact::Recovered { lost: vec![(id(0), Lost::Again)] }).unwrap();
    assert!(run.call(&id(0)).unwrap().spends().is_none(), "the first execution spent it");
    run.apply(Fact::Gated { call: id(0), gate: Gate::Proceed }).unwrap();
    assert_eq!(run.call(&id(0)).unwrap().attempt, 2);
}

#[test]
fn a_call_that_never_started_keeps_its_decision() {
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 1);
    let gate = Gate::Suspend(ticket(&id(0), ToolCallResumeMode::ReplayToolCall));
    run.apply(Fact::Gated { call: id(0), gate }).unwrap();
    let yes = decision("d", ResumeDecisionAction::Resume);
    run.apply(Fact::Decided { call: id(0), suspension: asked(0), decision: yes }).unwrap();
    run.apply(Fact::Gated { call: id(0), gate: Gate::Proceed }).unwrap();
    run.apply(Fact::Recovered { lost: vec![(id(0), Lost::NotStarted)] }).unwrap();
    assert!(run.call(&id(0)).unwrap().spends().is_some(), "nothing spent it");
    run.apply(Fact::Gated { call: id(0), gate: Gate::Proceed }).unwrap();
    assert_eq!(run.call(&id(0)).unwrap().attempt, 1);
}

fn question() -> RunQuestion {
    RunQuestion {
        ticket: ticket(&id(1000), ToolCallResumeMode::UseDecisionAsToolResult),
        otherwise: TerminationReason::stopped("max_rounds", "enough"),
        action: "stop.read".into(),
        resumes: false,
        decision: None,
    }
}

/// A run whose model cannot be asked before a time.
fn postponed() -> (Run, Vec<Directive>) {
    let mut run = Run::new(ToolExecutionMode::Sequential);
    run.apply(Fact::Started).unwrap();
    for phase in [Phase::RunStart, Phase::StepStart, Phase::BeforeInference] {
        run.apply(done(phase)).unwrap();
    }
    let question = RunQuestion { resumes: true, ..question() };
    let out = run.apply(Fact::Postponed { question: Box::new(question) }).unwrap();
    (run, out)
}

#[test]
fn a_run_waits_for_a_time_and_asks_the_model_again() {
    let (mut run, out) = postponed();
    assert_eq!(out[0], Directive::Checkpoint { intent: None });
    assert_eq!(notices(&out).last(), Some(&Notice::RunFinish(TerminationReason::Suspended)));
    assert_eq!((run.status(), run.steps()), (RunStatus::Waiting, 0), "no answer came");
    run = serde_json::from_value(serde_json::to_value(&run).unwrap()).unwrap();
    assert_eq!(run.apply(Fact::Recovered { lost: Vec::new() }).unwrap(), []);
    let out = run.apply(Fact::Expired { call: id(1000), suspension: asked(1000) }).unwrap();
    assert!(out.contains(&Directive::Record { call: id(1000), closing: Closing::Due }), "{out:?}");
    let done = Notice::CallDone(id(1000), ToolCallStatus::Succeeded);
    assert_eq!(notices(&out), [Notice::RunStart, done, Notice::StepStart]);
    assert_eq!((out.last(), run.steps()), (Some(&Directive::Infer), 1));
    assert!(run.apply(Fact::Inferred { calls: Vec::new() }).is_ok());
}

#[test]
fn a_wait_can_be_cut_short_or_ended() {
    let (mut run, _) = postponed();
    run.apply(answer_run("d1", ResumeDecisionAction::Resume)).unwrap();
    let late = run.apply(Fact::Expired { call: id(1000), suspension: asked(1000) });
    assert!(matches!(late, Err(RefusedFact::AlreadyDecided { .. })), "{late:?}");
    let out = run.apply(Fact::Answered { stop: None }).unwrap();
    assert_eq!((out.last(), run.steps()), (Some(&Directive::Infer), 1));
    for (fact, ended) in [
        (answer_run("d", ResumeDecisionAction::Cancel), question().otherwise),
        (Fact::CancelRequested { superseded: false }, TerminationReason::Cancelled),
    ] {
        let (mut run, _) = postponed();
        run.apply(fact).unwrap();
        run.apply(done(Phase::RunEnd)).unwrap();
        assert_eq!(run.termination(), Some(&ended));
    }
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 1);
    assert!(
        run.apply(Fact::Postponed { question: Box::new(question()) }).is_err(),
        "only an inference waits"
    );
}

#[test]
fn an_answer_without_calls_may_lead_to_another_step() {
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 0);
    let again = run.apply(Fact::AnotherStep).unwrap();
    assert_eq!(again[0], Directive::Checkpoint { intent: None }, "what was asked of the model is kept");
    assert_eq!(notices(&again), [Notice::StepEnd, Notice::StepStart]);
    assert_eq!(again.last(), Some(&Directive::RunPhase(Phase::StepStart)));
    assert!(run.apply(Fact::AnotherStep).is_err(), "only at the end of a step");
    let mut given = Run::given(ToolExecutionMode::Sequential, Vec::new());
    given.apply(Fact::Started).unwrap();
    given.apply(done(Phase::RunStart)).unwrap();
    assert!(given.apply(Fact::AnotherStep).is_err(), "no model is asked");
}

/// A run that asks after its first step, or between an answer and its call.
fn asking(phase: Phase) -> (Run, Vec<Directive>) {
    // Without calls, an answer ends its step.
    let (mut run, _) = at_tools(ToolExecutionMode::Sequential, 0);
    if phase == Phase::AfterInference {
        run = Run::new(ToolExecutionMode::Sequential);
        run.apply(Fact::Started).unwrap();
        for phase in [Phase::RunStart, Phase::StepStart, Phase::BeforeInference] {
            run.apply(done(phase)).unwrap();
        }
        run.apply(Fact::Inferred { calls: vec![id(0)] }).unwrap();
    }
    let out = run.apply(Fact::PhaseAsked { phase, question: Box::new(question()) }).unwrap();
    (run, out)
}

fn answer_run(name: &str, action: ResumeDecisionAction) -> Fact {
    Fact::Decided { call: id(1000), suspension: asked(1000), decision: decision(name, action) }
}

#[test]
fn a_question_of_a_phase_waits_and_the_run_resumes_there() {
    let (mut run, out) = asking(Phase::AfterInference);
    assert_eq!(out[0], Directive::Checkpoint { intent: None });
    assert_eq!(
        notices(&out),
        [
            Notice::CallDone(id(1000), ToolCallStatus::Suspended),
            Notice::StepEnd,
            Notice::RunFinish(TerminationReason::Suspended)
        ]
    );
    assert_eq!(run.status(), RunStatus::Waiting);
    assert_eq!(run.open_tickets().count(), 1);
    // Serialised and read, as by another process.
    run = serde_json::from_value(serde_json::to_value(&run).unwrap()).unwrap();
    assert_eq!(run.apply(Fact::Recovered { lost: Vec::new() }).unwrap(), []);
    let out = run.apply(answer_run("d1", ResumeDecisionAction::Resume)).unwrap();
    assert_eq!(notices(&out), [Notice::RunStart, Notice::CallResumed(id(1000))]);
    assert_eq!(out.last(), Some(&Directive::Answer));
    assert_eq!(run.apply(answer_run("d1", ResumeDecisionAction::Resume)).unwrap(), []);
    let other = run.apply(answer_run("d2", ResumeDecisionAction::Resume));
    assert!(matches!(other, Err(RefusedFact::AlreadyDecided { .. })), "{other:?}");
    let out = run.apply(Fact::Answered { stop: None }).unwrap();
    assert_eq!(out[0], Directive::Record { call: id(1000), closing: Closing::Answered });
    assert_eq!(out[1], Directive::Checkpoint { intent: None });
    assert_eq!(notices(&out), [Notice::CallDone(id(1000), ToolCallStatus::Succeeded)]);
    assert_eq!(out.last(), Some(&Directive::Gate { call: id(0), resume: None }), "the call was kept");
    assert!(run.apply(Fact::Answered { stop: None }).is_err(), "once");
}

#[test]
fn a_denied_or_cancelled_question_ends_the_run_with_its_reason() {
    for (fact, closing) in [
        (answer_run("d", ResumeDecisionAction::Cancel), Closing::Declined { reason: None }),
        (Fact::Expired { call: id(1000), suspension: asked(1000) }, Closing::Expired),
        (Fact::CancelRequested { superseded: true }, Closing::Superseded),
    ] {
        let (mut run, _) = asking(Phase::StepEnd);
        let is_cancel = matches!(fact, Fact::CancelRequested { .. });
        let out = run.apply(fact).unwrap();
        assert!(out.contains(&Directive::Record { call: id(1000), closing }), "{out:?}");
        run.apply(done(Phase::RunEnd)).unwrap();
        let ended = if is_cancel { TerminationReason::Cancelled } else { question().otherwise };
        assert_eq!(run.termination(), Some(&ended));
        assert!(run.asking().is_none());
    }
}

/// A choice of the property test, mapped to a fact that may be invalid at the current stage.
#[derive(Clone, Debug)]
enum Choice {
    Forward,
    Gate(usize, u8),
    Settle(usize, u8),
    Decide(usize, u8, bool),
    Expire(usize),
    Cancel(bool),
    Fail,
    Recover(u8),
    Copied(usize),
    Again,
    Ask,
    AnswerRun(u8, bool),
    ExpireRun,
    Stray(u8),
}

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    let one = prop_oneof![
        8 => Just(Choice::Forward),
        8 => (0..4usize, 0..12u8).prop_map(|(c, k)| Choice::Gate(c, k)),
        8 => (0..4usize, 0..5u8).prop_map(|(c, k)| Choice::Settle(c, k)),
        8 => (0..4usize, 0..6u8, any::<bool>()).prop_map(|(c, d, y)| Choice::Decide(c, d, y)),
        1 => (0..4usize).prop_map(Choice::Expire),
        1 => (0..4usize).prop_map(Choice::Copied),
        1 => Just(Choice::Again),
        2 => Just(Choice::Ask),
        4 => (0..6u8, any::<bool>()).prop_map(|(d, y)| Choice::AnswerRun(d, y)),
        1 => Just(Choice::ExpireRun),
        1 => any::<bool>().prop_map(Choice::Cancel),
        1 => Just(Choice::Fail),
        2 => any::<u8>().prop_map(Choice::Recover),
        2 => any::<u8>().prop_map(Choice::Stray),
    ];
    prop::collection::vec(one, 1..120)
}

fn fact_of(choice: &Choice, run: &Run, calls: usize) -> Fact {
    match choice {
        Choice::Forward => match run.stage() {
            Stage::Created => Fact::Started,
            Stage::Phase(phase) => done(*phase),
            Stage::Inferring => {
                Fact::Inferred { calls: (0..calls).map(|n| id(n + 10 * run.steps() as usize)).collect() }
            }
            Stage::Asking(_) => Fact::Answered { stop: None },
            Stage::Tools | Stage::Ending(_) | Stage::Done(_) => done(Phase::RunEnd),
        },
        Choice::Gate(n, kind) => {
            let call = id(n + 10 * run.steps() as usize);
            let gate = match kind {
                0 => Gate::Block { reason: "blocked".into() },
                1..4 => Gate::Suspend(ticket(&call, ToolCallResumeMode::ReplayToolCall)),
                4 => Gate::Suspend(ticket(&call, ToolCallResumeMode::UseDecisionAsToolResult)),
                5 => Gate::SetResult { succeeded: false },
                _ => Gate::Proceed,
            };
            Fact::Gated { call, gate }
        }
        Choice::Settle(n, kind) => {
            let call = id(n + 10 * run.steps() as usize);
            let outcome = match kind {
                0 => Settled::Failed,
                1 => Settled::Suspended(ticket(&call, ToolCallResumeMode::PassDecisionToTool)),
                _ => Settled::Succeeded,
            };
            Fact::Settled { call, outcome }
        }
        Choice::Decide(n, d, yes) => Fact::Decided {
            call: id(n + 10 * run.steps() as usize),
            suspension: asked(n + 10 * run.steps() as usize),
            decision: decision(
                &format!("d{d}"),
                if *yes { ResumeDecisionAction::Resume } else { ResumeDecisionAction::Cancel },
            ),
        },
        Choice::Expire(n) => {
            let n = n + 10 * run.steps() as usize;
            Fact::Expired { call: id(n), suspension: asked(n) }
        }
        Choice::Again => Fact::AnotherStep,
        Choice::Ask => {
            let phase = if let Stage::Phase(phase) = run.stage() { *phase } else { Phase::StepEnd };
            Fact::PhaseAsked { phase, question: Box::new(question()) }
        }
        Choice::AnswerRun(d, yes) => {
            let action = if *yes { ResumeDecisionAction::Resume } else { ResumeDecisionAction::Cancel };
            Fact::Decided {
                call: id(1000),
                suspension: asked(1000),
                decision: decision(&format!("d{d}"), action),
            }
        }
        Choice::ExpireRun => Fact::Expired { call: id(1000), suspension: asked(1000) },
        Choice::Copied(n) => Fact::MayHaveStarted { call: id(n + 10 * run.steps() as usize) },
        Choice::Cancel(superseded) => Fact::CancelRequested { superseded: *superseded },
        Choice::Fail => Fact::Failed { message: "failed".into() },
        Choice::Recover(kind) => Fact::Recovered {
            lost: run
                .calls()
                .iter()
                .filter(|call| call.status() == ToolCallStatus::Running)
                .map(|call| {
                    let lost = match kind % 3 {
                        0 if kind % 2 == 0 => Lost::Again,
                        0 => Lost::NotStarted,
                        1 => Lost::Ended { succeeded: kind % 2 == 0 },
                        _ => Lost::Ask(ticket(&call.id, ToolCallResumeMode::ReplayToolCall)),
                    };
                    (call.id.clone(), lost)
                })
                .collect(),
        },
        Choice::Stray(kind) => match kind % 4 {
            0 => Fact::Started,
            1 => done(Phase::ALL[usize::from(*kind) % 8]),
            2 => Fact::Inferred { calls: vec![id(1), id(1)] },
            _ => Fact::Gated { call: id(99), gate: Gate::Proceed },
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    #[test]
    fn invariants_hold_for_any_sequence(
        choices in choices(),
        calls in 0..4usize,
        mode in prop_oneof![
            Just(ToolExecutionMode::Sequential),
            Just(ToolExecutionMode::ParallelBatchApproval),
            Just(ToolExecutionMode::ParallelStreaming),
        ],
    ) {
        let mut run = Run::new(mode);
        let mut results: Vec<CallId> = Vec::new();
        let mut executed: Vec<(CallId, u32)> = Vec::new();
        let mut announced = false;
        for choice in &choices {
            let fact = fact_of(choice, &run, calls);
            let before = run.clone();
            let written = serde_json::to_value(&run).unwrap();
            let read: Run = serde_json::from_value(written).unwrap();
            prop_assert_eq!(&read, &run, "writing and reading is the identity");

            let Ok(out) = run.apply(fact.clone()) else {
                    prop_assert_eq!(&run, &before, "a refused fact changes nothing: {:?}", fact);
                    continue;
            };
            if let Stage::Done(_) = before.stage() {
                prop_assert_eq!(&run, &before, "done is final");
                prop_assert!(out.is_empty());
            }
            if matches!(fact, Fact::Recovered { .. }) {
                announced = false;
            }
            // Only legal transitions.
            for call in run.calls() {
                if let Some(old) = before.call(&call.id) {
                    let (from, to) = (old.status(), call.status());
                    let recovered = matches!(fact, Fact::Recovered { .. });
                    let via_resuming = from == ToolCallStatus::Suspended
                        && ToolCallStatus::Resuming.can_become(to);
                    prop_assert!(
                        from == to || from.can_become(to) || via_resuming || recovered,
                        "{:?} -> {:?} by {:?}", from, to, fact
                    );
                }
            }
            // Each call has one result: from its tool, the gate, or the state machine.
            match &fact {
                Fact::Settled { call, outcome: Settled::Succeeded | Settled::Failed }
                | Fact::Gated { call, gate: Gate::SetResult { .. } }
                    if before.call(call).is_some_and(|c| !c.is_closed())
                        && run.call(call).is_some_and(Call::is_closed)
                        && !out.iter().any(|d| matches!(d, Directive::Record { call: c, .. } if c == call)) =>
                {
                    results.push(call.clone());
                }
                Fact::Recovered { lost } => {
                    // No intent was written, so the announced execution never started.
                    for (id, _) in lost.iter().filter(|(_, l)| *l == Lost::NotStarted) {
                        let attempt = before.call(id).unwrap().attempt;
                        executed.retain(|known| *known != (id.clone(), attempt));
                    }
                    results.extend(lost.iter().filter(|(_, l)| matches!(l, Lost::Ended { .. })).map(|(c, _)| c.clone()));
                }
                _ => {}
            }
            for (place, directive) in out.iter().enumerate() {
                match directive {
                    Directive::Record { call, .. } => results.push(call.clone()),
                    Directive::Execute { call } => {
                        let intent = Directive::Checkpoint { intent: Some(call.clone()) };
                        prop_assert!(out[..place].contains(&intent), "no execution without its intent");
                        let attempt = run.call(call).unwrap().attempt;
                        prop_assert!(!executed.contains(&(call.clone(), attempt)));
                        executed.push((call.clone(), attempt));
                    }
                    Directive::Emit(Notice::RunStart) => {
                        prop_assert!(!announced, "RunStart twice");
                        announced = true;
                    }
                    Directive::Emit(Notice::RunFinish(_)) => announced = false,
                    _ => {}
                }
            }
            if mode == ToolExecutionMode::Sequential {
                prop_assert!(run.calls().iter().filter(|c| c.is_in_flight()).count() <= 1);
            }
            if run.status() == RunStatus::Waiting {
                prop_assert!(!announced, "a waiting run has reported that it waits");
            }
            // A finished step: every call has exactly one result.
            let stepping = matches!(run.stage(), Stage::Phase(Phase::StepEnd | Phase::StepStart) | Stage::Ending(_));
            if stepping {
                for call in before.calls() {
                    let n = results.iter().filter(|r| **r == call.id).count();
                    prop_assert_eq!(n, 1, "call {} has {} results", call.id, n);
                }
            }
        }
    }
}
