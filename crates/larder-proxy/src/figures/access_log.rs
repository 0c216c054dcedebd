//! Writes the access log.
//!
//! Owns: one buffer per worker, and the writer thread. The format of lines is in `log_format`. Invariants: a slow or
//! full disk never delays an exchange, because lines that the writer cannot accept are dropped and counted. Lines in
//! the buffers when the proxy stops are written. Cost: an exchange appends one line to its worker's buffer. A buffer
//! goes to the writer when it is full, or once a second.

use larder_device::IgnorePoison;
use std::{
    fs::File,
    io::{self, Write},
    net::IpAddr,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use http::{StatusCode, Version};

use crate::{
    figures::{
        log_format::{LogFormat, SentResponse},
        outcome::{MissReason, Outcome},
    },
    ground::config::AccessLogTarget,
};

/// The access log: passes the workers' lines to the thread that writes the file.
pub(crate) struct AccessLog {
    /// Sends jobs to the writer thread. `None` once the log is closed, which ends the thread.
    sender: Option<SyncSender<LogJob>>,
    writer: Option<JoinHandle<()>>,
}

/// A job for the writer thread.
enum LogJob {
    /// Append these lines to the file.
    Write(Vec<u8>),
    /// Open the file again, and send the result.
    Reopen(Sender<io::Result<()>>),
}

/// The lines of one worker that were not passed to the writer thread yet.
#[derive(Default)]
pub(crate) struct LineBuffer(Mutex<Vec<u8>>);

/// The parts of a log line that are known before the response has been sent.
pub(crate) struct OpenLogLine {
    /// The name of this node in its fleet, if it has one.
    pub(crate) node: Option<Arc<str>>,
    pub(crate) started: Instant,
    pub(crate) client: IpAddr,
    pub(crate) method: http::Method,
    /// The URL. Its query is left out unless queries are logged.
    pub(crate) url: String,
    pub(crate) version: Version,
    /// The user that the request names, if the proxy requires credentials.
    pub(crate) user: Option<String>,
    pub(crate) outcome: Outcome,
    pub(crate) why: Option<MissReason>,
    /// The steps of the request, with their verdicts, such as `memory=miss`.
    pub(crate) steps: String,
    pub(crate) status: StatusCode,
    /// The origin that was contacted, if any.
    pub(crate) origin: Option<String>,
    pub(crate) content_type: Option<String>,
    /// Size of the response's head, in bytes.
    pub(crate) head_bytes: u64,
    /// The values of the request fields that the log's format contains, in the order of the format.
    pub(crate) request_fields: Vec<Option<String>>,
    pub(crate) response_fields: Vec<Option<String>>,
}

impl AccessLog {
    /// Opens the log and starts its writer thread.
    pub(crate) fn open(target: &AccessLogTarget) -> io::Result<Self> {
        let output = open(target)?;
        let (sender, receiver) = sync_channel(BATCH_COUNT_MAX);
        let target = target.clone();
        let writer = std::thread::Builder::new().name("larder-log".into());
        let writer = writer.spawn(move || write_all(&receiver, &target, output))?;
        Ok(Self { sender: Some(sender), writer: Some(writer) })
    }

    /// Opens the log file again after the old one was moved away. Lines written meanwhile go to either file.
    ///
    /// # Errors
    /// The file cannot be opened, or the disk blocks the writer thread. Later lines then go to the old file.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let held_up = || io::Error::new(io::ErrorKind::TimedOut, "access log is delayed by its disk");
        let sender = self.sender.as_ref().expect("it is there until the log is dropped");
        let (done, is_done) = channel();
        sender.try_send(LogJob::Reopen(done)).map_err(|_| held_up())?;
        is_done.recv_timeout(REOPEN_PATIENCE).map_err(|_| held_up())?
    }

    /// Passes lines to the writer thread. Returns the number of lines that were dropped because the thread is too far
    /// behind.
    fn offer(&self, batch: Vec<u8>) -> u64 {
        let Some(sender) = &self.sender else { return 0 };
        let line_count = batch.iter().filter(|byte| **byte == b'\n').count() as u64;
        sender.try_send(LogJob::Write(batch)).map_or(line_count, |()| 0)
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            // The thread ends when its lines are written. A panic of it was already reported.
            let _ = writer.join();
        }
    }
}

impl LineBuffer {
    /// Adds a line, and passes the buffer to the writer thread when it is full. Returns the number of dropped lines.
    pub(crate) fn push(&self, log: &AccessLog, format: &LogFormat, line: &OpenLogLine, sent: SentResponse) -> u64 {
        let mut buffer = self.0.lock().ignore_poison();
        // Writing to memory cannot fail.
        let _ = format.write(&mut *buffer, line, sent);
        if buffer.len() < BATCH_BYTES { 0 } else { log.offer(std::mem::take(&mut *buffer)) }
    }

