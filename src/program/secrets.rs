//! Removes keys from what other processes can read of this one.
//!
//! The kernel shows the environment a process was started with in `/proc/PID/environ` for as long as the
//! process runs, whatever it does with its variables later. So they are overwritten where they lie. Where a
//! process cannot do that, it restarts itself without them and passes them over a socket that only the new
//! process has: they are then in no environment, and no longer in the socket once they have been read. Memory is
//! protected by `PR_SET_DUMPABLE`, and against root's own commands by removing their `CAP_SYS_PTRACE`
//! (`tools/exec/supervisor.rs`).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use aye_platform::hide_variables;

use crate::tools::exec::{holds_password, is_secret};

/// The name of the descriptor passed to the new process.
const NAME: &str = "aye-secrets";
const NAMES: &str = "LISTEN_FDNAMES";
/// The variables that name the descriptor, as systemd defines them.
const HANDOVER: &[&str] = &[NAMES, "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDS_FIRST_FD"];
/// The bytes that fit into the socket on every system; if there are more, nothing is moved.
const MAX_BYTES: usize = 128 << 10;
/// Values of at least this many characters may be keys, whatever their variable is called.
const KEY_LENGTH: usize = 24;

type Variables = BTreeMap<OsString, OsString>;

/// Returns the variables that the program was started with, and removes keys from its environment. Does not return if
/// the program has to restart for that; if that fails, they stay in place.
pub(crate) fn variables(args: &[OsString]) -> Variables {
    let mut all: Variables = std::env::vars_os().collect();
    if all.get(OsStr::new(NAMES)).is_some_and(|name| name == NAME) {
        all.retain(|name, _| !HANDOVER.iter().any(|own| name == own));
        all.extend(received());
        return all;
    }
    let (secret, public): (Variables, Variables) =
        all.clone().into_iter().partition(|(name, value)| is_to_hide(name, value));
    if !secret.is_empty()
        && hide_variables(&|name| secret.contains_key(name)).is_err()
        && let Err(error) = start_again(args, &secret, public)
    {
        tracing::warn!(%error, "keys stay in the environment of this process");
    }
    all
}

/// Returns whether a variable must be hidden from other processes. Variables that libraries read from the
/// environment on their own stay there.
fn is_to_hide(name: &OsStr, value: &OsStr) -> bool {
    let upper = name.to_string_lossy().to_uppercase();
    if upper.starts_with("AYE_") || upper.ends_with("_PROXY") || value.is_empty() {
        return false;
    }
    is_secret(name, &[]) || holds_password(value) || is_key_shaped(value)
}

/// Returns whether the value looks like a key: one long word of letters and digits.
fn is_key_shaped(value: &OsStr) -> bool {
    let bytes = value.as_bytes();
    let is_of_keys =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+' | b'=');
    bytes.len() >= KEY_LENGTH
        && bytes.iter().all(is_of_keys)
        && bytes.iter().any(u8::is_ascii_digit)
        && bytes.iter().any(u8::is_ascii_alphabetic)
}

/// Replaces this process by the same program. Returns only when that fails.
fn start_again(args: &[OsString], secret: &Variables, public: Variables) -> std::io::Result<()> {
    let text = encode(secret);
    if text.len() > MAX_BYTES {
        return Err(std::io::Error::other("too many keys to hand over to the new process"));
    }
    let (ours, theirs) = UnixDatagram::pair()?;
    ours.set_nonblocking(true)?;
    ours.send(&text)?;
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    let mut command = Command::new(std::env::current_exe()?);
    if let Some((program, rest)) = args.split_first() {
        command.arg0(program).args(rest);
    }
    command.env_clear().envs(public).envs([
        (NAMES, NAME.to_owned()),
        ("LISTEN_FDS", "1".to_owned()),
        ("LISTEN_PID", std::process::id().to_string()),
        ("LISTEN_FDS_FIRST_FD", theirs.as_raw_fd().to_string()),
    ]);
    Err(command.exec())
}

/// Returns the variables that the previous process handed over; empty if something else set the handover
/// variables.
fn received() -> Variables {
    let socket = listenfd::ListenFd::from_env().take_unix_datagram(0).ok().flatten();
    let read = |socket: UnixDatagram| {
        socket.set_nonblocking(true)?;
        let mut bytes = vec![0; MAX_BYTES];
        let length = socket.recv(&mut bytes)?;
        bytes.truncate(length);
        std::io::Result::Ok(bytes)
    };
    socket.and_then(|socket| read(socket).ok()).map(|bytes| decode(&bytes)).unwrap_or_default()
}

/// Encodes variables as an environment: `NAME=VALUE`, with a NUL after each.
fn encode(variables: &Variables) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in variables {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    bytes
}

fn decode(bytes: &[u8]) -> Variables {
    let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let entry = |entry: &[u8]| {
        let equals = entry.iter().position(|byte| *byte == b'=')?;
        Some((text(&entry[..equals]), text(&entry[equals + 1..])))
    };
    bytes.split(|byte| *byte == 0).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_variables_are_hidden() {
        for (name, value) in [
            ("OPENAI_API_KEY", "x"),
            ("GH_TOKEN", "x"),
            ("DATABASE_URL", "postgres://me:s3cret@db/x"),
            ("CORP_LLM", "sk-0123456789abcdefghijklmn"),
        ] {
            assert!(is_to_hide(OsStr::new(name), OsStr::new(value)), "{name}");
        }
        for (name, value) in [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"),
            ("AYE_HOME", "/home/someone/with-a-long-name-1"),
            ("HTTPS_PROXY", "http://me:s3cret@proxy:8080"),
            ("LANG", "en_GB.UTF-8"),
            ("OPENAI_API_KEY", ""),
            ("TERM", "xterm-256color"),
        ] {
            assert!(!is_to_hide(OsStr::new(name), OsStr::new(value)), "{name}");
        }
    }

    #[test]
    fn variables_round_trip() {
        let odd: Variables =
            [("A".into(), OsString::from_vec(b"\xff=\n x".to_vec())), ("EMPTY".into(), OsString::new())]
                .into();
        assert_eq!(decode(&encode(&odd)), odd);
    }
}
