//! Checks that a command under `larder exec` does not notice it, except by the speed: same exit code, streams and
//! signals, and the same certificates trusted.

use crate::{
    origin::Origin,
    process::{Larder, command, errors, run},
};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject},
};
use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    thread,
};
use tempfile::TempDir;

/// Creates a home with a small store in the default place.
fn home() -> TempDir {
    let home = TempDir::new().unwrap();
    assert_eq!(Larder::start(&home, &["--size", "64MiB"]).stop(), Some(0));
    home
}

/// Permits the origins of tests as targets.
const ALLOWED: [&str; 2] = ["--allow-target", "127.0.0.0/8"];

fn exec(home: &Path, flags: &[&str], script: &str) -> Command {
    let mut command = command(home);
    command.arg("exec").args(flags).args(["--", "/bin/sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A command that runs until it is told to end. Meanwhile the test uses the proxy.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
    /// The variables in its environment.
    variables: HashMap<String, String>,
}

impl Running {
    /// Starts a command that may request the origins of tests.
    fn start(home: &Path, flags: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        Self::start_with(home, &[flags, &ALLOWED].concat(), change)
    }

    fn start_with(home: &Path, flags: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let mut command = exec(home, flags, "/usr/bin/env; echo END; read line");
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut variables = HashMap::new();
        loop {
            let mut line = String::new();
            if output.read_line(&mut line).unwrap() == 0 {
                let mut told = String::new();
                child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
                panic!("it ended: {told}");
            }
            match line.trim_end().split_once('=') {
                Some((name, value)) => drop(variables.insert(name.to_owned(), value.to_owned())),
                None if line == "END\n" => return Self { child, output, variables },
                None => {}
            }
        }
    }

    fn proxy(&self) -> SocketAddr {
        self.variables["http_proxy"].strip_prefix("http://").unwrap().parse().unwrap()
    }

    /// Sends a GET through the proxy. Returns status and body.
    fn get(&self, origin: SocketAddr, path: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.proxy()).unwrap();
        write!(socket, "GET http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n").unwrap();
        parse(&mut socket)
    }

    /// Sends a GET over TLS through a tunnel to `localhost`, trusting only what the command's environment names.
    fn get_secure(&self, port: u16, path: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.proxy()).unwrap();
        write!(socket, "CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(&self.variables["SSL_CERT_FILE"]).unwrap();
        roots.add_parsable_certificates(certificates.map(Result::unwrap));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n").unwrap();
        parse(&mut stream)
    }

    /// Ends the command. Returns its standard error.
    fn end(mut self) -> String {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut told = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        self.output.read_to_string(&mut String::new()).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{told}");
        told
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse(stream: &mut impl Read) -> (u16, String) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Starts an origin over TLS whose CA is in the returned file.
fn secure_origin(directory: &Path) -> (u16, std::path::PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let file = directory.join("origin.pem");
    fs::write(&file, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = BufReader::new(StreamOwned::new(connection, socket.unwrap()));
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).is_ok_and(|count| count > 0) {}
            let answer =
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret";
            // A client that refuses the certificate has disconnected.
            let stream = stream.get_mut();
            let _ = stream.write_all(answer.as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    (port, file)
}

#[test]
fn exit_code_and_streams_are_the_commands() {
    let home = home();
    let mut child = exec(home.path(), &[], "read x; echo out $x; echo err >&2; exit 7").spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hi\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(7), &b"out hi\n"[..]));
    let told = errors(&output);
    let (first, last) = told.trim_end().split_once('\n').unwrap();
    assert!(first == "err" && last.starts_with("larder: 0 requests, 0 from cache, 0 B of 0 B saved, "), "{told}");
    for (flags, script, code, told) in [
        (&["--quiet"][..], "kill -9 $$", 137, ""),
        (&["--quiet"], "exit 0", 0, ""),
        (
            &["--summary", "json"],
            "exit 3",
            3,
            concat!(
                r#"{"bypassed":[],"bypassed_count":0,"bytes":0,"denied":[],"denied_count":0,"from_cache":0,"#,
                r#""missing":[],"missing_count":0,"#,
                r#""rejected":[],"rejected_count":0,"requests":0,"saved_bytes":0,"seconds":"#
            ),
        ),
    ] {
        let output = exec(home.path(), flags, script).output().unwrap();
        assert!(
            errors(&output).starts_with(told) && (told.is_empty() == errors(&output).is_empty()),
            "{}",
            errors(&output)
        );
        assert_eq!(output.status.code(), Some(code), "{script}");
    }
    fs::write(home.path().join("text"), "text").unwrap();
    for (program, code) in [("none", 127), ("text", 126)] {
        let program = home.path().join(program);
        let program = program.to_str().unwrap();
        let output = run(&home, &["exec", "--", program]);
        assert_eq!(output.status.code(), Some(code), "{}", errors(&output));
        let told = errors(&output);
        assert!(told.contains("help: ") && !told.contains("requests"), "nothing to sum up: {told}");
    }
    assert_eq!(run(&home, &["exec"]).status.code(), Some(2));
}

/// Guards against a machine that reaches the network only through another proxy, where every request fails without a
/// stated reason.
#[test]
fn proxy_that_was_there_before_is_gone_through() {
    let home = home();
    let origin = Origin::start();
    let elsewhere = TempDir::new().unwrap();
    let parent = Larder::start(&elsewhere, &["--size", "64MiB", "--allow-target", "127.0.0.0/8"]);
    let url = format!("http://user:secret@{}", parent.address);
    let behind = |no_proxy: &str| {
        Running::start(home.path(), &[], |command| {
            command.env("HTTPS_PROXY", &url).env("NO_PROXY", no_proxy);
        })
    };
    let first = behind("");
    assert_eq!(first.get(origin.address, "/through").0, 200);
    let nobodys = exec(home.path(), &["--quiet"], "exit 0").env("https_proxy", "http://10.0.0.1:1").output().unwrap();
    let told = errors(&nobodys).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains(&format!("contacts origins through {}", parent.address)), "{told}");
    assert!(first.end().starts_with("larder: 1 request"), "nothing to warn of");
    let second = behind("127.0.0.0/8");
    assert_eq!(second.get(origin.address, "/past").0, 200);
    second.end();
    for (path, is_there) in [("/through", true), ("/past", false)] {
        let request =
            format!("GET http://{0}{path} HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n\r\n", origin.address);
        assert_eq!(parent.send(&request).is_hit(), is_there, "{path}");
    }
}

#[test]
fn proxy_that_cannot_be_gone_through_is_told_and_one_of_ours_is_not() {
    let home = home();
    let behind =
        exec(home.path(), &[], "exit 0").env("HTTPS_PROXY", "socks5://user:secret@10.0.0.1:3128").output().unwrap();
    let told = errors(&behind);
    assert!(
        told.starts_with("larder: warning: HTTPS_PROXY names a proxy that larder cannot") && !told.contains("secret"),
        "{told}"
    );
    let inner = format!("{} exec --quiet -- /bin/true", env!("CARGO_BIN_EXE_larder"));
    let nested = exec(home.path(), &["--quiet"], &inner).output().unwrap();
    assert_eq!((nested.status.code(), errors(&nested).as_str()), (Some(0), ""));
}

#[test]
fn signals_go_on_to_the_command() {
    let home = home();
    for (signal, name, code) in [(Signal::TERM, "TERM", 9), (Signal::INT, "INT", 10), (Signal::USR1, "USR1", 11)] {
        let script = format!("trap 'exit {code}' {name}; echo ready; read x");
        let mut child = exec(home.path(), &[], &script).spawn().unwrap();
        let stdin = child.stdin.take();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
        drop(stdin);
    }
}

#[test]
fn what_one_command_fetched_the_next_has_from_the_cache() {
    let home = home();
    let origin = Origin::start();
    let first = Running::start(home.path(), &[], |_| {});
    for name in ["https_proxy", "HTTPS_PROXY", "ALL_PROXY", "CARGO_HTTP_PROXY"] {
        assert_eq!(first.variables[name], first.variables["http_proxy"], "{name}");
    }
    let bundle = Path::new(&first.variables["npm_config_cafile"]).to_owned();
    assert!(fs::read_to_string(&bundle).unwrap().matches("BEGIN CERTIFICATE").count() > 1);
    assert_eq!(first.get(origin.address, "/ab"), (200, "/ab".to_owned()));
    let told = first.end();
    assert!(told.starts_with("larder: 1 request, 0 from cache, 0 B of 3 B saved, "), "{told}");
    assert!(!bundle.exists(), "nothing is left behind");
    assert!(!home.path().join("cache/larder/control.sock").exists());
    let second = Running::start(home.path(), &["--offline"], |command| {
        command.env("JAVA_HOME", home.path().join("none")).env("JAVA_TOOL_OPTIONS", "-Dx=y");
    });
    let (before, store) = second.variables["JAVA_TOOL_OPTIONS"].split_once(" ").unwrap();
    let (_, store) = store.split_once("-Djavax.net.ssl.trustStore=").unwrap();
    assert!(before == "-Dx=y" && fs::read(store).unwrap().starts_with(&[0xfe, 0xed, 0xfe, 0xed]), "{store}");
    assert_eq!(second.get(origin.address, "/ab"), (200, "/ab".to_owned()));
    assert_eq!(second.get(origin.address, "/other").0, 504);
    let told = second.end();
    assert!(told.starts_with("larder: 2 requests, 1 from cache, 3 B of "), "{told}");
    let missing = format!(
        "larder: offline, 1 request failed because no usable response is stored:\n  http://{}/other\n",
        origin.address
    );
    assert!(told.ends_with(&missing), "{told}");
    assert_eq!(origin.count(), 1);
}

/// Checks the case of a registry that states no lifetimes, as many do. Without a lifetime from a rule, every run would
/// fetch everything again.
#[test]
fn files_of_a_registry_are_served_again_through_whichever_larder_there_is() {
    for is_running in [false, true] {
        let home = home();
        let origin = Origin::start();
        let running = is_running.then(|| Larder::start(&home, &["--allow-target", "127.0.0.0/8"]));
        let paths =
            ["/bare/pypi/packages/a-1.0-py3-none-any.whl", "/bare/pypi/simple/a/", "/bare/libs/a/b/1.0/b-1.0.jar"];
        for _ in 0..2 {
            let command = Running::start(home.path(), &[], |_| {});
            for path in paths {
                assert_eq!(command.get(origin.address, path), (200, path.to_owned()));
            }
            command.end();
        }
        assert_eq!(origin.count(), paths.len(), "beside a larder that runs: {is_running}");
        assert_eq!(running.map_or(Some(0), Larder::stop), Some(0));
    }
}

/// Guards against a CI job that saves and restores a gigabyte for a few packages.
#[test]
fn store_of_a_command_takes_the_room_that_its_content_takes() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let command = Running::start(home.path(), &[], |_| {});
    assert_eq!(command.get(origin.address, "/bytes=3000000").0, 200);
    command.end();
    let blocks = |folder: &Path| -> u64 {
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        entries.filter(|entry| entry.file_type().unwrap().is_file()).map(|file| file.metadata().unwrap().blocks()).sum()
    };
    let bytes = 512 * blocks(&home.path().join("cache/larder"));
    assert!((3_000_000..12_000_000).contains(&bytes), "{bytes}");
}

