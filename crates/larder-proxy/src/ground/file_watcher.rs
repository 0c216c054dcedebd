//! A thread that watches files for changes and triggers a reload.
//!
//! It does not know the content of the files. Cost: it reads the files' times once a second.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

/// A thread that watches files for changes until this is dropped.
pub(crate) struct FileWatcher {
    /// Ends the thread when dropped. `None` once the watcher is dropped.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Modification time (seconds and nanoseconds), length and inode of a file. `None` if it does not exist.
pub(crate) type FileStamp = Option<(i64, i64, u64, u64)>;

/// Returns the facts that differ once a file has changed. `None` if the file cannot be read.
pub(crate) fn stamp(path: &Path) -> FileStamp {
    let data = fs::metadata(path).ok()?;
    Some((data.mtime(), data.mtime_nsec(), data.size(), data.ino()))
}

impl FileWatcher {
    /// Starts a thread that calls `reload` whenever the result of `stamps` changes.
    ///
    /// `what` names the files in log lines. A `reload` that fails must keep the previous content.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        what: &'static str,
        stamps: impl Fn() -> Vec<FileStamp> + Send + 'static,
        reload: impl Fn() -> Result<(), String> + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let mut seen = stamps();
        let look_after = move || {
            while stopped.recv_timeout(LOOK_PAUSE) == Err(RecvTimeoutError::Timeout) {
                let found = stamps();
                if found == seen {
                    continue;
                }
                seen = found;
                match reload() {
                    Ok(()) => tracing::info!("{what} reloaded"),
                    Err(why) => tracing::warn!(why, "{what} changed but cannot be used, keeping the previous ones"),
                }
            }
        };
        let thread = std::thread::Builder::new().name("larder-files".into()).spawn(look_after)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}

/// Time between two checks of the files.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
