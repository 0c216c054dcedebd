//! Guards against commands that do not find a running Larder, or send commands to another one than the user meant.

use crate::process::{Larder, command, errors, refused, run, said};
use rustix::{
    process::{Uid, geteuid},
    thread::set_thread_res_uid,
};
use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::{PermissionsExt, chown},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver},
    },
    thread,
};
use tempfile::TempDir;

/// Sends `offline status` to the Larder that this environment leads to. Returns whether one was found, and the output.
fn status(home: &TempDir, environment: &[(&str, &str)]) -> (bool, String) {
    let output = command(home.path()).envs(environment.iter().copied()).args(["offline", "status"]).output().unwrap();
    (output.status.success(), errors(&output))
}

/// Guards against a user who copies the settings of a package manager, and they lead to a port where nothing listens.
#[test]
fn settings_of_a_mirrors_clients_have_the_address_of_the_running_proxy() {
    let home = TempDir::new().unwrap();
    let without = run(&home, &["mirror", "show", "npm"]);
    assert!(errors(&without).contains("no larder of yours is running"), "{}", errors(&without));
    assert!(String::from_utf8_lossy(&without.stdout).contains("--registry http://127.0.0.1:3128/npm/"));
    let larder = Larder::start(&home, &["--disk", "none", "--mirror", "npm"]);
    let shown = said(&home, &["mirror", "show", "npm"]);
    assert!(shown.contains(&format!("--registry http://{}/npm/", larder.address)), "{shown}");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn proxy_on_a_disk_of_its_own_is_found_without_a_runtime_directory() {
    let home = TempDir::new().unwrap();
    let store = home.path().join("my.store");
    let larder = Larder::start(&home, &["--disk", store.to_str().unwrap(), "--size", "64MiB"]);
    assert!(!larder.start_lines.contains("warning"), "{}", larder.start_lines);
    said(&home, &["reload"]);
    assert_eq!(larder.stop(), Some(0));
    refused(&home, &["reload"], 1);
}

#[test]
fn socket_is_in_the_temporary_directory_where_there_is_no_better_place() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("file");
    let temporary = home.path().join("tmp");
    fs::write(&file, "").unwrap();
    fs::create_dir(&temporary).unwrap();
    let cache = file.to_str().unwrap();
    let temporary = temporary.to_str().unwrap();
    let environment = [("XDG_CACHE_HOME", cache), ("TMPDIR", temporary)];
    let larder = Larder::start_in(&home, &environment, &["--disk", "none"]);
    assert!(!larder.start_lines.contains("warning"), "{}", larder.start_lines);
    assert!(status(&home, &environment).0);
    assert_eq!(larder.stop(), Some(0));
    assert!(!status(&home, &environment).0);
}

#[test]
fn start_warns_with_the_path_where_no_socket_can_be_made() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let place = file.to_str().unwrap();
    let larder = Larder::start_in(&home, &[("XDG_CACHE_HOME", place), ("TMPDIR", place)], &["--disk", "none"]);
    let warning = larder.start_lines.lines().find(|line| line.starts_with("  warning ")).unwrap_or_default();
    assert!(warning.contains("do not find this proxy") && warning.contains(&format!("{place}/larder-")), "{warning}");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn several_larders_are_listed_and_one_is_chosen() {
    let home = TempDir::new().unwrap();
    let [first, second] = [(); 2].map(|()| Larder::start(&home, &["--disk", "none"]));
    let socket = home.path().join(format!("cache/larder/control-{}.sock", second.id()));
    let (is_found, told) = status(&home, &[]);
    assert!(!is_found && told.contains("several larders are running: ") && told.contains("LARDER_CONTROL="), "{told}");
    for larder in [&first, &second] {
        assert!(told.contains(&format!("(listens on {})", larder.address)), "{told}");
    }
    let chosen = ("LARDER_CONTROL", socket.to_str().unwrap());
    assert!(status(&home, &[chosen]).0);
    assert_eq!(second.stop(), Some(0));
    let (is_found, told) = status(&home, &[chosen]);
    assert!(!is_found && told.contains("no larder listens at LARDER_CONTROL"), "{told}");
    assert!(status(&home, &[]).0, "one is left");
    assert_eq!(first.stop(), Some(0));
}

