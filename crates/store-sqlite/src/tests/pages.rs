//! Paged lists for programs.

use super::*;
use crate::{JobFilter, Page, SuspensionFilter};
use aye_core::contract::mailbox::MailboxJob;

/// The entries and the number of reads when a list is read to its end.
async fn all<T>(limit: usize, read: impl AsyncFn(Page) -> Vec<T>) -> (Vec<T>, usize) {
    let (mut found, mut page, mut pages) = (Vec::new(), Page::new(0, limit), 0);
    loop {
        let entries = read(page).await;
        pages += 1;
        if entries.is_empty() {
            return (found, pages);
        }
        found.extend(entries);
        page = page.next();
    }
}

#[test]
fn a_page_has_fifty_entries_by_default_and_at_most_two_hundred() {
    assert_eq!((Page::default().offset(), Page::default().limit()), (0, 50));
    assert_eq!(Page::new(3, 0).limit(), 1);
    assert_eq!(Page::new(3, 1000), Page::new(3, 200));
    assert_eq!(Page::new(3, 10).next(), Page::new(13, 10));
    assert_eq!(Page::new(usize::MAX, 10).next().offset(), usize::MAX);
}

#[tokio::test]
async fn lists_are_paged_in_a_stable_order() {
    let store = Store::in_memory().unwrap();
    for number in 0..230 {
        store.create_thread(thread(&format!("t{number:03}"))).await.unwrap();
    }
    assert_eq!(store.list_threads(Page::default()).await.unwrap().len(), 50);
    assert_eq!(store.list_threads(Page::new(0, 1000)).await.unwrap().len(), 200);
    let (threads, pages) = all(100, async |page| store.list_threads(page).await.unwrap()).await;
    assert_eq!((threads.len(), pages), (230, 4));
    assert!(threads.is_sorted(), "oldest first, whatever was changed since");
    // Entries added during reading come last.
    store.create_thread(thread("a")).await.unwrap();
    let last = store.list_threads(Page::new(230, 50)).await.unwrap();
    assert_eq!(last.iter().map(ThreadId::as_str).collect::<Vec<_>>(), ["a"]);

    let mailbox = store.mailbox();
    for number in 0..60_u8 {
        let job = MailboxJob::new("t001", vec![Message::user(number.to_string())], 1);
        // Priority changes the serving order, not the list.
        mailbox.enqueue(job.with_priority(200 - number)).await.unwrap();
    }
    let jobs = |page| mailbox.page_of_jobs(JobFilter::default(), page);
    assert_eq!(jobs(Page::default()).await.unwrap().len(), 50);
    let (jobs, _) = all(7, async |page| jobs(page).await.unwrap()).await;
    assert!(jobs.len() == 60 && jobs.iter().map(|job| job.sequence).is_sorted());
}

#[tokio::test]
async fn runs_and_questions_have_pages_too() {
    let store = Store::in_memory().unwrap();
    let (_, run) = waiting(&store, None).await;
    let runs = store.list_runs(Some(&run.thread_id), Page::default()).await.unwrap();
    assert_eq!(runs.iter().map(|known| &known.id).collect::<Vec<_>>(), [&run.id]);
    assert_eq!(store.list_runs(None, Page::default()).await.unwrap(), runs);
    assert!(store.list_runs(None, Page::new(1, 9)).await.unwrap().is_empty());
    let open = store.list_suspensions(SuspensionFilter::default(), Page::default()).await.unwrap();
    assert_eq!(open, store.suspensions(SuspensionFilter::default()).await.unwrap());
    assert!(!open.is_empty());
    let behind = store.list_suspensions(SuspensionFilter::default(), Page::new(open.len(), 9)).await.unwrap();
    assert!(behind.is_empty());
}
