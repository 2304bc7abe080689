//! The pace at which answered runs resume.
//!
//! Resuming a run costs many times as much as storing its answer. So when many questions are answered at once, their
//! answers are stored and acknowledged first, and the runs follow as fast as the machine can start them. What is queued
//! here is not stored anywhere else: after a crash the runs are found by their answers.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

/// A burst of answers is over when none has come for this long.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum time that a run waits for a pause.
const PATIENCE: Duration = Duration::from_secs(1);

/// Maximum time that a start keeps its place: hooks can run programs before a model or a tool is asked.
const LONGEST: Duration = Duration::from_secs(1);

/// Admits a few runs at a time, after the answers that are being stored.
pub(super) struct Starts {
    places: Arc<Semaphore>,
    /// Number of answers that are being stored.
    answers: Arc<watch::Sender<usize>>,
}

/// The right to start a run, until dropped. A run that waits for a model or a tool must not keep it.
pub(super) struct Place {
    _permit: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Place {
    fn of(permit: OwnedSemaphorePermit) -> Self {
        let permit = Arc::new(Mutex::new(Some(permit)));
        let kept = Arc::downgrade(&permit);
        tokio::spawn(async move {
            tokio::time::sleep(LONGEST).await;
            if let Some(kept) = kept.upgrade() {
                kept.lock().unwrap_or_else(PoisonError::into_inner).take();
            }
        });
        Self { _permit: permit }
    }
}

/// An answer that is being stored, until dropped.
pub(super) struct Answering(Arc<watch::Sender<usize>>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.send_modify(|answers| *answers -= 1);
    }
}

impl Starts {
    /// Admits as many runs at a time as the machine has cores.
    pub(super) fn of_machine() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn new(places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), answers: Arc::default() }
    }

    /// Postpones runs while an answer is being stored.
    pub(super) fn answering(&self) -> Answering {
        self.answers.send_modify(|answers| *answers += 1);
        Answering(Arc::clone(&self.answers))
    }

    /// Waits for a place, and until the answers that are being stored are acknowledged: if all places were taken, until
    /// no more come.
    pub(super) async fn place(&self) -> Place {
        let latest = Instant::now() + PATIENCE;
        let (permit, pause) = if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            (permit, Duration::ZERO)
        } else {
            let permit = Arc::clone(&self.places).acquire_owned().await;
            (permit.expect("the semaphore is never closed"), PAUSE)
        };
        // Under a constant stream of answers there is no pause.
        let _ = tokio::time::timeout_at(latest, self.pause(pause)).await;
        Place::of(permit)
    }

    async fn pause(&self, pause: Duration) {
        let mut answers = self.answers.subscribe();
        loop {
            if answers.wait_for(|answers| *answers == 0).await.is_err() || pause.is_zero() {
                return;
            }
            if tokio::time::timeout(pause, answers.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Waits for something that may take long, and keeps the place only if it is ready at once.
    pub(super) async fn aside(&self, place: Option<Place>, wait: impl Future<Output = ()>) -> Option<Place> {
        let mut wait = pin!(wait);
        if futures::poll!(wait.as_mut()).is_ready() {
            return place;
        }
        let has_place = place.is_some();
        drop(place);
        wait.await;
        if has_place { Some(self.place().await) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test(start_paused = true)]
    async fn a_run_starts_as_soon_as_its_answer_is_acknowledged() {
        let starts = Starts::new(2);
        let answering = starts.answering();
        let mut place = pin!(starts.place());
        assert!(place.as_mut().now_or_never().is_none());
        drop(answering);
        let before = Instant::now();
        place.await;
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn runs_of_a_burst_start_after_it_and_a_few_at_a_time() {
        let starts = Starts::new(1);
        let first = starts.place().await;
        let mut second = pin!(starts.place());
        assert!(second.as_mut().now_or_never().is_none(), "the only place is taken");
        drop(first);
        let before = Instant::now();
        for _ in 0..20 {
            // The next answer comes soon after the last one was acknowledged.
            drop(starts.answering());
            assert!(tokio::time::timeout(PAUSE / 2, second.as_mut()).await.is_err());
        }
        let second = second.await;
        assert_eq!(before.elapsed(), PAUSE * 10 + PAUSE / 2);
        drop(second);
        assert!(starts.place().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn answers_without_a_pause_do_not_keep_runs_from_starting() {
        let starts = Starts::new(1);
        let _answering = starts.answering();
        let before = Instant::now();
        drop(starts.place().await);
        assert_eq!(before.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_start_does_not_keep_its_place() {
        let starts = Starts::new(1);
        let _slow = starts.place().await;
        let before = Instant::now();
        drop(starts.place().await);
        assert_eq!(before.elapsed(), LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_free_while_its_run_waits_for_something_else() {
        let starts = Starts::new(1);
        let place = Some(starts.place().await);
        let place = starts.aside(place, std::future::ready(())).await;
        assert!(starts.place().now_or_never().is_none(), "it was ready at once");
        let (sender, wait) = tokio::sync::oneshot::channel::<()>();
        let mut aside = pin!(starts.aside(place, wait.map(drop)));
        assert!(aside.as_mut().now_or_never().is_none());
        drop(starts.place().await);
        drop(sender);
        assert!(aside.await.is_some());
    }
}
