//! Sandbox refusals on the card of a retry, and the grants that it proposes.

use super::plugin::{World, grant, world, yes};
use crate::permission::editing::{GrantRefusal, check_grant_in};
use crate::permission::enforce::Enforcement;
use crate::permission::opening::SandboxGrant;
use crate::permission::rules::RuleSet;
use crate::permission::{CallRequest, PreparedCall};
use aye_core::contract::ids::SuspensionId;
use aye_core::contract::judgement::{Profile, SandboxOpening};
use aye_core::contract::record::{GrantRecord, GrantScope};
use aye_core::contract::suspension::SuspendTicket;
use aye_core::contract::tool_intercept::ToolInterceptPayload;
use aye_core::phase::ToolCallInfo;
use aye_sandbox::SandboxRefusal;
use serde_json::{Value, json};
use std::path::Path;

fn retry(command: &str) -> ToolCallInfo {
    let mut info = World::info(command);
    info.call.arguments = json!({"command": command, "outside": true, "reason": "the package goes there"});
    info
}

async fn asked(world: &World, info: ToolCallInfo) -> SuspendTicket {
    match world.gate(info).await {
        Some(ToolInterceptPayload::Suspend(ticket)) => ticket,
        other => panic!("{other:?}"),
    }
}

fn patterns(ticket: &SuspendTicket) -> Vec<String> {
    let list = ticket.suspension.parameters["proposals"].as_array().expect("a list");
    list.iter().map(|proposal| proposal["pattern"].as_str().expect("a string").to_owned()).collect()
}

#[tokio::test]
async fn a_retry_shows_the_refusal_and_proposes_the_narrowest_scope_first() {
    let world = world(&[], &[], &[]);
    world.permissions.set_enforcement(Enforcement::by_kernel(|_| None, false));
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().canonicalize().unwrap().join("builds");
    std::fs::create_dir(&folder).unwrap();
    let refused = [SandboxRefusal::Path(folder.join("x/y"))];
    world.refused(World::info("pack --to x"), &refused).await;
    let ticket = asked(&world, retry("pack --to x")).await;
    let why = ticket.suspension.parameters["why"].as_str().unwrap();
    assert_eq!(
        why,
        format!(
            "it wants to run outside the sandbox: the package goes there; the sandbox refused {}/x/y",
            folder.display()
        )
    );
    assert_eq!(ticket.suspension.parameters["profile"], "outside");
    let opening = SandboxGrant::Writable(folder.clone()).pattern().to_string();
    assert_eq!(patterns(&ticket), [opening.as_str(), "Bash(command = \"pack --to x\")", "Bash(pack *)"]);
    // A changed command of the same program, and one of another program.
    let why = |ticket: SuspendTicket| ticket.suspension.parameters["why"].to_string();
    assert!(why(asked(&world, retry("pack --to y")).await).contains("builds/x/y"));
    assert!(!why(asked(&world, retry("ship --to y")).await).contains("refused"));
    // The folder's grant answers the question: the call runs in the sandbox, which is open there.
    let answered = || retry("pack --to x").with_decision(yes(), Some(ticket.clone()));
    let report = world.report(answered()).await;
    let judgement = report.judgement.expect("a judgement");
    assert_eq!((judgement.profile, judgement.opened), (Some(Profile::Outside), SandboxOpening::default()));
    let id = SuspensionId::from("perm_c1");
    let given =
        GrantRecord { pattern: opening, suspension_id: Some(id), ..grant("g", GrantScope::Everywhere, None) };
    world.permissions.add_grant(given).unwrap();
    let report = world.report(answered()).await;
    assert_eq!(report.intercept, None);
    let judgement = report.judgement.expect("a judgement");
    assert_eq!(
        (judgement.profile, judgement.opened.writable),
        (Some(Profile::Workspace), vec![folder.clone()])
    );
    // It allows nothing to run without a question.
    assert!(matches!(world.gate(World::info("pack")).await, Some(ToolInterceptPayload::Suspend(_))));
    let other = world.report(World::info("pack").with_decision(yes(), Some(world.asks("pack").await))).await;
    assert_eq!(other.judgement.expect("a judgement").opened.writable, [folder]);
}

