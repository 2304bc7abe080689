//! Reads the clipboard through the programs that systems have for it.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use tokio::io::AsyncReadExt as _;

use crate::config::Env;
use crate::contract::image::{ImageError, ImageFormat, MAX_IMAGE_BYTES};
use crate::failure::AppError;
use crate::program::app_context::AppContext;
use crate::program::parts::tool_env;

/// How long each program may take.
const LIMIT: Duration = Duration::from_secs(4);
/// The maximum bytes of a program's output: more than the largest image encoded as text.
const MOST: u64 = MAX_IMAGE_BYTES * 2 + 1024;
/// The variables these programs need to find the clipboard.
const NEEDED: [&str; 4] = ["DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR"];

/// The content of the clipboard.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClipboardContent {
    Image(Vec<u8>),
    Text(String),
}

/// The system that the clipboard belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Mac,
    Wayland,
    X11,
    Windows,
}

impl System {
    fn of(env: &Env, is_mac: bool) -> Option<System> {
        if is_mac {
            Some(System::Mac)
        } else if env.has("WSL_DISTRO_NAME") {
            Some(System::Windows)
        } else if env.has("WAYLAND_DISPLAY") {
            Some(System::Wayland)
        } else if env.has("DISPLAY") {
            Some(System::X11)
        } else {
            None
        }
    }

    /// Returns what to install if the program is missing.
    fn program(self) -> &'static str {
        match self {
            System::Mac => "pngpaste",
            System::Wayland => "wl-paste (the package wl-clipboard)",
            System::X11 => "xclip",
            System::Windows => "powershell.exe",
        }
    }
}

/// Why a program returned nothing.
enum Nothing {
    /// It is not installed.
    Missing,
    /// It returned nothing, or failed.
    Empty,
    Wrong(String),
}

const IN_WINDOWS: &str = "Add-Type -AssemblyName System.Windows.Forms; \
    $i = [Windows.Forms.Clipboard]::GetImage(); if ($i) { $m = New-Object IO.MemoryStream; \
    $i.Save($m, [Drawing.Imaging.ImageFormat]::Png); [Convert]::ToBase64String($m.ToArray()) }";

/// Returns the content of the clipboard: an image is preferred to text.
pub(super) async fn read(app: &AppContext) -> Result<ClipboardContent, AppError> {
    let env = &app.foundation.env;
    let system = System::of(env, aye_platform::SYSTEM == aye_platform::System::MacOs).ok_or_else(|| {
        let path = "paste the path of an image file instead, or name it as @path";
        if env.has("SSH_CONNECTION") {
            format!("the clipboard is on your local machine; {path}")
        } else {
            format!("no clipboard here (neither WAYLAND_DISPLAY nor DISPLAY is set); {path}")
        }
    })?;
    let needed = NEEDED.iter().filter_map(|name| Some((*name, env.var(name)?)));
    let variables = tool_env(&app.foundation).child_env(needed).into_iter();
    let variables: Vec<(OsString, OsString)> = variables.collect();
    read_with(system, &variables).await
}

async fn read_with(system: System, variables: &[(OsString, OsString)]) -> Result<ClipboardContent, AppError> {
    let run = async |words: &[&str]| run(words, variables).await;
    let image = match system {
        System::Mac => match run(&["pngpaste", "-"]).await {
            Err(Nothing::Missing) => {
                let script = "get the clipboard as «class PNGf»";
                run(&["osascript", "-e", script]).await.and_then(|output| of_hex(&output))
            }
            other => other,
        },
        System::Wayland => match run(&["wl-paste", "--list-types"]).await {
            Ok(types) => match wanted_type(&types) {
                Some(kind) => run(&["wl-paste", "--no-newline", "--type", kind]).await,
                None => Err(Nothing::Empty),
            },
            Err(why) => Err(why),
        },
        System::X11 => match run(&["xclip", "-selection", "clipboard", "-t", "TARGETS", "-o"]).await {
            Ok(types) => match wanted_type(&types) {
                Some(kind) => run(&["xclip", "-selection", "clipboard", "-t", kind, "-o"]).await,
                None => Err(Nothing::Empty),
            },
            Err(why) => Err(why),
        },
        System::Windows => {
            let output = run(&["powershell.exe", "-NoProfile", "-STA", "-Command", IN_WINDOWS]).await;
            let decoded =
                output.map(|output| base64::engine::general_purpose::STANDARD.decode(output.trim_ascii()));
            decoded.and_then(|bytes| bytes.map_err(|_| Nothing::Empty))
        }
    };
    match image {
        Ok(bytes) if !bytes.is_empty() => return Ok(ClipboardContent::Image(bytes)),
        Ok(_) | Err(Nothing::Empty) => {}
        Err(Nothing::Missing) => {
            return Err(format!(
                "reading the clipboard needs {}, which is not installed; paste the path of an image file \
                 instead",
                system.program()
            )
            .into());
        }
        Err(Nothing::Wrong(why)) => return Err(why.into()),
    }
    let text = match system {
        System::Mac => run(&["pbpaste"]).await,
        System::Wayland => run(&["wl-paste", "--no-newline", "--type", "text"]).await,
        System::X11 => run(&["xclip", "-selection", "clipboard", "-o"]).await,
        System::Windows => run(&["powershell.exe", "-NoProfile", "-Command", "Get-Clipboard"]).await,
    };
    match text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
        Ok(text) if !text.is_empty() => Ok(ClipboardContent::Text(text)),
        Ok(_) | Err(_) => Err("the clipboard has neither an image nor text".into()),
    }
}

