//! Guards against a service that runs with more rights than the package's, and files of the administrator that an
//! installation overwrites.

use super::*;
use std::{cell::RefCell, os::unix::process::ExitStatusExt, process::ExitStatus};
use tempfile::TempDir;

/// A machine that systemd runs, in a folder. Its commands are recorded; those in `failing` fail.
struct Bench {
    root: TempDir,
    calls: RefCell<Vec<String>>,
    failing: &'static [&'static str],
}

impl Bench {
    fn new(failing: &'static [&'static str]) -> Self {
        let root = TempDir::new().unwrap();
        fs::create_dir_all(root.path().join("run/systemd/system")).unwrap();
        Self { root, calls: RefCell::default(), failing }
    }

    fn on<T>(&self, work: impl FnOnce(&Machine<'_>) -> T) -> T {
        let execute = |command: &[&str]| {
            let line = command.join(" ");
            let has_failed = self.failing.iter().any(|failing| line.starts_with(failing));
            self.calls.borrow_mut().push(line);
            let status = ExitStatus::from_raw(i32::from(has_failed) << 8);
            Ok(Output { status, stdout: Vec::new(), stderr: b"no".to_vec() })
        };
        work(&Machine { root: self.root.path().to_owned(), execute: &execute })
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.path().join(path.trim_start_matches('/'))).ok()
    }

    fn has_called(&self, start: &str) -> bool {
        self.calls.borrow().iter().any(|call| call.starts_with(start))
    }
}

/// A new machine has no such user, and the service does not run.
const NEW: &[&str] = &["getent passwd", "systemctl --quiet is-active"];
/// A program that everybody may execute.
const PROGRAM: &str = "/bin/sh";

#[test]
fn installed_unit_is_the_packages_with_the_path_of_the_program() {
    let bench = Bench::new(NEW);
    bench.on(|machine| machine.install(Path::new(PROGRAM))).unwrap();
    let unit = bench.read(UNIT_PATH).unwrap();
    for line in [format!("ExecStart={PROGRAM} run --config {CONFIG_PATH}"), format!("ExecReload={PROGRAM} reload")] {
        assert!(unit.lines().any(|found| found == line), "{line}: {unit}");
    }
    assert!(!unit.contains(PACKAGED_PROGRAM) && !unit.contains(PACKAGED_MANUAL), "{unit}");
    assert!(PACKAGED_UNIT.contains(PACKAGED_MANUAL));
    for hardening in ["User=larder", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes"] {
        assert!(unit.lines().any(|found| found == hardening), "{hardening}: {unit}");
    }
    assert_eq!(bench.read(CONFIG_PATH).as_deref(), Some(PACKAGED_CONFIG));
    for call in ["useradd --system", "systemctl daemon-reload", "systemctl enable", "systemctl start"] {
        assert!(bench.has_called(call), "{call}: {:?}", bench.calls);
    }
}

#[test]
fn second_installation_keeps_the_configuration_and_the_running_process() {
    let bench = Bench::new(&[]);
    let config = bench.root.path().join(CONFIG_PATH.trim_start_matches('/'));
    write(&config, "of the administrator").unwrap();
    bench.on(|machine| machine.install(Path::new(PROGRAM))).unwrap();
    bench.on(|machine| machine.install(Path::new(PROGRAM))).unwrap();
    assert_eq!(bench.read(CONFIG_PATH).as_deref(), Some("of the administrator"));
    assert!(!bench.has_called("useradd") && !bench.has_called("systemctl start"), "{:?}", bench.calls);
}

#[test]
fn unit_of_somebody_else_is_neither_replaced_nor_removed() {
    for path in [UNIT_PATH, PACKAGED_UNIT_PATHS[0]] {
        let bench = Bench::new(NEW);
        write(&bench.root.path().join(path.trim_start_matches('/')), "[Service]\n").unwrap();
        assert!(bench.on(|machine| machine.install(Path::new(PROGRAM))).is_err(), "{path}");
        assert!(bench.on(|machine| machine.uninstall()).is_err(), "{path}");
        assert_eq!(bench.read(path).as_deref(), Some("[Service]\n"));
        assert!(bench.calls.borrow().is_empty(), "{:?}", bench.calls);
    }
}

#[test]
fn uninstall_removes_the_unit_and_keeps_the_configuration() {
    let bench = Bench::new(NEW);
    bench.on(|machine| machine.install(Path::new(PROGRAM))).unwrap();
    bench.on(|machine| machine.uninstall()).unwrap();
    assert_eq!(bench.read(UNIT_PATH), None);
    assert!(bench.read(CONFIG_PATH).is_some() && bench.has_called("systemctl disable --now"));
}

/// Guards against a unit that is written and fails with the exit code 203, which names no cause.
#[test]
fn program_that_the_service_could_not_run_is_refused_with_the_remedy() {
    let home = TempDir::new().unwrap();
    let hidden = home.path().join("larder");
    let spaced = Path::new(PROGRAM).join("a larder");
    let specifier = Path::new(PROGRAM).join("%h");
    for program in [hidden, Path::new(HIDDEN_PATHS[0]).join("larder"), spaced, specifier] {
        let bench = Bench::new(NEW);
        let failure = bench.on(|machine| machine.install(&program)).unwrap_err();
        assert!(failure.told().1.contains("install -m 755"), "{failure:?}");
        assert!(bench.calls.borrow().is_empty() && bench.read(UNIT_PATH).is_none());
    }
}

#[test]
fn machine_without_systemd_is_told_what_to_run_instead() {
    let bench = Bench::new(NEW);
    fs::remove_dir(bench.root.path().join("run/systemd/system")).unwrap();
    let failure = bench.on(|machine| machine.require_systemd(Path::new(PROGRAM))).unwrap_err();
    assert!(failure.told().1.ends_with(&format!("{PROGRAM} run --config {CONFIG_PATH}")), "{failure:?}");
}

#[test]
fn service_that_does_not_start_is_a_failure() {
    let bench = Bench::new(&["getent passwd", "systemctl --quiet is-active", "systemctl start"]);
    assert!(bench.on(|machine| machine.install(Path::new(PROGRAM))).is_err());
    assert!(bench.has_called("journalctl"));
}
