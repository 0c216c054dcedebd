//! Cleanup at the end of a measurement, even if a signal ends it: scratch files, folders, devices, processes.
//!
//! Owns: the list of cleanup steps, and the thread that waits for SIGINT, SIGTERM and SIGHUP while there are any.
//! Invariant: each step runs once, the latest first, when its [`Undo`] is dropped or at the signal. After a signal, the
//! process exits as if the signal had ended it. While an [`EndsEarly`] exists, the first signal only requests an early
//! end, so that the results so far are not lost; a second signal ends the process. SIGKILL cannot be handled.

use larder_device::IgnorePoison;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{self, Child, Command},
    sync::{
        Mutex, MutexGuard, Once,
        atomic::{AtomicI32, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};
use tokio::signal::unix::{SignalKind, signal};

type Work = Box<dyn FnOnce() + Send>;

static PENDING: Mutex<Vec<(u64, Work)>> = Mutex::new(Vec::new());
/// Number of running measurements that can end early.
static EARLY: AtomicUsize = AtomicUsize::new(0);
/// Number of the signal that requested an early end. 0 if there was none.
static ASKED: AtomicI32 = AtomicI32::new(0);
/// Maximum number of attempts to remove a folder. An attempt fails if another process creates files in the folder at
/// the same time.
const REMOVALS_MAX: u32 = 1000;
/// Number that is added to a signal's number to get the exit code, as shells do for a process that a signal ended.
const EXIT_BASE: i32 = 128;

/// A registered cleanup step. Dropping this runs the step.
pub(crate) struct Undo(u64);

impl Undo {
    /// Registers `work` as a cleanup step. The caller must do this before it creates the thing that `work` removes.
    pub(crate) fn by(work: impl FnOnce() + Send + 'static) -> Self {
        watch();
        Self::listed(&mut lock(), Box::new(work))
    }

    /// Adds `work` to the list of cleanup steps.
    fn listed(pending: &mut Vec<(u64, Work)>, work: Work) -> Self {
        let number = pending.last().map_or(0, |(number, _)| number + 1);
        pending.push((number, work));
        Self(number)
    }

    /// Registers the removal of `path`: a file, or a folder with its content. A missing path is not an error.
    pub(crate) fn removes(path: PathBuf) -> Self {
        Self::by(move || remove(&path))
    }

    /// Starts a process, and registers a cleanup step that kills it. The owner of the child must wait for its end.
    ///
    /// The list of steps is locked meanwhile. A signal then either finds the process in the list, or ends this process
    /// before the child exists.
    pub(crate) fn starts(command: &mut Command) -> io::Result<(Child, Self)> {
        watch();
        let mut pending = lock();
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let kill = move || {
            // Killing fails only if the process has already ended. The owner of the child collects its exit status.
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        };
        Ok((child, Self::listed(&mut pending, Box::new(kill))))
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let mut pending = lock();
        if let Some(at) = pending.iter().position(|(number, _)| *number == self.0) {
            let (_, work) = pending.remove(at);
            drop(pending);
            work();
        }
    }
}

/// Marks a measurement as able to end early: after the first signal, it ends by itself. Dropping this removes the mark.
pub(crate) struct EndsEarly(());

impl EndsEarly {
    pub(crate) fn begin() -> Self {
        watch();
        EARLY.fetch_add(1, Ordering::AcqRel);
        Self(())
    }

    /// Returns whether a signal has requested an early end.
    pub(crate) fn is_asked(&self) -> bool {
        ASKED.load(Ordering::Acquire) != 0
    }

    /// Returns the exit code that a shell reports for a process that the signal ended. `None` if no signal has
    /// requested an early end.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        Some(ASKED.load(Ordering::Acquire)).filter(|signal| *signal != 0).map(|signal| EXIT_BASE + signal)
    }
}

impl Drop for EndsEarly {
    fn drop(&mut self) {
        EARLY.fetch_sub(1, Ordering::AcqRel);
    }
}

fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let (sender, watching) = mpsc::channel();
        thread::spawn(move || wait_for_signals(&sender));
        // An error means that signals cannot be watched. They then end the process at once, as usual.
        let _ = watching.recv();
    });
}

fn lock() -> MutexGuard<'static, Vec<(u64, Work)>> {
    PENDING.lock().ignore_poison()
}

fn wait_for_signals(watching: &mpsc::Sender<()>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
    runtime.block_on(async {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else { return };
        let _ = watching.send(());
        let kind = loop {
            let kind = tokio::select! {
                _ = interrupt.recv() => kinds[0],
                _ = terminate.recv() => kinds[1],
                _ = hangup.recv() => kinds[2],
            };
            if EARLY.load(Ordering::Acquire) == 0 || ASKED.swap(kind.as_raw_value(), Ordering::AcqRel) != 0 {
                break kind;
            }
        };
        // The list stays locked until the process ends, so that nothing is started that would need cleanup.
        let mut pending = lock();
        while let Some((_, work)) = pending.pop() {
            work();
        }
        process::exit(EXIT_BASE + kind.as_raw_value());
    });
}

fn remove(path: &Path) {
    let once = || if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    let mut removed = once();
    for _ in 1..REMOVALS_MAX {
        match &removed {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => removed = once(),
            _ => break,
        }
    }
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        // Standard error may have no reader any more, so an error is ignored.
        let _ = writeln!(io::stderr(), "cannot remove {}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_gone_when_its_undo_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let inner = folder.path().join("folder");
        fs::write(&file, "x").unwrap();
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("file"), "x").unwrap();
        let undone =
            [Undo::removes(file.clone()), Undo::removes(inner.clone()), Undo::removes(folder.path().join("none"))];
        assert!(file.exists() && inner.exists());
        drop(undone);
        assert!(!file.exists() && !inner.exists());
    }
}
