//! Opens the user's editor on a file that only they can read.

use std::io::IsTerminal as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;

use tokio::signal::unix::{SignalKind, signal};

use crate::config::Env;
use crate::failure::AppError;

/// The editors that are tried when none is set.
const FALLBACKS: [&str; 2] = ["vi", "nano"];
/// The maximum size of an edited text.
const MAX_TEXT: u64 = 16 << 20;

/// The text that the editor saved. Its file is removed with this value, unless it is kept.
pub(crate) struct EditorText {
    pub(crate) text: String,
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl EditorText {
    /// Keeps the file and returns its path.
    pub(crate) fn keep(self) -> PathBuf {
        let _ = self.folder.keep();
        self.file
    }
}

fn set_in<'a>(env: &'a Env, name: &str) -> Option<&'a str> {
    env.var(name).map(str::trim).filter(|value| !value.is_empty())
}

/// Returns `$VISUAL`, `$EDITOR`, or in a terminal the first fallback that is installed.
fn editor_of(env: &Env, has_terminal: bool) -> Result<&str, &'static str> {
    if let Some(editor) = set_in(env, "VISUAL").or_else(|| set_in(env, "EDITOR")) {
        return Ok(editor);
    }
    if !has_terminal {
        return Err("no editor is set; set VISUAL or EDITOR");
    }
    let installed = |name: &&str| {
        let folders = std::env::split_paths(set_in(env, "PATH").unwrap_or_default());
        folders.into_iter().any(|folder| folder.join(name).is_file())
    };
    FALLBACKS
        .into_iter()
        .find(installed)
        .ok_or("no editor is set, and neither vi nor nano is installed; set VISUAL or EDITOR")
}

/// Opens a text in `$VISUAL`, `$EDITOR` or, in a terminal, vi or nano and waits until the editor is closed. The file's
/// name ends like `name`, so that the editor recognises the type. The terminal must be as the shell left it.
///
/// # Errors
/// A sentence: no editor is set, it cannot be started, it failed, or what it saved is not text.
pub(crate) async fn edit(env: &Env, text: &str, name: &str) -> Result<EditorText, AppError> {
    let set = |name: &str| set_in(env, name);
    // Without a terminal, vi would wait for keys that nobody can press.
    let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let editor = editor_of(env, has_terminal)?;
    let place = set("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let wrong =
        |error: std::io::Error| format!("cannot write a file for the editor in {}: {error}", place.display());
    let folder = tempfile::Builder::new()
        .prefix("aye-edit-")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir_in(&place)
        .map_err(wrong)?;
    let file = folder.path().join(safe_name(name));
    let mut open = std::fs::OpenOptions::new();
    open.write(true).create_new(true).mode(0o600);
    open.open(&file)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .map_err(wrong)?;

    // Ctrl-C is for the editor; it must not end this program.
    let _interrupts = signal(SignalKind::interrupt())?;
    let _quits = signal(SignalKind::quit())?;
    // A shell, because the variable may contain arguments: `code --wait`.
    let status = tokio::process::Command::new("sh")
        .args(["-c", &format!("{editor} \"$@\""), "sh"])
        .arg(&file)
        .kill_on_drop(true)
        .status()
        .await
        .map_err(|error| format!("the editor `{editor}` could not be started: {error}"))?;
    match status.code() {
        Some(0) => {}
        Some(126 | 127) => {
            return Err(format!("the editor `{editor}` could not be started; nothing changed").into());
        }
        _ => return Err(format!("the editor `{editor}` failed ({status}); nothing changed").into()),
    }
    let read = || -> Result<String, AppError> {
        let size = std::fs::metadata(&file)?.len();
        if size > MAX_TEXT {
            return Err(format!("it has {size} bytes; the maximum is {MAX_TEXT}").into());
        }
        let bytes = std::fs::read(&file)?;
        String::from_utf8(bytes).map_err(|error| format!("invalid UTF-8: {error}").into())
    };
    match read() {
        Ok(text) => Ok(EditorText { text, folder, file }),
        Err(why) => {
            let kept = folder.keep();
            Err(format!("the edited file in {} cannot be used: {why}; nothing changed", kept.display())
                .into())
        }
    }
}

/// A file's name without its folders and without what could mean something to a shell or an editor.
fn safe_name(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or_default();
    let safe: String = last
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' })
        .take(80)
        .collect();
    // No option, no hidden file.
    let safe = safe.trim_start_matches(['-', '.']);
    if safe.is_empty() { "text".to_owned() } else { safe.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(vars: &[(&str, &str)], tmp: &std::path::Path) -> Env {
        let path = std::env::var("PATH").unwrap_or_default();
        let tmp = tmp.to_string_lossy().into_owned();
        let mut all = vec![("PATH", path.as_str()), ("TMPDIR", tmp.as_str())];
        all.extend_from_slice(vars);
        Env::of(&all, "/", "/")
    }

    #[tokio::test]
    async fn a_text_round_trips_through_the_editor_without_leftovers() {
        let tmp = tempfile::tempdir().unwrap();
        let show = "f() { stat -c '%a %n' \"$1\" > \"$2\"; sed -i s/old/new/ \"$1\"; }; f";
        let note = tmp.path().join("note");
        let editor = format!("{show} \"$1\" {} #", note.display());
        let draft =
            edit(&env(&[("EDITOR", &editor)], tmp.path()), "old text\n", "/etc/-x y.rs").await.unwrap();
        assert_eq!(draft.text, "new text\n");
        let seen = std::fs::read_to_string(&note).unwrap();
        assert!(seen.starts_with("600 ") && seen.trim_end().ends_with("/x_y.rs"), "{seen}");
        drop(draft);
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 1, "only the note is left");
    }

    #[tokio::test]
    async fn editor_errors_are_clear_messages() {
        let tmp = tempfile::tempdir().unwrap();
        for (vars, why) in [
            (&[("VISUAL", "no-such-editor-at-all")][..], "could not be started"),
            (&[("EDITOR", "false")], "failed"),
            (&[("EDITOR", "printf '\\377' >")], "invalid UTF-8"),
        ] {
            let error = edit(&env(vars, tmp.path()), "x", "a").await.err().expect(why);
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn vi_or_nano_only_where_somebody_can_type() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("nano"), "not started here").unwrap();
        let programs = tmp.path().to_string_lossy().into_owned();
        let with = |vars: &[(&str, &str)], has_terminal| {
            editor_of(&env(vars, tmp.path()), has_terminal).map(str::to_owned)
        };
        assert_eq!(with(&[("PATH", &programs)], true).unwrap(), "nano");
        assert_eq!(with(&[("EDITOR", " "), ("PATH", &programs)], true).unwrap(), "nano");
        assert_eq!(with(&[("EDITOR", "code --wait"), ("PATH", &programs)], false).unwrap(), "code --wait");
        assert_eq!(
            with(&[("PATH", &programs)], false).unwrap_err(),
            "no editor is set; set VISUAL or EDITOR"
        );
        assert!(
            with(&[("PATH", "/nowhere")], true).unwrap_err().contains("neither vi nor nano is installed")
        );
    }
}