/// A program that listens where the test user's Larder would, and records the commands it receives.
struct Impostor {
    home: TempDir,
    socket: PathBuf,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Impostor {
    /// Listens as `user` in `folder`, which then gets its owner and mode.
    fn listen(user: u32, folder: &str, owner: u32, mode: u32) -> Self {
        let home = TempDir::new().unwrap();
        let folder = home.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        for path in [home.path(), &folder] {
            fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        }
        let socket = folder.join("control.sock");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let path = socket.clone();
        let recorded = Arc::clone(&asked);
        let (ready, is_ready): (_, Receiver<()>) = mpsc::channel();
        thread::spawn(move || {
            let user = Uid::from_raw(user);
            // Of this thread alone.
            set_thread_res_uid(user, user, user).unwrap();
            let listener = UnixListener::bind(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
            ready.send(()).unwrap();
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok_and(|count| count > 0) {
                    recorded.lock().unwrap().push(std::mem::take(&mut line));
                    // The client has already disconnected if it refused the connection.
                    let _ = stream.get_mut().write_all(b"{\"Refused\":{\"problem\":\"taken\",\"help\":\"in\"}}\n");
                }
            }
        });
        is_ready.recv().unwrap();
        chown(&folder, Some(owner), None).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        Self { home, socket, asked }
    }

    /// Runs a command while the impostor listens. Returns its exit code and its output.
    fn run(&self, runtime: &Path, chosen: Option<&Path>, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = command(self.home.path());
        command.env("XDG_RUNTIME_DIR", runtime).env("TMPDIR", self.home.path()).args(arguments);
        command.envs(chosen.map(|socket| ("LARDER_CONTROL", socket)));
        let output = command.output().unwrap();
        (output.status.code(), errors(&output))
    }

    /// Checks that no command uses the impostor, that each states the reason, and that `exec` runs without it.
    #[track_caller]
    fn check_refused(&self, why: &str) {
        let runtime = self.home.path().join("run");
        let chosen = Some(self.socket.as_path());
        let commands: [(&str, Option<&Path>, &[&str]); 5] = [
            ("reload", None, &["reload"]),
            ("offline", None, &["offline", "status"]),
            ("ls", None, &["ls"]),
            ("chosen", chosen, &["offline", "status"]),
            ("exec", None, &["exec", "--quiet", "--", "true"]),
        ];
        for (name, chosen, arguments) in commands {
            let (code, said) = self.run(&runtime, chosen, arguments);
            assert_eq!(code, Some(i32::from(name != "exec")), "{name}: {said}");
            let expected = format!("the control socket {} is not trusted: {why}", self.socket.display());
            assert!(said.contains(&expected) && said.contains("XDG_RUNTIME_DIR"), "{name}: {said}");
        }
        assert!(self.asked.lock().unwrap().is_empty(), "asked: {:?}", self.asked);
    }
}

#[test]
fn socket_in_a_directory_that_others_may_write_to_is_refused() {
    let own = geteuid().as_raw();
    let impostor = Impostor::listen(own, "run/larder", own, 0o777);
    impostor.check_refused("other users may write to the directory (mode 777)");
    let impostor = Impostor::listen(own, "run/larder", own, 0o770);
    impostor.check_refused("other users may write to the directory (mode 770)");
}

#[test]
fn socket_of_another_user_is_refused() {
    if !geteuid().is_root() {
        // Only root can act as two users. For other users, the unit tests of `control::private` check this.
        return;
    }
    let impostor = Impostor::listen(STRANGER, "run/larder", STRANGER, 0o700);
    impostor.check_refused(&format!("the directory belongs to another user (uid {STRANGER})"));
    // Its directory was open to others once.
    let impostor = Impostor::listen(STRANGER, "run/larder", 0, 0o700);
    impostor.check_refused(&format!("another user listens on it (uid {STRANGER})"));
}

/// The id of no user.
const STRANGER: u32 = 61_234;