#[tokio::test]
async fn a_grant_to_run_outside_covers_only_that_command() {
    let world = world(&["Bash(cargo *)"], &[], &["Bash(cargo publish *)"]);
    world.permissions.set_enforcement(Enforcement::by_kernel(|_| None, false));
    let given = |id: &str, pattern: &str| GrantRecord {
        pattern: pattern.into(),
        sandbox: Some(Profile::Outside),
        ..grant(id, GrantScope::Everywhere, None)
    };
    asked(&world, retry("cargo fetch")).await;
    world.permissions.add_grant(given("a", "Bash(cargo fetch)")).unwrap();
    world.permissions.add_grant(given("b", "Bash(cargo publish)")).unwrap();
    let report = world.report(retry("cargo fetch")).await;
    let judgement = report.judgement.expect("a judgement");
    assert_eq!((report.intercept, judgement.profile), (None, Some(Profile::Outside)));
    assert_eq!(judgement.grant.as_deref(), Some("a"));
    asked(&world, retry("cargo fetch --all")).await;
    let denied = world.gate(retry("cargo publish")).await;
    assert!(matches!(denied, Some(ToolInterceptPayload::SetResult(_))), "{denied:?}");
}

fn checked(args: &Value, pattern: &str, sandbox: Option<Profile>) -> Result<(), GrantRefusal> {
    let place = Path::new("/workspace");
    let question =
        CallRequest { tool: "Bash", args, cwd: place, workspace: place, home: None, primary: None };
    check_grant_in(&PreparedCall::of(&question)?, &RuleSet::new(), pattern, sandbox).map(drop)
}

#[test]
fn a_sandbox_grant_does_not_cover_outside() {
    let out = json!({"command": "git fetch", "outside": true});
    assert!(checked(&out, "Bash(git fetch)", None).is_err());
    assert_eq!(checked(&out, "Bash(git fetch)", Some(Profile::Outside)), Ok(()));
    assert!(checked(&out, "Bash(git *)", Some(Profile::Outside)).is_err(), "too broad");
}

#[tokio::test]
async fn a_refused_domain_is_proposed() {
    let world = world(&[], &[], &[]);
    world.permissions.set_enforcement(Enforcement::by_kernel(|_| None, false));
    let refused = [SandboxRefusal::Domain("docs.example.org".into()), SandboxRefusal::Domain("*".into())];
    world.refused(World::info("load x"), &refused).await;
    let ticket = asked(&world, retry("load x")).await;
    let opening = SandboxGrant::Domain("docs.example.org".parse().unwrap()).pattern().to_string();
    assert_eq!(opening, "Sandbox(domain = \"docs.example.org\")");
    assert_eq!(patterns(&ticket), [opening.as_str(), "Bash(command = \"load x\")", "Bash(load *)"]);
    let id = SuspensionId::from("perm_c1");
    let given =
        GrantRecord { pattern: opening, suspension_id: Some(id), ..grant("g", GrantScope::Everywhere, None) };
    world.permissions.add_grant(given).unwrap();
    let report = world.report(retry("load x").with_decision(yes(), Some(ticket))).await;
    let judgement = report.judgement.expect("a judgement");
    assert_eq!(judgement.profile, Some(Profile::Workspace));
    assert_eq!(judgement.opened.domains, ["docs.example.org"]);
}

#[test]
fn only_the_users_own_folders_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().canonicalize().unwrap();
    for folder in ["builds", ".config/x", "a"] {
        std::fs::create_dir_all(home.join(folder)).unwrap();
    }
    std::os::unix::fs::symlink(&home, home.join("a/link")).unwrap();
    let check = |path: &Path| SandboxGrant::Writable(path.to_owned()).check(Some(&home));
    assert_eq!(check(&home.join("builds")), Ok(()));
    for path in [&home, &home.join(".config/x"), &home.join("a/link"), &home.join("none"), &home.join("a/..")]
    {
        assert!(check(path).is_err(), "{}", path.display());
    }
    for path in ["/", "/etc", "/usr/share", "/tmp", "builds", "/var/lib"] {
        assert!(check(Path::new(path)).is_err(), "{path}");
    }
    let grant = SandboxGrant::Writable("/srv/a \"b\"".into());
    assert_eq!(SandboxGrant::of(&grant.pattern().to_string()), Some(grant));
    for pattern in [
        "Bash(ls)",
        "Sandbox",
        "Sandbox(writable ~ \"/srv/*\")",
        "Sandbox(writable != \"/srv\")",
        "Sandbox(domain = \"*\")",
    ] {
        assert_eq!(SandboxGrant::of(pattern), None, "{pattern}");
    }
}
