//! Ends the program at a panic, unless the store contains it.
//!
//! Otherwise a bug in the proxy could leave a request without an answer. A bug in the storage engine costs only one
//! volume until it is opened again (docs/internals/rfcs/0014-failed-assertions.md).

use crate::ground::output::tell;
use std::{panic, process};

/// Installs a panic hook that aborts the program after reporting a panic, unless the store catches that panic.
pub(crate) fn end_the_program() {
    // In a debug build, the store contains no panics, so that tests notice every failed assertion.
    end_unless(|| !cfg!(debug_assertions) && larder_store::contains_panics());
}

/// Installs a panic hook that reports each panic, and aborts the program if `is_contained` then returns `false`.
fn end_unless(is_contained: fn() -> bool) {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |about| {
        report(about);
        if !is_contained() {
            tell!("error: larder ends because of this bug; please report it with the lines above");
            process::abort();
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::{Device, MemoryDevice, PanickingDevice, block_on};
    use larder_store::{ErrorKind, Hints, Store, StoreOptions, contains_panics};
    use std::{
        env,
        os::unix::process::ExitStatusExt,
        process::{Command, Output},
        sync::Arc,
        thread,
    };

    const PART: &str = "LARDER_TEST_PANICS";
    const SIGABRT: i32 = 6;
    const VOLUME_BYTES: u64 = 32 << 20;

    /// Guards against a request that is never answered, because the task that answers it is gone.
    #[test]
    fn panic_outside_of_an_engine_aborts_the_program_with_a_message() {
        let (ended, printed) = run_child("other");
        assert_eq!(ended.status.signal(), Some(SIGABRT), "{printed}");
        assert!(printed.contains("panicked at") && printed.contains("a bug of the proxy"), "{printed}");
        assert!(printed.contains("please report it"), "{printed}");
        assert!(!printed.contains("still running"), "{printed}");
    }

    /// Guards against a bug of one volume's engine that takes the whole program down.
    #[test]
    fn failed_assertion_of_an_engine_does_not_end_the_program_but_a_later_panic_does() {
        let (ended, printed) = run_child("engine");
        assert!(printed.contains("1 volume is out, still running"), "{printed}");
        assert_eq!(ended.status.signal(), Some(SIGABRT), "{printed}");
        assert!(printed.contains("a bug of the proxy"), "{printed}");
    }

    /// In a debug build, an engine's panic must abort the program too, so that tests notice every failed assertion.
    #[test]
    fn failed_assertion_of_an_engine_ends_a_debug_build() {
        let (ended, printed) = run_child("debug");
        assert_eq!(ended.status.signal().is_some(), cfg!(debug_assertions), "{printed}");
        assert_eq!(printed.contains("still running"), !cfg!(debug_assertions), "{printed}");
    }

    /// Panics if another test has started it in a child process. Otherwise, does nothing.
    #[test]
    fn child_panics() {
        match env::var(PART).as_deref() {
            Ok("debug") => {
                end_the_program();
                fail_an_engine();
            }
            Ok("engine") => {
                end_unless(contains_panics);
                fail_an_engine();
                panic_in_a_thread();
            }
            Ok(_) => {
                end_the_program();
                panic_in_a_thread();
            }
            Err(_) => {}
        }
    }

    /// Stores an entry on one of two volumes, whose engine then panics.
    fn fail_an_engine() {
        let memory = || Arc::new(MemoryDevice::new(VOLUME_BYTES)) as Arc<dyn Device>;
        let failing = Arc::new(PanickingDevice::new(memory(), contains_panics));
        let options = StoreOptions { background: false, ..StoreOptions::new("memory", VOLUME_BYTES) };
        let store = Store::open_on_all(vec![Arc::clone(&failing) as _, memory()], &options).unwrap();
        failing.panic_after(0);
        for number in 0..20 {
            let writer = store.insert(format!("key {number}").as_bytes(), "head".into(), Hints::default());
            let outcome = writer.and_then(|writer| block_on(writer.commit()));
            outcome.or_else(|error| if error.kind() == ErrorKind::Unavailable { Ok(()) } else { Err(error) }).unwrap();
        }
        let outcome = block_on(store.sync());
        assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::Unavailable));
        assert_eq!((store.stats().failed_assertions, store.stats().volumes_out), (1, 1));
        tell!("1 volume is out, still running");
    }

    fn panic_in_a_thread() {
        let outcome = thread::spawn(|| panic!("a bug of the proxy")).join();
        tell!("still running after {outcome:?}");
    }

    /// Runs [`child_panics`] in a process of its own. Returns how it ended, and what it printed.
    fn run_child(part: &str) -> (Output, String) {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "ground::panics::tests::child_panics", "--nocapture"]).env(PART, part);
        let ended = child.output().unwrap();
        let printed = [&ended.stdout[..], &ended.stderr[..]].concat();
        (ended, String::from_utf8_lossy(&printed).into_owned())
    }
}
