//! The thread that writes removals to their file, so that no caller's task waits for the disk.

use super::file::{TagRecord, encode_file};
use futures_channel::oneshot;
use larder_device::{IgnorePoison, Journal};
use std::{
    io::{self, Write},
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

/// Minimum length at which the file is replaced. It must also have grown since the last replacement.
const SNAPSHOT_BYTES_MIN: u64 = 1 << 20;
/// Most removals that are written at once.
const BATCH_MAX: usize = 1024;

/// Writes records in the order in which they are sent.
pub(super) struct TagWriter {
    path: PathBuf,
    label: u64,
    /// Length of the records at the start.
    len_bytes: u64,
    /// Whether the next write should bring all records that are still needed.
    wants_snapshot: AtomicBool,
    /// The sender to the thread, which the first removal starts.
    jobs: Mutex<Option<mpsc::Sender<WriteJob>>>,
}

struct WriteJob {
    record: TagRecord,
    /// Replaces all records of the file, this one included.
    snapshot: Option<Vec<TagRecord>>,
    done: oneshot::Sender<io::Result<bool>>,
}

/// A write that was sent to the thread. Tells whether the file has grown much since it was replaced.
pub(super) type PendingWrite = oneshot::Receiver<io::Result<bool>>;

impl TagWriter {
    pub(super) fn new(path: PathBuf, label: u64, len_bytes: u64) -> Self {
        Self { path, label, len_bytes, wants_snapshot: AtomicBool::new(false), jobs: Mutex::new(None) }
    }

    /// Returns whether the next write should bring all records that are still needed.
    pub(super) fn wants_snapshot(&self) -> bool {
        self.wants_snapshot.load(Relaxed)
    }

    /// Sends a record to the thread, or the snapshot that includes it. Does not wait for the disk.
    pub(super) fn send(&self, record: TagRecord, snapshot: Option<Vec<TagRecord>>) -> io::Result<PendingWrite> {
        let (done, outcome) = oneshot::channel();
        self.send_job(WriteJob { record, snapshot, done })?;
        Ok(outcome)
    }

    /// Waits until the record is on the disk.
    pub(super) async fn finish(&self, write: PendingWrite) -> io::Result<()> {
        let has_grown = write.await.map_err(|_| thread_ended())??;
        self.wants_snapshot.store(has_grown, Relaxed);
        Ok(())
    }

    fn send_job(&self, job: WriteJob) -> io::Result<()> {
        let mut jobs = self.jobs.lock().ignore_poison();
        if jobs.is_none() {
            let (sender, receiver) = mpsc::channel();
            let journal = Journal::new(self.path.clone(), self.len_bytes);
            let label = self.label;
            thread::Builder::new()
                .name("larder-tags".to_owned())
                .spawn(move || TagFileWriter { journal, label }.run(&receiver))?;
            *jobs = Some(sender);
        }
        let sender = jobs.as_ref().expect("set above");
        sender.send(job).map_err(|_| thread_ended())
    }
}

fn thread_ended() -> io::Error {
    io::Error::other("the thread that writes removals has ended")
}

/// The state of the thread.
struct TagFileWriter {
    journal: Journal,
    label: u64,
}

impl TagFileWriter {
    fn run(mut self, jobs: &mpsc::Receiver<WriteJob>) {
        while let Ok(first) = jobs.recv() {
            // One sync covers all jobs that have arrived in the meantime.
            let batch: Vec<_> = [first].into_iter().chain(jobs.try_iter().take(BATCH_MAX - 1)).collect();
            let outcome = self.write(&batch);
            for job in batch {
                let outcome = match &outcome {
                    Ok(()) => Ok(self.journal.has_grown(SNAPSHOT_BYTES_MIN)),
                    Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
                };
                // The caller may have stopped waiting.
                let _ = job.done.send(outcome);
            }
        }
    }

    fn write(&mut self, batch: &[WriteJob]) -> io::Result<()> {
        // A snapshot includes every record sent before it.
        let last_snapshot = batch.iter().rposition(|job| job.snapshot.is_some());
        let rest = match last_snapshot {
            Some(at) => {
                let records = batch[at].snapshot.as_deref().expect("just found");
                let content = encode_file(self.label, records);
                self.journal.replace(&mut |file| file.write_all(&content))?;
                &batch[at + 1..]
            }
            None => batch,
        };
        let bytes: Vec<u8> = rest.iter().flat_map(|job| job.record.encode()).collect();
        self.journal.append(&bytes)?;
        self.journal.sync()
    }
}
