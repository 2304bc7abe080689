//! A terminal for a program: aye has one end of it, the program the other.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe;

/// Both ends of a terminal.
pub(crate) struct Terminal {
    pub(crate) output: pipe::Receiver,
    /// The typed input.
    pub(crate) keys: pipe::Sender,
    pub(crate) size: TerminalSize,
    /// The program's end.
    pub(crate) program: OwnedFd,
}

/// The size of a terminal.
pub(crate) struct TerminalSize(File);

impl TerminalSize {
    /// Changes the size and notifies the program.
    pub(crate) fn set(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(&self.0, size)?)
    }
}

/// Makes a terminal of this size.
pub(crate) fn open(columns: u16, rows: u16) -> io::Result<Terminal> {
    let (end, program) = aye_platform::open_terminal()?;
    let status = rustix::fs::fcntl_getfl(&end)?;
    rustix::fs::fcntl_setfl(&end, status | rustix::fs::OFlags::NONBLOCK)?;
    let end = File::from(end);
    let size = TerminalSize(end.try_clone()?);
    size.set(columns, rows)?;
    // Both need a descriptor that can be polled, whatever its kind.
    let keys = pipe::Sender::from_file_unchecked(end.try_clone()?)?;
    Ok(Terminal { output: pipe::Receiver::from_file_unchecked(end)?, keys, size, program })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read as _, Write as _};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn each_end_reads_what_the_other_writes() {
        let Terminal { mut output, mut keys, program, .. } = open(100, 30).expect("a terminal");
        let mut program = File::from(program);
        let size = rustix::termios::tcgetwinsize(&program).expect("a size");
        assert_eq!((size.ws_col, size.ws_row), (100, 30));
        let mut buf = [0; 64];
        for text in ["one", "two"] {
            program.write_all(text.as_bytes()).expect("written");
            let read = output.read(&mut buf).await.expect("read");
            assert_eq!(&buf[..read], text.as_bytes());
        }
        keys.write_all(b"three\r").await.expect("typed");
        let read = program.read(&mut buf).expect("read");
        assert_eq!(&buf[..read], b"three\n");
        // Its echo.
        let read = output.read(&mut buf).await.expect("read");
        assert_eq!(&buf[..read], b"three\r\n");
        drop(program);
        assert!(output.read(&mut buf).await.is_err());
    }
}
