//! Writes the journal, on a thread of its own.
//!
//! Owns: the open file and the moment of its writes. A sync of the store's disk can take seconds under load. On the
//! thread that does the tier's I/O it would hold up reads, which would then count as failures of the tier; on the
//! threads that wait for the tier's folder it could wait behind a dead disk. Changes that wait at the same time share
//! one sync. At most one order waits for each change that is in progress.

use std::{
    fs, io, iter,
    sync::{
        Weak,
        atomic::Ordering::Relaxed,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

use tokio::sync::oneshot;

use super::{
    Tier,
    journal::{JournalTitle, TierJournal},
};

/// Sends orders to the thread that writes the tier's journal.
pub(super) struct JournalWriter(Sender<JournalOrder>);

/// An order for the thread that writes the journal, and the channel to report that it is done.
pub(super) struct JournalOrder {
    work: JournalWork,
    done: oneshot::Sender<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournalWork {
    /// Write the index's lines that the file does not have yet.
    Append,
    /// Begin a new file, because the store's generation has changed.
    BeginAgain,
    /// Write the remaining lines, and end the thread.
    Stop,
}

impl JournalWriter {
    /// Creates the sender of orders, and the receiver for the writing thread.
    pub(super) fn new() -> (Self, Receiver<JournalOrder>) {
        let (orders, received) = mpsc::channel();
        (Self(orders), received)
    }

    /// Orders the thread to write the index's new lines. The returned receiver completes when the file has them, or
    /// when the tier was given up.
    pub(super) fn append(&self) -> oneshot::Receiver<()> {
        self.order(JournalWork::Append)
    }

    /// Orders the thread to begin a new file, because the store's generation has changed. Later orders apply to the new
    /// file.
    pub(super) fn begin_again(&self) {
        drop(self.order(JournalWork::BeginAgain));
    }

    /// Orders the thread to write the remaining lines and to end. The returned receiver completes when that is done.
    pub(super) fn stop(&self) -> oneshot::Receiver<()> {
        self.order(JournalWork::Stop)
    }

    fn order(&self, work: JournalWork) -> oneshot::Receiver<()> {
        let (done, is_done) = oneshot::channel();
        // Without a thread the tier is out of use. The dropped order ends the wait.
        drop(self.0.send(JournalOrder { work, done }));
        is_done
    }
}

/// Starts the thread that writes the journal. It ends when the tier is dropped or stopped.
///
/// # Errors
/// The operating system cannot start a thread.
pub(super) fn start(
    tier: Weak<Tier>,
    journal: TierJournal,
    title: JournalTitle,
    orders: Receiver<JournalOrder>,
) -> io::Result<()> {
    let thread = JournalThread { tier, journal, title };
    thread::Builder::new().name("larder-tier-log".to_owned()).spawn(move || thread.run(&orders)).map(drop)
}

struct JournalThread {
    tier: Weak<Tier>,
    journal: TierJournal,
    title: JournalTitle,
}

impl JournalThread {
    fn run(mut self, orders: &Receiver<JournalOrder>) {
        while let Ok(first) = orders.recv() {
            let Some(tier) = self.tier.upgrade() else { return };
            // Taken before the lines are, so that the lines of each order's change are among them.
            let batch: Vec<JournalOrder> = iter::once(first).chain(orders.try_iter()).collect();
            let has = |work| batch.iter().any(|order| order.work == work);
            let written = match has(JournalWork::BeginAgain) {
                true => self.begin_again(&tier),
                false => self.append(&tier),
            };
            if let Err(error) = &written {
                give_up(&tier, &self.journal, error);
            }
            let is_over = written.is_err() || has(JournalWork::Stop);
            // Whoever gave an order may have stopped waiting.
            batch.into_iter().for_each(|order| _ = order.done.send(()));
            if is_over {
                return;
            }
        }
    }

    fn append(&mut self, tier: &Tier) -> io::Result<()> {
        let (lines, entry_count) = {
            let mut state = tier.lock();
            (state.index.take_lines(), state.index.entry_count())
        };
        self.journal.append(&lines)?;
        if self.journal.is_wasteful(entry_count) { self.replace(tier) } else { Ok(()) }
    }

    fn begin_again(&mut self, tier: &Tier) -> io::Result<()> {
        self.title.generation = tier.store.generation();
        self.replace(tier)
    }

    fn replace(&mut self, tier: &Tier) -> io::Result<()> {
        let lines = {
            let mut state = tier.lock();
            // The snapshot contains what they say.
            drop(state.index.take_lines());
            state.index.snapshot()
        };
        self.journal = TierJournal::create(self.journal.path(), self.title, &lines)?;
        Ok(())
    }
}

/// Takes the tier out of use, because the journal cannot be written: without it, removed entries could come back after
/// a kill.
fn give_up(tier: &Tier, journal: &TierJournal, error: &io::Error) {
    let path = journal.path();
    tracing::error!(%error, path = %path.display(), "the journal of the second tier cannot be written: it is not used");
    tier.is_out_of_use.store(true, Relaxed);
    drop(tier.lock().index.clear());
    if let Err(error) = fs::remove_file(path) {
        tracing::error!(%error, path = %path.display(), "the journal of the second tier cannot be removed: remove it");
    }
}
