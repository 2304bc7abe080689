//! `aye login` and `aye logout`.

use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::keys::{MAX_KEY, log_in, log_out, provider, refresh_stored_keys, takers};
use crate::program::{put, put_stderr};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::io::{IsTerminal as _, Read as _, Write as _};
use tokio::signal::unix::{SignalKind, signal};

/// `aye login [PROVIDER]`.
pub(crate) async fn login(
    name: Option<String>,
    in_keyring: bool,
    foundation: &Foundation,
) -> Result<u8, Failure> {
    refresh_stored_keys(foundation);
    let is_terminal = std::io::stdin().is_terminal();
    let name = match name {
        Some(name) => name,
        None if is_terminal => {
            let all = takers(foundation);
            let names: Vec<&str> = all.iter().map(|provider| provider.name.as_str()).collect();
            put_stderr(&format!("Providers: {}", names.join(", ")));
            let Some(name) = ask("Provider: ", Echo::Plain).await? else { return Ok(130) };
            name.trim().to_owned()
        }
        None => return Err(Failure::usage("name the provider: aye login PROVIDER < FILE_WITH_THE_KEY")),
    };
    let provider = provider(foundation, &name).map_err(Failure::usage)?;
    let key = if is_terminal {
        let prompt = format!("Key of {} (paste it, then Enter): ", provider.name);
        match ask(&prompt, Echo::Masked).await? {
            Some(key) => key,
            None => return Ok(130),
        }
    } else {
        ask("", Echo::Plain).await?.unwrap_or_default()
    };
    put_stderr("checking the key ...");
    let login = log_in(foundation, &provider.name, &key, in_keyring).await.map_err(Failure::failed)?;
    put(&format!("{}\n", login.words))?;
    Ok(0)
}

/// `aye logout [PROVIDER]`.
pub(crate) async fn logout(name: Option<&str>, foundation: &Foundation) -> Result<u8, Failure> {
    let outcome = log_out(foundation, name).await.map_err(Failure::failed)?;
    put(&format!("{outcome}\n"))?;
    Ok(0)
}

/// How typed characters are displayed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Echo {
    Plain,
    /// A star for each character.
    Masked,
}

/// Restores the terminal's mode, however the reading ends.
struct Restored(Option<Termios>);

impl Drop for Restored {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, before);
        }
    }
}

/// Reads one line of standard input; returns `None` on Ctrl-C or the end of the input.
async fn ask(prompt: &str, echo: Echo) -> Result<Option<String>, Failure> {
    let _ = write!(std::io::stderr(), "{prompt}");
    let before = tcgetattr(rustix::stdio::stdin()).ok();
    let mut ends = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    let restored = Restored(before.clone().filter(|_| echo == Echo::Masked));
    if let Some(mut raw) = restored.0.clone() {
        raw.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw).map_err(Failure::failed)?;
    }
    // The thread is not waited for: a read from a terminal cannot be cancelled.
    let (send, line) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || send.send(read_line(echo)));
    tokio::select! {
        line = line => {
            drop(restored);
            Ok(line.ok().flatten())
        }
        _ = ends.recv() => {
            drop(restored);
            Err(Failure::terminated())
        }
    }
}

fn read_line(echo: Echo) -> Option<String> {
    let (mut line, mut input) = (Vec::new(), std::io::stdin().lock());
    let show = |text: &str| {
        if echo == Echo::Masked {
            let _ = write!(std::io::stderr(), "{text}");
        }
    };
    let mut byte = [0];
    loop {
        match input.read(&mut byte) {
            Ok(1) => {}
            _ if line.is_empty() => return None,
            _ => break,
        }
        match (byte[0], echo) {
            (b'\n' | b'\r', _) => break,
            (3 | 4, Echo::Masked) => {
                show("\n");
                return None;
            }
            (8 | 127, Echo::Masked) => show(if line.pop().is_some() { "\u{8} \u{8}" } else { "" }),
            // Marks of a bracketed paste and other control characters are not part of a key.
            (0..=31, Echo::Masked) => {}
            (other, _) if line.len() < 2 * MAX_KEY => {
                line.push(other);
                show("*");
            }
            _ => {}
        }
    }
    show("\n");
    Some(String::from_utf8_lossy(&line).into_owned())
}
