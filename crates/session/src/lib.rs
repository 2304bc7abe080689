//! A conversation that a front end attends: its runs are driven, its questions waited for, other processes that drive it
//! followed, and its queue started.
//!
//! [`Attendance`] decides what is next. It is a pure machine: facts go in, one directive comes out, and it has no clock,
//! channel, file or `await`. [`Attender`] executes the directives over the runtime. A [`FrontEnd`] keeps what it shows,
//! and its [`Manner`] says when it leaves.
//!
//! ```text
//!   Requested, Continued, Changed,                        Read ──────────▶ Found
//!   Cancelled, Closed            ──▶  Attendance  ──▶     Start, Resume,
//!   (at any time)                        ▲                StartQueued,  ─▶ Ended
//!                                        │                EndWaiting, Report
//!                   Found, Ended ────────┘                Wait, Follow ──▶ Changed
//!                                                         Stop (while a run is driven), Leave
//! ```
//!
//! `Changed` has many reasons: a commit of another process, an answer, the expiry of a question, a queued message that is
//! due, the end of the process that drives. None of them is believed: each leads to a read of the store. One that arrives
//! during a read or a run is kept and leads to another read before anything waits or leaves, so that none is lost.
//!
//! Two attenders of one conversation may both try to drive it. The lease of the conversation picks one, and the other
//! learns from [`Ended::Elsewhere`] that it has to follow or to leave. No other code needs to know that error.

mod drive;
mod ended;
mod machine;

pub use drive::{Attender, FrontEnd, Rest, SessionEnd};
pub use ended::Ended;
pub use machine::{
    Attendance, Directive, Elsewhere, Fact, First, Found, Leaving, Manner, Mark, Queue, Standing,
};