#[test]
fn tunnel_that_goes_past_the_cache_is_told_with_its_reason() {
    let home = home();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let command = Running::start(home.path(), &[], |_| {});
    let mut socket = TcpStream::connect(command.proxy()).unwrap();
    write!(socket, "CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").unwrap();
    socket.read_exact(&mut [0; 12]).unwrap();
    socket.write_all(b"SSH-2.0-x\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(listener.accept().unwrap().0).read_line(&mut line).unwrap();
    assert_eq!(line, "SSH-2.0-x\r\n");
    drop(socket);
    let told = command.end();
    let expected = format!("larder: 1 tunnel bypassed the cache:\n  localhost:{port}: no TLS\n");
    assert!(told.ends_with(&expected), "{told}");
}

#[test]
fn https_is_cached_and_only_the_commands_own_processes_trust_it() {
    let home = home();
    let (port, authority) = secure_origin(home.path());
    let trusting = |command: &mut Command| {
        command.env("SSL_CERT_FILE", &authority);
    };
    let first = Running::start(home.path(), &[], trusting);
    let second = Running::start(home.path(), &["--except", "localhost"], trusting);
    assert_eq!(first.get_secure(port, "/x"), (200, "secret".to_owned()));
    assert_eq!(second.get_secure(port, "/x"), (200, "secret".to_owned()));
    let ours = |running: &Running| {
        let bundle = fs::read_to_string(&running.variables["SSL_CERT_FILE"]).unwrap();
        assert!(
            bundle.contains(fs::read_to_string(&authority).unwrap().lines().nth(1).unwrap()),
            "it keeps what was trusted"
        );
        bundle.rsplit_once("-----BEGIN").unwrap().1.to_owned()
    };
    assert_ne!(ours(&first), ours(&second));
    let told = second.end();
    assert!(told.starts_with("larder: 1 request, 0 from cache, 0 B of "), "a tunnel: {told}");
    let told = first.end();
    assert!(told.starts_with("larder: 1 request, 0 from cache, 0 B of 6 B saved"), "{told}");
    let third = Running::start(home.path(), &["--offline"], trusting);
    assert_eq!(third.get_secure(port, "/x"), (200, "secret".to_owned()));
    assert!(third.end().starts_with("larder: 1 request, 1 from cache, 6 B of 6 B saved"));
}

/// Guards against a program that ignores the proxy variables and fetches from the network what is not stored.
#[test]
fn offline_command_has_no_network_but_the_cache() {
    let home = home();
    check_offline(|| command(home.path()));
}

/// The same with a user namespace, which users other than root need.
#[test]
fn offline_command_of_another_user_than_root_has_no_network_but_the_cache() {
    let home = TempDir::new().unwrap();
    if !geteuid().is_root() {
        return check_offline(|| command(home.path()));
    }
    let program = home.path().join("larder");
    // Another test's child could inherit a descriptor of this process that writes the file, which could not be run then.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_larder")).arg(&program).status().unwrap().success());
    chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    check_offline(|| {
        let mut command = Command::new(&program);
        command.env_clear().env("HOME", home.path()).env("TMPDIR", home.path()).stdin(Stdio::null());
        command.uid(NOBODY).gid(NOBODY);
        command
    });
}

/// The id of no user.
const NOBODY: u32 = 61_235;

fn check_offline(larder: impl Fn() -> Command) {
    let origin = Origin::start();
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    outside.set_nonblocking(true).unwrap();
    let port = outside.local_addr().unwrap().port();
    let script = format!(
        "proxy=${{http_proxy#http://}}
        exec 3<>/dev/tcp/${{proxy%:*}}/${{proxy#*:}}
        printf 'GET http://{0}/a HTTP/1.1\\r\\nHost: {0}\\r\\nConnection: close\\r\\n\\r\\n' >&3
        cat <&3
        echo; echo \"user $(id -u), allocator $_RJEM_MALLOC_CONF\"
        (exec 4<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; echo directly: $?
        exit 7",
        origin.address
    );
    let run = |flags: &[&str], allocator: Option<&str>| {
        let mut command = larder();
        command.envs(allocator.map(|settings| ("_RJEM_MALLOC_CONF", settings)));
        let output =
            command.arg("exec").args(flags).args(ALLOWED).args(["--", "/bin/bash", "-c", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(7), "{said}{}", errors(&output));
        (said, errors(&output))
    };
    let user = |said: &str| said.lines().find(|line| line.starts_with("user ")).map(str::to_owned).unwrap();
    let (online, _) = run(&[], None);
    assert!(online.contains("200 OK") && online.ends_with("directly: 0\n"), "{online}");
    assert!(outside.accept().is_ok());
    for allocator in [None, Some("narenas:2")] {
        let (offline, told) = run(&["--offline"], allocator);
        assert!(offline.contains("200 OK") && offline.contains("; hit"), "{offline}{told}");
        assert!(told.contains("larder: 1 request, 1 from cache"), "{told}");
        assert_eq!(user(&offline), user(&online) + allocator.unwrap_or_default(), "{offline}");
        if told.contains("warning: --offline binds only programs that use the proxy") {
            assert!(told.contains("ssh, rsync, ping, docker and database clients could reach the network"), "{told}");
            assert!(!told.contains("Invalid argument"), "{told}");
            assert!(offline.ends_with("directly: 0\n") && outside.accept().is_ok(), "{offline}");
        } else {
            assert!(offline.ends_with("directly: 1\n"), "{offline}");
            assert!(outside.accept().is_err(), "it came from outside of the network of the command");
        }
    }
    let missing = larder().args(["exec", "--offline", "--", "no-such-program"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    let told = errors(&missing);
    assert!(told.contains("no-such-program") && !told.contains("larder: 0 requests"), "{told}");
}

#[test]
fn several_commands_share_one_larder_which_ends_with_the_last() {
    let home = home();
    let origin = Origin::start();
    let commands: Vec<Running> = thread::scope(|scope| {
        let start = || Running::start(home.path(), &[], |_| {});
        let starting: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|starting| starting.join().unwrap()).collect()
    });
    let count = commands.len();
    for (at, command) in commands.into_iter().enumerate() {
        assert_eq!(command.get(origin.address, "/a").0, 200);
        let told = command.end();
        let hits = usize::from(at > 0);
        assert!(told.starts_with(&format!("larder: 1 request, {hits} from cache")), "{at} of {count}: {told}");
    }
    assert_eq!(origin.count(), 1);
    // It has ended, and its store is closed.
    let store = home.path().join("cache/larder/store.larder");
    let checked = run(&home, &["store", "check", store.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", errors(&checked));
}

#[test]
fn larder_that_runs_is_used_and_goes_on() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = Larder::start(&home, &["--size", "64MiB", "--allow-target", "127.0.0.0/8"]);
    let socket = home.path().join("cache/larder/control.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let command = Running::start(home.path(), &[], |_| {});
    assert_ne!(command.proxy(), larder.address);
    assert_eq!(command.get(origin.address, "/a").0, 200);
    command.end();
    assert!(!home.path().join("cache/larder/exec.log").exists(), "none was started");
    let request = format!("GET http://{0}/a HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n\r\n", origin.address);
    assert!(larder.send(&request).is_hit());
    assert_eq!(larder.stop(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn larder_that_cannot_start_says_why() {
    let home = home();
    let store = home.path().join("cache/larder/store.larder");
    fs::write(&store, "not a store").unwrap();
    let output = exec(home.path(), &[], "exit 0").output().unwrap();
    let told = errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("store.larder") && told.contains("help: "), "{told}");
}

#[test]
fn env_prints_lines_that_shells_take_and_take_back() {
    let home = TempDir::new().unwrap();
    let env = |more: &[&str]| {
        let mut command = command(home.path());
        command.env("XDG_DATA_HOME", home.path().join("data")).arg("env").args(more).output().unwrap()
    };
    let none = env(&[]);
    assert!(
        none.status.code() == Some(1) && errors(&none).contains("no larder of yours is running"),
        "{}",
        errors(&none)
    );
    let authority = home.path().join("ca");
    assert!(run(&home, &["ca", "init", "--dir", authority.to_str().unwrap()]).status.success());
    let config = home.path().join("larder.toml");
    fs::write(&config, format!("[intercept]\nhosts = [\"all\", \"all\"]\nca_dir = \"{}\"\n", authority.display()))
        .unwrap();
    let larder = Larder::start(&home, &["--size", "64MiB", "--config", config.to_str().unwrap()]);
    let set = String::from_utf8(env(&[]).stdout).unwrap();
    let script = format!("{set}echo $https_proxy; cat $SSL_CERT_FILE; {}echo [$https_proxy$SSL_CERT_FILE]", {
        String::from_utf8(env(&["--undo"]).stdout).unwrap()
    });
    let shell = Command::new("/bin/sh").args(["-c", &script]).env("PATH", "/usr/bin:/bin").output().unwrap();
    let told = String::from_utf8(shell.stdout).unwrap();
    assert!(told.starts_with(&format!("http://{}\n", larder.address)), "{told}");
    assert!(told.contains(fs::read_to_string(authority.join("ca.pem")).unwrap().trim_end()), "it trusts the authority");
    assert!(told.ends_with("\n[]\n"), "{told}");
    let github = String::from_utf8(env(&["--shell", "github"]).stdout).unwrap();
    assert!(github.lines().any(|line| line == format!("HTTPS_PROXY=http://{}", larder.address)), "{github}");
}

/// Sends a request from a process of another user. Returns the first line of the response.
fn first_line_for(user: u32, proxy: SocketAddr, request: &str) -> String {
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; printf '{request}' >&3; head -n 1 <&3", proxy.port());
    let mut command = Command::new("setpriv");
    let user = user.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "bash", "-c", &script]);
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &errors(&output)
}

/// Guards against another user of the machine who reaches, through the listener of a command, what the command's user
/// reaches.
#[test]
fn listener_serves_no_other_user_but_those_as_whom_the_command_runs() {
    if !geteuid().is_root() {
        // Only root can be several users.
        return;
    }
    let origin = Origin::start();
    let home = home();
    let requests = [
        format!("GET http://{}/a HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n", origin.address),
        "CONNECT localhost:443 HTTP/1.1\\r\\nHost: localhost:443\\r\\n\\r\\n".to_owned(),
    ];
    let running = Running::start(home.path(), &[], |_| {});
    for request in &requests {
        let told = first_line_for(NOBODY, running.proxy(), request);
        assert!(told.starts_with("HTTP/1.1 403"), "{told}");
        let told = first_line_for(0, running.proxy(), request);
        assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    }
    running.end();
    // As apt does, which downloads as a user of its own.
    let script = format!(
        "setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups bash -c 'exec 3<>/dev/tcp/127.0.0.1/${{http_proxy##*:}}
        printf \"{}\" >&3; head -n 1 <&3'",
        requests[0]
    );
    let output = exec(home.path(), &[&["--quiet"], &ALLOWED[..]].concat(), &script).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &errors(&output);
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
}

/// Checks the case of a company's gateway that signs every certificate. Programs trust its CA by settings of their own,
/// and would get a 502 for each request.
#[test]
fn authorities_that_programs_trust_by_their_own_settings_are_trusted_at_origins() {
    let home = home();
    let (port, authority) = secure_origin(home.path());
    let path = authority.to_str().unwrap();
    let pem = fs::read_to_string(&authority).unwrap().replace('\n', "\\n");
    for (file, text) in [
        (".config/pip/pip.conf", format!("[global]\ncert = {path}\n")),
        (".npmrc", format!("cafile={path}\n")),
        (".npmrc", format!("ca=\"{pem}\"\n")),
        (".gitconfig", format!("[http]\n\tsslCAInfo = {path}\n")),
        (".cargo/config.toml", format!("[http]\ncainfo = \"{path}\"\n")),
        (".yarnrc.yml", "httpsCaFilePath: ~/origin.pem\n".to_owned()),
        ("", String::new()),
    ] {
        let settings = home.path().join(file);
        if !file.is_empty() {
            fs::create_dir_all(settings.parent().unwrap()).unwrap();
            fs::write(&settings, text).unwrap();
        }
        let running = Running::start(home.path(), &[], |command| {
            if file.is_empty() {
                command.env("NODE_EXTRA_CA_CERTS", &authority);
            }
        });
        assert_eq!(running.get_secure(port, "/x"), (200, "secret".to_owned()), "{file}");
        let bundle = fs::read_to_string(&running.variables["YARN_HTTPS_CA_FILE_PATH"]).unwrap();
        assert!(bundle.contains(fs::read_to_string(&authority).unwrap().lines().nth(1).unwrap()), "{file}");
        running.end();
        if !file.is_empty() {
            fs::remove_file(settings).unwrap();
        }
    }
}

/// Guards against a package from a stranger that reaches the metadata of the cloud, or the services of the company,
/// through the cache of the command.
#[test]
fn targets_inside_are_refused_and_the_command_is_told_the_flag() {
    let home = home();
    let origin = Origin::start();
    let (port, authority) = secure_origin(home.path());
    let trusting = |command: &mut Command| {
        command.env("SSL_CERT_FILE", &authority);
    };
    let running = Running::start_with(home.path(), &[], trusting);
    for (status, told) in [
        running.get(origin.address, "/a"),
        running.get_secure(port, "/x"),
        running.get("169.254.169.254:80".parse().unwrap(), "/latest/meta-data/"),
        running.get("10.1.2.3:80".parse().unwrap(), "/"),
        running.get("[fd00::1]:80".parse().unwrap(), "/"),
    ] {
        assert!(status == 403 && told.contains(": --allow-target "), "{status}: {told}");
    }
    assert_eq!(origin.count(), 0);
    let told = running.end();
    for line in [
        "larder: 5 requests refused, because the target is not allowed:\n",
        "  127.0.0.1: 127.0.0.1, a loopback address: --allow-target 127.0.0.1/32\n",
        "  10.1.2.3: 10.1.2.3, a private address: --allow-target 10.1.2.3/32\n",
        "  fd00::1: fd00::1, a private address: --allow-target fd00::1/128\n",
    ] {
        assert!(told.contains(line), "{told}");
    }
    let allowed = Running::start_with(home.path(), &ALLOWED, trusting);
    assert_eq!(allowed.get(origin.address, "/a").0, 200);
    assert_eq!(allowed.get_secure(port, "/x").0, 200);
    assert_eq!(allowed.get("10.1.2.3:80".parse().unwrap(), "/").0, 403);
    allowed.end();
}

/// Guards against a command that starts, and fails in the middle, because the larder that it goes through has other
/// rules.
#[test]
fn command_does_not_start_if_its_larder_refuses_the_targets_that_it_names() {
    let home = home();
    let first = Running::start_with(home.path(), &[], |_| {});
    let refused = exec(home.path(), &ALLOWED, "echo started").output().unwrap();
    let told = errors(&refused).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!((refused.status.code(), &refused.stdout[..]), (Some(1), &b""[..]), "{told}");
    assert!(told.contains("does not allow all of these targets: 127.0.0.0/8") && told.contains("help: "), "{told}");
    first.end();
    let larder = Larder::start(&home, &["--allow-target", "127.0.0.0/8"]);
    let inner = exec(home.path(), &["--allow-target", "127.0.0.1", "--quiet"], "exit 0").output().unwrap();
    assert_eq!(inner.status.code(), Some(0), "a part of an allowed network: {}", errors(&inner));
    let warm = run(&home, &["warm", "--allow-target", "127.0.0.1", "http://127.0.0.1:1/"]);
    assert!(errors(&warm).contains("give it to that larder"), "{}", errors(&warm));
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn yarn_has_the_proxy_in_variables_of_its_own() {
    let home = home();
    let running = Running::start(home.path(), &[], |_| {});
    for name in ["YARN_HTTP_PROXY", "YARN_HTTPS_PROXY"] {
        assert_eq!(running.variables[name], running.variables["http_proxy"]);
    }
    assert_eq!(running.variables["YARN_HTTPS_CA_FILE_PATH"], running.variables["SSL_CERT_FILE"]);
    running.end();
}

/// Checks a container whose user has no home, or one that is mounted read-only.
#[test]
fn command_without_a_place_for_a_store_has_its_cache_in_memory_and_is_told() {
    let scratch = TempDir::new().unwrap();
    let origin = Origin::start();
    let running = Running::start(scratch.path(), &[], |command| {
        command.env("HOME", "/dev/null").env_remove("XDG_CACHE_HOME").env("TMPDIR", scratch.path());
    });
    for _ in 0..2 {
        assert_eq!(running.get(origin.address, "/a").0, 200);
    }
    assert_eq!(origin.count(), 1);
    let told = running.end();
    assert!(told.starts_with("larder: warning: responses are kept in memory only"), "{told}");
    assert!(told.contains("1 from cache"), "{told}");
}

#[test]
fn larder_that_serves_sites_only_is_left_alone_and_another_one_serves_commands() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let url = format!("http://{}", origin.address);
    let larder = Larder::start(&home, &["--size", "64MiB", "--origin", &url]);
    let first = Running::start(home.path(), &[], |_| {});
    let second = Running::start(home.path(), &[], |_| {});
    assert_eq!(first.get(origin.address, "/a").0, 200);
    assert_eq!(second.get(origin.address, "/a").0, 200);
    assert_eq!(origin.count(), 1, "both commands share one");
    let told = first.end();
    assert!(told.contains("another larder uses it"), "{told}");
    assert!(second.end().contains("1 from cache"));
    assert_eq!(larder.stop(), Some(0));
}
