//! `aye serve`: conversations and questions over HTTP.

mod config;
mod inside;
mod program;
mod tokens;

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::shared::JsonFlag;
use crate::cli::start::StartFlags;
use crate::commands::print;
use crate::failure::{AppError, Failure};
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::put_stderr;
use crate::server::{Access, Address, Hub, Names, ServerHost as _, Tls, bind, serve_mcp};
use crate::terminal::background::for_other_folders;

/// `aye serve ...`
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// The subcommand; without one, serve.
    #[command(subcommand)]
    pub command: Option<ServeCommand>,
    /// Address and port, or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    pub bind: String,
    /// File with the first token; without it, one is created beside the store
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Serve a public address without TLS: anyone who sees the traffic can use its token
    #[arg(long)]
    pub insecure_bind: bool,
}

/// `aye serve token`
#[derive(Clone, Debug, Subcommand)]
pub enum ServeCommand {
    /// Add, list and revoke tokens
    #[command(subcommand)]
    Token(TokenCommand),
}

/// `aye serve token ...`
#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it once
    Add {
        /// Name of the token
        name: String,
        /// Scopes of the token
        #[arg(long, value_enum, value_delimiter = ',', default_values = ["read", "chat", "decide"])]
        scope: Vec<ScopeArg>,
    },
    /// List tokens
    List(JsonFlag),
    /// Revoke a token; it is refused at once
    Revoke {
        /// Its name
        name: String,
    },
}

/// A scope of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// See conversations, questions and the audit
    Read,
    /// Send messages, stop runs, start conversations
    Chat,
    /// Answer questions
    Decide,
    /// Delete conversations
    Admin,
}

pub(crate) use inside::ServerInside;

use program::Served;

use tokens::TokenFiles;

/// The prefix of `--bind` for a socket.
const UNIX: &str = "unix:";

/// The callback for problems outside a request.
type FailureReporter = Arc<dyn Fn(String) + Send + Sync>;

/// `aye serve`.
pub(crate) async fn run(args: ServeArgs, foundation: Foundation, cli: &StartFlags) -> Result<u8, Failure> {
    if let Some(ServeCommand::Token(command)) = args.command {
        return tokens::run(command, &TokenFiles::of(&foundation.paths, args.token_file));
    }
    print::notice_untrusted(&foundation);
    let _log = crate::logging::to_file(&foundation.paths.log_dir());
    let signals = signals();
    let mut server = RunningServer::start(args, foundation, cli, Arc::new(|text| put_stderr(&text))).await?;
    for warning in &server.warnings {
        put_stderr(&format!("aye: {warning}"));
    }
    // Signals are handled before the server is announced: it may be stopped from then on.
    let status = tokio::spawn(stopped(signals, server.closing.clone()));
    let room = std::io::stderr().is_terminal().then_some((usize::MAX, usize::MAX));
    put_stderr(&lined_up(&server.sign_in_text(room)));
    server.ended().await.map_err(Failure::failed)?;
    status.await.map_err(Failure::failed)
}

