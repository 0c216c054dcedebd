//! The thread that writes removals to their file, so that no caller's task waits for the disk.

use super::file::{TagRecord, replace_file};
use futures_channel::oneshot;
use larder_device::IgnorePoison;
use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

/// Minimum length at which the file is replaced. It must also be twice as long as after the last replacement.
const SNAPSHOT_BYTES_MIN: u64 = 1 << 20;
/// Most removals that are written at once.
const BATCH_MAX: usize = 1024;

/// Writes records in the order in which they are sent.
pub(super) struct TagWriter {
    path: PathBuf,
    label: u64,
    /// Length of the file at the next snapshot.
    snapshot_at_bytes: AtomicU64,
    len_bytes: AtomicU64,
    /// The sender to the thread, which the first removal starts.
    jobs: Mutex<Option<mpsc::Sender<WriteJob>>>,
}

struct WriteJob {
    record: TagRecord,
    /// Replaces all records of the file, this one included.
    snapshot: Option<Vec<TagRecord>>,
    done: oneshot::Sender<io::Result<u64>>,
}

/// A write that was sent to the thread.
pub(super) struct PendingWrite {
    /// The length of the file afterwards.
    outcome: oneshot::Receiver<io::Result<u64>>,
    is_snapshot: bool,
}

impl TagWriter {
    pub(super) fn new(path: PathBuf, label: u64, len_bytes: u64) -> Self {
        let snapshot_at_bytes = AtomicU64::new(SNAPSHOT_BYTES_MIN.max(2 * len_bytes));
        Self { path, label, snapshot_at_bytes, len_bytes: AtomicU64::new(len_bytes), jobs: Mutex::new(None) }
    }

    /// Returns whether the next write should bring all records that are still needed.
    pub(super) fn wants_snapshot(&self) -> bool {
        self.len_bytes.load(Relaxed) >= self.snapshot_at_bytes.load(Relaxed)
    }

    /// Sends a record to the thread, or the snapshot that includes it. Does not wait for the disk.
    pub(super) fn send(&self, record: TagRecord, snapshot: Option<Vec<TagRecord>>) -> io::Result<PendingWrite> {
        let is_snapshot = snapshot.is_some();
        let (done, outcome) = oneshot::channel();
        self.send_job(WriteJob { record, snapshot, done })?;
        Ok(PendingWrite { outcome, is_snapshot })
    }

    /// Waits until the record is on the disk.
    pub(super) async fn finish(&self, write: PendingWrite) -> io::Result<()> {
        let len_bytes = write.outcome.await.map_err(|_| thread_ended())??;
        self.len_bytes.store(len_bytes, Relaxed);
        if write.is_snapshot {
            self.snapshot_at_bytes.store(SNAPSHOT_BYTES_MIN.max(2 * len_bytes), Relaxed);
        }
        Ok(())
    }

    fn send_job(&self, job: WriteJob) -> io::Result<()> {
        let mut jobs = self.jobs.lock().ignore_poison();
        if jobs.is_none() {
            let (sender, receiver) = mpsc::channel();
            let path = self.path.clone();
            let label = self.label;
            let len_bytes = self.len_bytes.load(Relaxed);
            thread::Builder::new()
                .name("larder-tags".to_owned())
                .spawn(move || TagFileWriter { path, label, len_bytes, file: None }.run(&receiver))?;
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
    path: PathBuf,
    label: u64,
    /// Length of the file's valid part in bytes.
    len_bytes: u64,
    file: Option<File>,
}

impl TagFileWriter {
    fn run(mut self, jobs: &mpsc::Receiver<WriteJob>) {
        while let Ok(first) = jobs.recv() {
            // One sync covers all jobs that have arrived in the meantime.
            let batch: Vec<_> = [first].into_iter().chain(jobs.try_iter().take(BATCH_MAX - 1)).collect();
            let outcome = self.write(&batch);
            if outcome.is_err() {
                // A failed write may have left anything in the file. The next write opens it again and starts at the
                // end of the valid part.
                self.file = None;
            }
            for job in batch {
                let outcome = match &outcome {
                    Ok(()) => Ok(self.len_bytes),
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
                self.file = None;
                self.len_bytes = replace_file(&self.path, self.label, records)?;
                &batch[at + 1..]
            }
            None => batch,
        };
        if rest.is_empty() { Ok(()) } else { self.append(rest.iter().map(|job| job.record)) }
    }

    fn append(&mut self, records: impl Iterator<Item = TagRecord>) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(OpenOptions::new().write(true).open(&self.path)?),
        };
        let bytes: Vec<u8> = records.flat_map(TagRecord::encode).collect();
        file.set_len(self.len_bytes)?;
        file.seek(SeekFrom::Start(self.len_bytes))?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        self.len_bytes += bytes.len() as u64;
        Ok(())
    }
}
