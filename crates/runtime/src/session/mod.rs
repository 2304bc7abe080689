//! Following a thread: its answers, whichever process gives them; its run, whichever process drives it; and its
//! queue. All front ends use it. What they do differently is what they show, and when they stop.

mod answered;
mod owner;
mod queue;

pub use owner::OwnerWatch;
