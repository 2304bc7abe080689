//! How often a tool parses the arguments of a call.

use super::*;
use aye_core::contract::tool::{FilePreview, ParsedCall};

/// Counts how often it parses. It changes files, as far as its class says.
struct Parses {
    name: &'static str,
    count: Arc<AtomicU32>,
}

impl Parses {
    fn parse(&self, args: &Value) -> Result<String, ToolError> {
        self.count.fetch_add(1, Ordering::SeqCst);
        let id = args["id"].as_str().ok_or_else(|| ToolError::InvalidArguments("`id` is missing".into()))?;
        Ok(id.to_owned())
    }

    fn described(&self) -> ToolDescriptor {
        ToolDescriptor::new(self.name, self.name, "counts").with_class(ToolClass::Verifiable)
    }
}

fn ran(id: &str) -> ToolOutput {
    ToolResult::text("parses", format!("ran {id}")).into()
}

/// One that parses in advance.
struct Prepares(Parses);

struct Parsed(String);

#[async_trait]
impl ParsedCall for Parsed {
    async fn execute(&self, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ran(&self.0))
    }
}

#[async_trait]
impl Tool for Prepares {
    fn descriptor(&self) -> ToolDescriptor {
        self.0.described()
    }

    fn prepare(&self, args: &Value) -> Result<Option<Arc<dyn ParsedCall>>, ToolError> {
        Ok(Some(Arc::new(Parsed(self.0.parse(args)?))))
    }

    async fn execute(&self, args: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ran(&self.0.parse(&args)?))
    }
}

/// One that is asked with the arguments each time.
struct ParsesEach(Parses);

#[async_trait]
impl Tool for ParsesEach {
    fn descriptor(&self) -> ToolDescriptor {
        self.0.described()
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        self.0.parse(args).map(drop)
    }

    async fn preview(&self, args: &Value, _: &ToolCallContext) -> Result<Vec<FilePreview>, ToolError> {
        self.0.parse(args).map(|_| Vec::new())
    }

    fn touches(&self, args: &Value, _: &ToolCallContext) -> Vec<PathBuf> {
        let _ = self.0.parse(args);
        Vec::new()
    }

    async fn execute(&self, args: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ran(&self.0.parse(&args)?))
    }
}

/// Returns how often a tool parsed the arguments of one call, and what the model read. Tools named `ask…` are approved.
async fn parses(
    name: &'static str,
    tool: impl FnOnce(Parses) -> Arc<dyn Tool>,
    edited: Option<Value>,
) -> (u32, String) {
    let count = Arc::new(AtomicU32::new(0));
    let house = House::new();
    let script = Script::of([calls(&[("c1", name)])]);
    let tool = tool(Parses { name, count: Arc::clone(&count) });
    let runtime = house.builder(&script).with_tool(name, tool).build().unwrap();
    send(&runtime, "go").await;
    if name.starts_with("ask") {
        let yes = ToolCallResume { arguments: edited, ..answer(ResumeDecisionAction::Resume) };
        runtime.decide(&"perm_c1".into(), yes, actor()).await.unwrap();
        wake(&runtime, UnknownPolicy::Report).await;
    }
    (count.load(Ordering::SeqCst), script.result_of("c1"))
}

fn prepares(parses: Parses) -> Arc<dyn Tool> {
    Arc::new(Prepares(parses))
}

fn parses_each(parses: Parses) -> Arc<dyn Tool> {
    Arc::new(ParsesEach(parses))
}

#[tokio::test]
async fn arguments_are_parsed_once_for_each_judgement() {
    assert_eq!(parses("free_once", prepares, None).await, (1, "ran c1".into()));
    assert_eq!(parses("ask_once", prepares, None).await, (2, "ran c1".into()), "before and after the answer");
    // What a tool costs that only has the other methods.
    assert_eq!(parses("free_each", parses_each, None).await, (3, "ran c1".into()));
    assert_eq!(parses("ask_each", parses_each, None).await, (8, "ran c1".into()));
}

#[tokio::test]
async fn edited_arguments_are_parsed_again_and_run() {
    let (count, text) = parses("ask_once", prepares, Some(json!({"id": "other"}))).await;
    assert!(text.ends_with("ran other"), "{text}");
    assert_eq!(count, 3, "for the question, for the answer, and after it");
}