    /// Passes the buffered lines to the writer thread. Returns the number of dropped lines.
    pub(crate) fn flush(&self, log: &AccessLog) -> u64 {
        let batch = std::mem::take(&mut *self.0.lock().ignore_poison());
        if batch.is_empty() { 0 } else { log.offer(batch) }
    }

    /// Passes the remaining lines to the writer thread, and waits until it accepts them.
    pub(crate) fn flush_last(&self, log: &AccessLog) {
        let batch = std::mem::take(&mut *self.0.lock().ignore_poison());
        if let Some(sender) = log.sender.as_ref().filter(|_| !batch.is_empty()) {
            // Sending fails only if the writer thread has panicked, which was already reported.
            let _ = sender.send(LogJob::Write(batch));
        }
    }
}

fn open(target: &AccessLogTarget) -> io::Result<Box<dyn Write + Send>> {
    match target {
        AccessLogTarget::Stdout => Ok(Box::new(io::stdout())),
        AccessLogTarget::File(path) => {
            let file = File::options().append(true).create(true).open(path).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot open the access log: {error}: {}", path.display()))
            })?;
            Ok(Box::new(file))
        }
    }
}

fn write_all(receiver: &Receiver<LogJob>, target: &AccessLogTarget, mut output: Box<dyn Write + Send>) {
    let mut reported = false;
    while let Ok(job) = receiver.recv() {
        let batch = match job {
            LogJob::Write(batch) => batch,
            LogJob::Reopen(done) => {
                let reopened = open(target).map(|file| (output, reported) = (file, false));
                // If this fails, the caller of `reopen` has stopped waiting.
                let _ = done.send(reopened);
                continue;
            }
        };
        if let Err(error) = output.write_all(&batch).and_then(|()| output.flush())
            && !reported
        {
            tracing::error!(%error, "access log cannot be written");
            reported = true;
        }
    }
}

/// Size at which a worker's buffer is passed to the writer thread, in bytes.
const BATCH_BYTES: usize = 32 << 10;
/// Maximum time to wait until the writer thread has opened the log file again.
const REOPEN_PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of batches that wait for the writer thread. Times [`BATCH_BYTES`], it limits the log's memory to 4
/// MiB.
const BATCH_COUNT_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> OpenLogLine {
        OpenLogLine {
            node: None,
            started: Instant::now(),
            client: "192.0.2.7".parse().unwrap(),
            method: http::Method::GET,
            url: "http://a.example/x y".into(),
            version: Version::HTTP_11,
            user: None,
            outcome: Outcome::MemoryHit,
            why: None,
            steps: String::new(),
            status: StatusCode::OK,
            origin: None,
            content_type: Some("text/html; charset=utf-8".into()),
            head_bytes: 100,
            request_fields: Vec::new(),
            response_fields: Vec::new(),
        }
    }

    /// Adds a line to a buffer. Returns the number of lines that were dropped.
    fn push(buffer: &LineBuffer, log: &AccessLog) -> u64 {
        buffer.push(log, &LogFormat::default(), &line(), SentResponse { bytes: 1, complete: true })
    }

    #[test]
    fn file_that_was_moved_away_is_made_anew_and_no_line_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let moved = directory.path().join("access.log.1");
        let log = AccessLog::open(&AccessLogTarget::File(path.clone())).unwrap();
        let buffer = LineBuffer::default();
        push(&buffer, &log);
        buffer.flush(&log);
        std::fs::rename(&path, &moved).unwrap();
        log.reopen().unwrap();
        push(&buffer, &log);
        buffer.flush_last(&log);
        drop(log);
        for path in [path, moved] {
            assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 1);
        }
    }

    #[test]
    fn file_that_cannot_be_opened_again_is_written_on() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("log");
        let moved = directory.path().join("moved");
        std::fs::create_dir(&folder).unwrap();
        let log = AccessLog::open(&AccessLogTarget::File(folder.join("access.log"))).unwrap();
        std::fs::rename(&folder, &moved).unwrap();
        assert!(log.reopen().unwrap_err().to_string().contains("cannot open the access log"));
        let buffer = LineBuffer::default();
        push(&buffer, &log);
        buffer.flush_last(&log);
        drop(log);
        assert_eq!(std::fs::read_to_string(moved.join("access.log")).unwrap().lines().count(), 1);
    }

    #[test]
    fn lines_reach_the_file_when_the_log_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let log = AccessLog::open(&AccessLogTarget::File(path.clone())).unwrap();
        let buffer = LineBuffer::default();
        assert_eq!(push(&buffer, &log), 0);
        assert_eq!(buffer.flush(&log), 0);
        drop(log);
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 1);
    }
}