/// Returns the image among the offered formats.
fn wanted_type(types: &[u8]) -> Option<&'static str> {
    use ImageFormat::{Gif, Jpeg, Png, Webp};
    let types = String::from_utf8_lossy(types);
    let kinds = [Png, Jpeg, Webp, Gif].map(ImageFormat::media_type);
    kinds.into_iter().find(|kind| types.lines().any(|line| line.trim() == *kind))
}

/// `«data PNGf89504E47…»`.
fn of_hex(output: &[u8]) -> Result<Vec<u8>, Nothing> {
    let output = String::from_utf8_lossy(output);
    let digits = output.split_once("PNGf").map(|(_, rest)| rest).ok_or(Nothing::Empty)?;
    let digits: Vec<u8> = digits.bytes().take_while(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks_exact(2).map(byte).collect::<Option<Vec<u8>>>().ok_or(Nothing::Empty)
}

async fn run(words: &[&str], variables: &[(OsString, OsString)]) -> Result<Vec<u8>, Nothing> {
    let Some((program, args)) = words.split_first() else { return Err(Nothing::Missing) };
    let mut child = tokio::process::Command::new(program)
        .args(args)
        .env_clear()
        .envs(variables.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Nothing::Missing,
            _ => Nothing::Wrong(format!("the clipboard cannot be read: {program}: {error}")),
        })?;
    let Some(out) = child.stdout.take() else { return Err(Nothing::Empty) };
    let reading = async {
        let mut bytes = Vec::new();
        out.take(MOST + 1).read_to_end(&mut bytes).await.map_err(|_| Nothing::Empty)?;
        if bytes.len() as u64 > MOST {
            let why = ImageError::Heavy(bytes.len() as u64);
            return Err(Nothing::Wrong(format!("the clipboard content is too large: {why}")));
        }
        let status = child.wait().await.map_err(|_| Nothing::Empty)?;
        if status.success() { Ok(bytes) } else { Err(Nothing::Empty) }
    };
    let late =
        || Nothing::Wrong(format!("{program} did not return the clipboard within {} s", LIMIT.as_secs()));
    tokio::time::timeout(LIMIT, reading).await.map_err(|_| late())?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn with(dir: &std::path::Path, name: &str, script: &str) -> Vec<(OsString, OsString)> {
        let file = dir.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        vec![("PATH".into(), format!("{}:/usr/bin:/bin", dir.display()).into())]
    }

    #[tokio::test]
    async fn an_image_is_preferred_to_text() {
        let dir = tempfile::tempdir().unwrap();
        let script = "case \"$*\" in *TARGETS*) printf 'TARGETS\\nimage/png\\nSTRING\\n';; *image/png*) printf bytes;; esac";
        let env = with(dir.path(), "xclip", script);
        assert_eq!(read_with(System::X11, &env).await.unwrap(), ClipboardContent::Image(b"bytes".to_vec()));
        let env = with(dir.path(), "xclip", "case \"$*\" in *TARGETS*) echo STRING;; *) printf words;; esac");
        assert_eq!(read_with(System::X11, &env).await.unwrap(), ClipboardContent::Text("words".into()));
        let env = with(dir.path(), "wl-paste", "exit 1");
        let why = read_with(System::Wayland, &env).await.unwrap_err().to_string();
        assert!(why.contains("neither an image nor text"), "{why}");
    }

    #[tokio::test]
    async fn a_missing_clipboard_program_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let env = vec![("PATH".into(), dir.path().as_os_str().to_owned())];
        let why = read_with(System::Wayland, &env).await.unwrap_err().to_string();
        assert!(why.contains("wl-paste (the package wl-clipboard), which is not installed"), "{why}");
    }

    #[test]
    fn the_environment_selects_the_clipboard() {
        let of = |vars: &[(&str, &str)]| System::of(&Env::of(vars, "/h", "/w"), false);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("DISPLAY", ":0"), ("WAYLAND_DISPLAY", "w")]), Some(System::Wayland));
        assert_eq!(of(&[("DISPLAY", ":0"), ("WSL_DISTRO_NAME", "u")]), Some(System::Windows));
        assert_eq!(of_hex("«data PNGf8950»\n".as_bytes()).ok(), Some(vec![0x89, 0x50]));
    }
}