/// A server in this process.
struct RunningServer {
    place: String,
    url: Option<String>,
    folders: Vec<String>,
    token_file: String,
    is_read_aloud: bool,
    /// The link leads to this machine, whatever machine opens it.
    is_here_only: bool,
    warnings: Vec<String>,
    served: Arc<Served>,
    closing: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl RunningServer {
    /// Starts to serve; requests are accepted when this returns.
    async fn start(
        args: ServeArgs,
        foundation: Foundation,
        cli: &StartFlags,
        report_failure: FailureReporter,
    ) -> Result<Self, Failure> {
        if foundation.is_ephemeral {
            return Err(Failure::usage(
                "aye serve needs a store: questions must outlive it; leave out --ephemeral",
            ));
        }
        let files = TokenFiles::of(&foundation.paths, args.token_file.clone());
        let address = address(&args.bind)?;
        let tls = match (&args.tls_cert, &args.tls_key) {
            (Some(cert), Some(key)) => Some(Tls::from_files(cert, key).map_err(Failure::usage)?),
            _ => None,
        };
        if let Address::Tcp(address) = &address
            && !address.ip().is_loopback()
            && tls.is_none()
            && !args.insecure_bind
        {
            return Err(Failure::usage(format!(
                "{address} can be reached from other machines, and without TLS anyone who sees the traffic can use \
                 its token; pass --tls-cert and --tls-key, bind to 127.0.0.1 behind a proxy with TLS, or pass \
                 --insecure-bind"
            )));
        }
        let folders = folders(&foundation)?;
        let token_file = files.ensure(args.token_file.is_some())?.to_path_buf();
        let with_tls = tls.is_some();
        let listening = bind(&address, tls).await.map_err(Failure::failed)?;
        let names = names(&foundation, &listening.address);
        let url = own_url(&foundation, &listening.address, with_tls);
        let paths = &foundation.paths;
        let place = match &listening.address {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => paths.display(path),
        };
        let token_file = paths.display(&token_file);
        let key_warning = args.tls_key.filter(|key| is_open_to_others(key)).map(|key| paths.display(&key));
        let shown_folders = folders.iter().map(|folder| paths.display(folder)).collect();
        let is_read_aloud = foundation.loaded.settings.tui.screen_reader;
        let is_here_only = foundation.loaded.settings.serve.public_url.is_none()
            && matches!(&listening.address, Address::Tcp(at) if at.ip().is_loopback() || at.ip().is_unspecified());
        let store = foundation.open_store()?;
        let here = Arc::new(AppContext::build(foundation, cli).await?);
        let mut warnings = here.warnings.clone();
        warnings.extend(key_warning.map(|key| {
            format!("others on this machine can read the private key {key}; run chmod 600 {key}")
        }));
        let others = for_other_folders(cli);
        let access = Access::new(Box::new(files));
        let served = Arc::new(Served::new(here, others, store, access, folders, report_failure, url.clone()));
        let closing = CancellationToken::new();
        let hub = Hub::start(Arc::<Served>::clone(&served), url.clone(), closing.clone())
            .map_err(|_| Failure::failed("cannot follow changes of the store; see the log"))?;
        let task = tokio::spawn(listening.serve(hub, names));
        Ok(Self {
            place,
            url,
            folders: shown_folders,
            token_file,
            is_read_aloud,
            is_here_only,
            warnings,
            served,
            closing,
            task,
        })
    }

    /// Returns where the server serves, and how to sign in: with a new code each time. A tab separates a label from its
    /// value.
    fn sign_in_text(&self, room: Option<(usize, usize)>) -> String {
        // Writing into a string cannot fail.
        let mut text = format!("serving on\t{}\n", self.place);
        for folder in &self.folders {
            let _ = writeln!(text, "folder\t{folder}");
        }
        let _ = write!(text, "token\t{}", self.token_file);
        if let Some(url) = &self.url {
            let link = format!("{url}/#code={}", self.served.access().new_code());
            let _ = write!(text, "\nsign in\t{link}\n\tworks once, within five minutes");
            if self.is_here_only {
                text.push_str("\n\ton this machine; for other devices, set [serve] public_url");
            }
            text.push_str(&self.picture_of(&link, room));
        }
        text
    }

    /// Returns the link that opens one question, with a new code each time.
    fn question_link_text(&self, question: &str, room: Option<(usize, usize)>) -> Result<String, AppError> {
        let Some(url) = &self.url else {
            return Err("a server on a socket has no URL to open; set [serve] public_url".into());
        };
        // In the fragment of a URL, `&` ends the id.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        let id: String = question
            .bytes()
            .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
            .collect();
        let link = format!("{url}/#/card/{id}&code={}", self.served.access().new_code());
        let where_to = if self.is_here_only {
            "\nIt works on this machine only; for a phone, set [serve] public_url to an address that it reaches."
        } else {
            ""
        };
        let picture = self.picture_of(&link, room);
        Ok(format!("{link}\nOpens this question and signs in, once, within five minutes.{where_to}{picture}"))
    }

    /// The QR code of a link on lines of its own where this many columns and rows show all of it, else what it needs;
    /// nothing where nobody sees it.
    fn picture_of(&self, link: &str, room: Option<(usize, usize)>) -> String {
        // A screen damages no part of it, so the level with the fewest rows does.
        let code = qrcode::QrCode::with_error_correction_level(link, qrcode::EcLevel::L);
        let (Some((columns, rows)), Ok(code), false) = (room, code, self.is_read_aloud) else {
            return String::new();
        };
        // Here its margin is the ground around it; a page of the terminal gives it one.
        let picture = code.render::<qrcode::render::unicode::Dense1x2>().quiet_zone(false).build();
        let wide = picture.lines().map(|line| line.chars().count()).max().unwrap_or(0) + 2 * MARGIN;
        let high = picture.lines().count() + 3;
        if wide <= columns && high <= rows {
            let rows = picture.lines().map(|line| format!("{:MARGIN$}{line}\n", ""));
            format!("\n\n{}", rows.collect::<String>())
        } else {
            format!("\nA QR code of this link needs {wide} columns and {high} rows, in a larger window.")
        }
    }

    /// Waits for the end of its requests and runs, after something cancelled `closing`.
    async fn ended(&mut self) -> std::io::Result<()> {
        let done = (&mut self.task).await;
        self.closing.cancel();
        self.served.leave().await;
        done.map_err(std::io::Error::other)?
    }
}

/// Columns before a QR code.
const MARGIN: usize = 2;

/// The labels of [`RunningServer::sign_in_text`] in one column.
fn lined_up(text: &str) -> String {
    let line = |line: &str| match line.split_once('\t') {
        Some((label, value)) => format!("{label:<10} {value}"),
        None => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// `aye mcp serve`: the same conversations as tools of an MCP server.
pub(crate) async fn mcp(foundation: Foundation, cli: &StartFlags) -> Result<u8, Failure> {
    print::notice_untrusted(&foundation);
    let _log = crate::logging::to_file(&foundation.paths.log_dir());
    let folders = folders(&foundation)?;
    let access = Access::new(Box::new(TokenFiles::of(&foundation.paths, None)));
    let store = foundation.open_store()?;
    let here = Arc::new(AppContext::build(foundation, cli).await?);
    let served = Arc::new(Served::new(
        here,
        for_other_folders(cli),
        store,
        access,
        folders,
        Arc::new(|text: String| put_stderr(&text)),
        None,
    ));
    let closing = CancellationToken::new();
    let hub = Hub::start(Arc::<Served>::clone(&served), None, closing.clone())
        .map_err(|_| Failure::failed("cannot follow changes of the store; see the log"))?;
    let status = tokio::spawn(stopped(signals(), closing.clone()));
    let done = serve_mcp(Arc::clone(&hub)).await;
    closing.cancel();
    hub.close().await;
    served.leave().await;
    done.map_err(Failure::failed)?;
    status.await.map_err(Failure::failed)
}

fn signals() -> Vec<Signal> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    // Without a handler the signal ends the program, which loses nothing already reported.
    kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect()
}

/// Waits for a signal and returns the exit status: 0, because a server is meant to be stopped.
async fn stopped(mut signals: Vec<Signal>, closing: CancellationToken) -> u8 {
    if signals.is_empty() {
        closing.cancelled().await;
        return 0;
    }
    let waits = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    tokio::select! {
        _ = futures::future::select_all(waits) => {
            put_stderr("stopping; pending questions stay in the inbox");
            closing.cancel();
        }
        () = closing.cancelled() => {}
    }
    0
}

fn address(text: &str) -> Result<Address, Failure> {
    if let Some(path) = text.strip_prefix(UNIX) {
        if path.is_empty() {
            return Err(Failure::usage("--bind unix: needs a path, such as unix:/run/user/1000/aye.sock"));
        }
        return Ok(Address::Unix(PathBuf::from(path)));
    }
    let text =
        text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map(Address::Tcp).map_err(|_| {
        Failure::usage(format!("invalid address `{text}`; expected for example 127.0.0.1:7400 or unix:PATH"))
    })
}

/// Returns the served folders: those of the settings, or this one.
fn folders(foundation: &Foundation) -> Result<Vec<PathBuf>, Failure> {
    let wanted = &foundation.loaded.settings.serve.folders;
    let own = foundation.workspace.cwd.clone();
    if wanted.is_empty() {
        return Ok(vec![own]);
    }
    let mut found = Vec::new();
    for folder in wanted {
        let path = match folder.strip_prefix("~/") {
            Some(rest) => foundation.workspace.home.join(rest),
            None => PathBuf::from(folder),
        };
        if !path.is_absolute() {
            return Err(Failure::usage(format!(
                "[serve] folders: {folder} must be absolute or begin with ~/"
            )));
        }
        let path = path
            .canonicalize()
            .map_err(|error| Failure::usage(format!("[serve] folders: cannot use {folder}: {error}")))?;
        found.push(path);
    }
    // The folder in which it was started comes first when it is one of them.
    found.sort_by_key(|folder| !own.starts_with(folder));
    Ok(found)
}

/// Returns the host names that requests may use.
fn names(foundation: &Foundation, address: &Address) -> Names {
    let settings = &foundation.loaded.settings.serve;
    let place = match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(_) => String::new(),
    };
    let mut names = Names::of(&place, &settings.hosts, &settings.origins);
    names.hosts.extend(settings.public_url.as_deref().and_then(host_of));
    if place.is_empty() {
        names.hosts.push("localhost".to_owned());
    }
    names
}

/// Returns the host and port of a URL, as in a Host header.
fn host_of(url: &str) -> Option<String> {
    let url = reqwest::Url::parse(url).ok()?;
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Returns whether users other than the file's owner can read it.
fn is_open_to_others(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|about| about.permissions().mode() & 0o044 != 0)
}

/// Returns the URL to open in a browser; `None` for a socket without a public URL.
fn own_url(foundation: &Foundation, address: &Address, with_tls: bool) -> Option<String> {
    if let Some(url) = &foundation.loaded.settings.serve.public_url {
        return Some(url.trim_end_matches('/').to_owned());
    }
    let Address::Tcp(address) = address else { return None };
    let scheme = if with_tls { "https" } else { "http" };
    let ip = address.ip();
    let host = match ip {
        _ if ip.is_unspecified() => SocketAddr::new(IpAddr::from([127, 0, 0, 1]), address.port()),
        _ => *address,
    };
    Some(format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::{is_open_to_others, lined_up};

    /// Programs read the address after `serving on `.
    #[test]
    fn the_address_stands_after_one_blank() {
        let text = "serving on\t127.0.0.1:7400\nfolder\t~/x\n\tworks once\n\n  ▄▀";
        let lines = ["serving on 127.0.0.1:7400", "folder     ~/x", "           works once", "", "  ▄▀"];
        assert_eq!(lined_up(text), lines.join("\n"));
    }

    #[test]
    fn a_key_that_others_can_read_is_noticed() {
        let key = tempfile::NamedTempFile::new().expect("a file");
        for (mode, is_open) in [(0o600, false), (0o640, true), (0o604, true), (0o400, false)] {
            std::fs::set_permissions(key.path(), std::fs::Permissions::from_mode(mode)).expect("a mode");
            assert_eq!(is_open_to_others(key.path()), is_open, "{mode:o}");
        }
        assert!(!is_open_to_others(std::path::Path::new("/no/such/key")));
    }
}
