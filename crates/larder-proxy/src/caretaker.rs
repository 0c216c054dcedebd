//! A thread that looks whether files have changed, and has them read again.
//!
//! Owns: the thread. Does not: know what is in the files. Cost: it asks for the files' times once a second.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

/// Looks after some files until it is dropped.
pub(crate) struct FileWatcher {
    /// Gone at the end, which ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What changes when a file does: time, size and identity; `None` if it is not there.
pub(crate) type FileStamp = Option<(i64, i64, u64, u64)>;

/// Returns a file's stamp.
pub(crate) fn stamp(path: &Path) -> FileStamp {
    let data = fs::metadata(path).ok()?;
    Some((data.mtime(), data.mtime_nsec(), data.size(), data.ino()))
}

impl FileWatcher {
    /// Has `reload` read the files again, which `what` names in the log, whenever their `stamps` are others. Where that
    /// fails, what was read before is to stay in use.
    ///
    /// # Errors
    /// There can be no thread.
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
                    Ok(()) => tracing::info!("{what} read again"),
                    Err(why) => tracing::warn!(why, "{what} changed and cannot be used, keeping those before"),
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
            // A panic in it has nothing left to tell.
            let _ = thread.join();
        }
    }
}

/// Time between two looks at the files.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
