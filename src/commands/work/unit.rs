//! Files that keep a worker running: aye has no daemon of its own.

use std::path::Path;

use aye_platform::{SYSTEM, System};
use clap::ValueEnum;

use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::put;

/// Who keeps it running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnitKind {
    /// What this system has.
    Native,
    /// A user unit of systemd.
    Systemd,
    /// An agent of launchd.
    Launchd,
}

pub(super) fn print(kind: UnitKind, foundation: &Foundation) -> Result<u8, Failure> {
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let home = foundation.env.var("AYE_HOME").map(|home| foundation.env.cwd().join(home));
    put(&match kind {
        UnitKind::Native if SYSTEM != System::MacOs => {
            systemd(&program, &foundation.workspace.cwd, home.as_deref())
        }
        UnitKind::Systemd => systemd(&program, &foundation.workspace.cwd, home.as_deref()),
        UnitKind::Native | UnitKind::Launchd => launchd(&program, &foundation.workspace.cwd, home.as_deref()),
    })?;
    Ok(0)
}

/// A `%` begins a specifier, and a `"` would end the word.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

fn systemd(program: &Path, folder: &Path, home: Option<&Path>) -> String {
    let home = home.map(|home| format!("Environment={}\n", quoted(&format!("AYE_HOME={}", home.display()))));
    format!(
        "# ~/.config/systemd/user/aye-work.service\n\
         # systemctl --user enable --now aye-work; loginctl enable-linger keeps it running when you are logged out\n\
         [Unit]\nDescription=aye: works on queued messages\n\n\
         [Service]\nExecStart={} work\nWorkingDirectory={}\n{}Restart=on-failure\nRestartSec=10\n\
         # A job is left to the next worker at the first signal.\nTimeoutStopSec=60\n\n\
         [Install]\nWantedBy=default.target\n",
        quoted(&program.to_string_lossy()),
        folder.to_string_lossy().replace('%', "%%"),
        home.unwrap_or_default()
    )
}

fn launchd(program: &Path, folder: &Path, home: Option<&Path>) -> String {
    let text = |path: &Path| {
        let text = path.to_string_lossy().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        format!("<string>{text}</string>")
    };
    let home = home.map(|home| {
        format!("    <key>EnvironmentVariables</key>\n    <dict><key>AYE_HOME</key>{}</dict>\n", text(home))
    });
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!-- ~/Library/LaunchAgents/aye-work.plist; launchctl load -w ~/Library/LaunchAgents/aye-work.plist -->\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <plist version=\"1.0\">\n  <dict>\n    <key>Label</key><string>aye-work</string>\n    \
         <key>ProgramArguments</key>\n    <array>{}<string>work</string></array>\n    \
         <key>WorkingDirectory</key>{}\n{}    <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>\n  \
         </dict>\n</plist>\n",
        text(program),
        text(folder),
        home.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_what_they_are_in_either_file() {
        let (program, folder, home) =
            (Path::new("/opt/my \"a%b\"/aye"), Path::new("/srv/a&b"), Path::new("/h/<x>"));
        let unit = systemd(program, folder, Some(home));
        assert!(unit.contains("ExecStart=\"/opt/my \\\"a%%b\\\"/aye\" work\n"), "{unit}");
        assert!(unit.contains("WorkingDirectory=/srv/a&b\nEnvironment=\"AYE_HOME=/h/<x>\"\n"), "{unit}");
        let agent = launchd(program, folder, Some(home));
        assert!(agent.contains("<string>/srv/a&amp;b</string>"), "{agent}");
        assert!(agent.contains("<key>AYE_HOME</key><string>/h/&lt;x&gt;</string>"), "{agent}");
        assert!(!systemd(program, folder, None).contains("AYE_HOME"));
    }
}
