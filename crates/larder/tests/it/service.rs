//! Guards against a service that is wrongly reported as started, healthy or stopped, and connections lost during its
//! restart.

use crate::{
    origin::Origin,
    process::{Larder, Response, command, errors, run},
};
use rustix::process::Signal;
use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// The messages that a service manager receives.
struct Manager {
    socket: UnixDatagram,
    path: String,
}

impl Manager {
    fn new(home: &TempDir) -> Self {
        let path = home.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { socket, path: path.to_str().unwrap().to_owned() }
    }

    fn next(&self) -> String {
        let mut buffer = [0; 512];
        let count = self.socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    /// Waits for the first message with this line.
    fn wait_for(&self, line: &str) -> String {
        loop {
            let message = self.next();
            if message.lines().any(|told| told == line) {
                return message;
            }
        }
    }
}

#[test]
fn service_manager_is_told_when_it_is_ready_reloads_and_stops() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let manager = Manager::new(&home);
    let url = format!("http://{}", origin.address);
    let environment = [("NOTIFY_SOCKET", manager.path.as_str())];
    let larder = Larder::start_in(&home, &environment, &["--disk", "none", "--origin", &url]);
    assert_eq!(manager.next().trim(), "READY=1");
    assert_eq!(larder.get("/a").status, 200);
    larder.signal(Signal::HUP);
    let reloading = manager.next();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(manager.next().trim(), "READY=1");
    assert_eq!(larder.stop(), Some(0));
    let stopping = manager.next();
    assert!(stopping.starts_with("STOPPING=1\nEXTEND_TIMEOUT_USEC=70000000"), "{stopping}");
}

#[test]
fn watchdog_is_told_again_and_again_that_all_is_well() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let manager = Manager::new(&home);
    let url = format!("http://{}", origin.address);
    let environment = [("NOTIFY_SOCKET", manager.path.as_str()), ("WATCHDOG_USEC", "300000")];
    let larder = Larder::start_in(&home, &environment, &["--disk", "none", "--origin", &url]);
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1");
    }
    assert_eq!(larder.stop(), Some(0));
}

/// Guards against a service that is restarted or killed by its watchdog, because the manager does not know its new
/// process.
#[test]
fn service_manager_is_told_which_process_goes_on_after_an_upgrade() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let manager = Manager::new(&home);
    let url = format!("http://{}", origin.address);
    let folder = home.path().join("run");
    fs::create_dir(&folder).unwrap();
    let environment = [("NOTIFY_SOCKET", manager.path.as_str()), ("RUNTIME_DIRECTORY", folder.to_str().unwrap())];
    let mut larder = Larder::start_in(&home, &environment, &["--disk", "none", "--origin", &url]);
    assert_eq!(manager.next().trim(), "READY=1");
    let output = command(home.path()).env("RUNTIME_DIRECTORY", &folder).arg("upgrade").output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let told = manager.next();
    let id: i32 = told.trim().strip_prefix("MAINPID=").expect("it is told first").parse().unwrap();
    assert_ne!(id.cast_unsigned(), larder.id());
    assert_eq!(manager.next().trim(), "READY=1", "the new one says that it is ready");
    larder.close_errors();
    assert_eq!(larder.wait(), Some(0));
    assert_eq!(larder.get("/a").status, 200);
    rustix::process::kill_process(rustix::process::Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
    manager.wait_for("STOPPING=1");
}

/// Starts a larder that receives `socket` as from a service manager.
fn start_on(home: &TempDir, socket: &TcpListener, listen: SocketAddr, origin: &Origin) -> Child {
    let larder = env!("CARGO_BIN_EXE_larder");
    // Only the shell knows its own process number, and `exec` keeps it.
    let script = format!(
        "LISTEN_PID=$$ LISTEN_FDS=1 exec {larder} run --disk none --origin http://{} --listen {listen} 3<&0 </dev/null 2>{}",
        origin.address,
        log(home).display()
    );
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", &script]).env_clear().env("HOME", home.path());
    shell.stdin(OwnedFd::from(socket.try_clone().unwrap()));
    shell.stdout(Stdio::null()).spawn().unwrap()
}

/// Returns the path of its log.
fn log(home: &TempDir) -> PathBuf {
    home.path().join("log")
}

#[test]
fn socket_of_the_service_manager_keeps_who_waits_over_a_restart() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    for _ in 0..2 {
        // Nothing accepts this connection yet, so it waits.
        let waiting = std::thread::spawn(move || Response::get(address, "/a"));
        let mut larder = start_on(&home, &socket, address, &origin);
        assert_eq!(waiting.join().unwrap().status, 200);
        rustix::process::kill_process(rustix::process::Pid::from_child(&larder), Signal::TERM).unwrap();
        assert_eq!(larder.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn socket_for_which_there_is_no_listener_is_told() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut larder = start_on(&home, &socket, "127.0.0.1:0".parse().unwrap(), &origin);
    assert_eq!(larder.wait().unwrap().code(), Some(2));
    let told = fs::read_to_string(log(&home)).unwrap();
    assert!(told.contains("a socket was handed over without a listener for it: 127.0.0.1:"), "{told}");
}

#[test]
fn commands_find_a_service_by_the_directory_that_was_made_for_it() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let folder = home.path().join("run");
    fs::create_dir(&folder).unwrap();
    let url = format!("http://{}", origin.address);
    let environment = [("RUNTIME_DIRECTORY", folder.to_str().unwrap())];
    let larder = Larder::start_in(&home, &environment, &["--disk", "none", "--origin", &url]);
    assert!(folder.join("control.sock").exists());
    let found = command(home.path()).env("RUNTIME_DIRECTORY", &folder).arg("reload").output().unwrap();
    assert!(found.status.success(), "{}", errors(&found));
    assert!(!run(&home, &["reload"]).status.success(), "it is nobody's own");
    assert_eq!(larder.stop(), Some(0));
    assert!(!folder.join("control.sock").exists());
}
