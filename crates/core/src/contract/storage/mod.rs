//! What stores implement, the rows that they take and return besides those of [`record`](super::record), and their
//! errors.

mod change;
mod error;
mod mailbox;
mod query;

pub use change::{Change, ChangeKind};
pub use error::{AcquireError, StorageError, StoreError, holder};
pub use mailbox::MailboxStore;
pub use query::{AuditFilter, Portion, SuspensionFilter, Term, ThreadTail};
