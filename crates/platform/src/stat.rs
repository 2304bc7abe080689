/// What the system says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// `R`, `S`, `Z`, `T`, …
    pub state: u8,
    /// When it started, in a unit of the system's.
    pub started: u64,
}

impl ProcessStat {
    /// Returns what tells it from one that gets its number later.
    pub fn id(&self) -> (i32, u64) {
        (self.pid, self.started)
    }

    /// Whether it has ended and only its status is left.
    pub fn is_over(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Whether a signal or a debugger has stopped it.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}
