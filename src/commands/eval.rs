//! `aye eval`: cases that an agent should pass, each in copies of its own, and how often it does.

mod case;
mod report;
mod run;

use std::path::{Path, PathBuf};

use clap::Args;
use futures::StreamExt as _;

use case::EvalCase;
use report::EvalReport;
use run::{EvalVariant, EvalWork};

use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::put_stderr;

/// `aye eval`
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  aye eval --case edit --case search\n  aye eval evals --runs 5 --jobs 4 --json\n  aye \
                        eval --compare model=ollama/qwen3 model=openai/gpt-5\n\nExit status: 0 if each run passed, 1 if \
                        one did not."
)]
pub struct EvalArgs {
    /// A folder of cases, each a folder with a case.toml; without it, the cases that come with aye
    pub dir: Option<PathBuf>,
    /// Only this case
    #[arg(long = "case", value_name = "NAME")]
    pub cases: Vec<String>,
    /// How often each case runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// How many run at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub jobs: u32,
    /// Compare variants: model=NAME, agent=NAME, prompt=FILE, rules=FILE, several of them with commas
    #[arg(long, value_names = ["A", "B"], num_args = 2)]
    pub compare: Vec<String>,
    /// Keep the folders of all runs in this one
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// List the cases and run nothing
    #[arg(long)]
    pub list: bool,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) async fn run(args: EvalArgs, foundation: &Foundation) -> Result<u8, Failure> {
    let dir = args.dir.as_ref().map(|dir| foundation.workspace.cwd.join(dir));
    let all = match &dir {
        Some(dir) => case::read_all(dir)?,
        None => case::bundled()?,
    };
    let cases = chosen(all, &args.cases)?;
    if args.list {
        return report::list(&cases, args.json).map(|()| 0);
    }
    let variants = match args.compare.as_slice() {
        [] => vec![EvalVariant::default()],
        given => {
            let parse = |text: &String| EvalVariant::parse(text, &foundation.workspace.cwd);
            given.iter().map(parse).collect::<Result<Vec<_>, _>>()?
        }
    };
    let place = Place::new(args.keep.as_deref(), &foundation.workspace.cwd)?;
    let mut work = Vec::new();
    for variant in &variants {
        for case in &cases {
            for nth in 1..=args.runs {
                let folder = place.path().join(format!("{}-{}-{nth}", case.name, variant.folder()));
                work.push(EvalWork { case, variant, nth, folder });
            }
        }
    }
    let jobs = usize::try_from(args.jobs).unwrap_or(1);
    let runs = futures::stream::iter(work.iter().map(|work| async move {
        let ended = work.run(foundation).await;
        if !args.json {
            report::progress(work, &ended);
        }
        ended
    }));
    let runs: Vec<_> = runs.buffered(jobs).collect().await;
    let report = EvalReport::of(&cases, &variants, &work, &runs);
    report.put(args.json)?;
    if let Place::Kept(folder) = &place {
        put_stderr(&format!("the folders of the runs are in {}", folder.display()));
    }
    Ok(u8::from(!report.all_passed()))
}

fn chosen(all: Vec<EvalCase>, names: &[String]) -> Result<Vec<EvalCase>, Failure> {
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|case| case.name != **name)) {
        let known: Vec<&str> = all.iter().map(|case| case.name.as_str()).collect();
        return Err(Failure::usage(format!(
            "unknown case `{unknown}`; expected one of {}",
            known.join(", ")
        )));
    }
    Ok(all.into_iter().filter(|case| names.is_empty() || names.contains(&case.name)).collect())
}

/// Where the copies are.
enum Place {
    Temporary(tempfile::TempDir),
    Kept(PathBuf),
}

impl Place {
    fn new(keep: Option<&Path>, cwd: &Path) -> Result<Self, Failure> {
        let Some(keep) = keep else {
            let made = tempfile::Builder::new().prefix("aye-eval-").tempdir();
            return made
                .map(Self::Temporary)
                .map_err(|error| Failure::failed(format!("no folder for copies: {error}")));
        };
        let keep = cwd.join(keep);
        let fail = |error: std::io::Error| Failure::failed(format!("--keep {}: {error}", keep.display()));
        std::fs::create_dir_all(&keep).map_err(fail)?;
        if std::fs::read_dir(&keep).map_err(fail)?.next().is_some() {
            return Err(Failure::usage(format!(
                "--keep {}: the folder is not empty; name a new one",
                keep.display()
            )));
        }
        Ok(Self::Kept(keep.canonicalize().map_err(fail)?))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(dir) => dir.path(),
            Self::Kept(dir) => dir,
        }
    }
}
