//! Checks that every mistake gets one screen that says what to do, with the right exit code, and changes nothing.

use crate::process::{Larder, run};
use std::{
    fs,
    net::TcpListener,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// Lines of a terminal of the smallest usual size.
const SCREEN_LINES: usize = 24;

/// Runs larder, which must fail with `code`, print all of `expected`, and leave `home` unchanged.
fn check(home: &TempDir, arguments: &[&str], code: i32, expected: &[&str]) {
    let before = contents(home.path());
    let output = run(home, arguments);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    // The text may be wrapped anywhere, with a bar before continued lines, so only words are compared.
    let words = errors.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    for text in expected.iter().chain(&["help:"]) {
        assert!(words.contains(text), "{arguments:?}: {text:?} is not in {errors}");
    }
    assert!(errors.lines().count() <= SCREEN_LINES, "{errors}");
    assert!(output.stdout.is_empty(), "errors do not go to standard output");
    assert_eq!(contents(home.path()), before, "{arguments:?} changed something");
}

/// Returns every file below `folder` with a checksum of its bytes.
fn contents(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            let bytes = fs::read(&path).unwrap();
            // FNV-1a over words: it detects any change and is fast enough for a store.
            let words = bytes.chunks(8).map(|word| word.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)));
            let sum = words.fold(0xcbf2_9ce4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x0100_0000_01b3));
            found.push((path, sum));
        }
    }
    found.sort();
    found
}

#[test]
fn wrong_flags_are_refused_with_what_is_right() {
    let home = TempDir::new().unwrap();
    for (arguments, expected) in [
        (&["run", "--size", "1XB"][..], &["--size: unknown unit in size: `1XB`", "1GiB in 1024s"][..]),
        (&["run", "--memory", "lots"], &["--memory: not a size: `lots`"]),
        (&["run", "--listen", "example.com:80"], &["--listen: not an address to listen on", "127.0.0.1:3128"]),
        (&["run", "--listen", "0.0.0.0:3128"], &["requires a list of clients: 0.0.0.0:3128", "--allow-client"]),
        (&["run", "--admin", "0.0.0.0:3180"], &["must be on this machine: 0.0.0.0:3180"]),
        (&["run", "--origin", "example.com"], &["example.com", "an origin is a URL such as"]),
        (&["run", "--allow-client", "lan"], &["--allow-client: not a network: `lan`"]),
        (&["run", "--drain", "10s"], &["unknown flag or argument: `--drain`", "did you mean `--drain-timeout`?"]),
        (&["run", "--drain-timeout", "10"], &["--drain-timeout: a duration without a unit: `10`"]),
        (&["run", "--io", "magic"], &["--io: unknown I/O method: `magic`", "auto, uring or threads"]),
        (&["run", "--sise", "1GB"], &["unknown flag or argument: `--sise`", "did you mean `--size`?"]),
        (&["run", "--policy", "hashcache-logs"], &["did you mean `hashcache-log`?"]),
        (&["run", "--tune", "sorted_read=on"], &["unknown constant: `sorted_read`", "did you mean `sorted_reads`?"]),
        (&["sim", "run", "--policy", "hashcash-log"], &["did you mean `hashcache-log`?"]),
        (&["run", "--memory", "10MB"], &["10 MB of --memory is too little", "give at least ", "--memory-cache"]),
        (&["run", "--memory", "100000TB"], &["--memory is more than the ", "available here"]),
        (&["run", "--disk", "none", "--size", "1GB"], &["a size is given, but no store on disk", "add --disk"]),
        (&["run", "--listen", "3128", "--listen", "3128"], &["the same address: 127.0.0.1:3128"]),
        (&["start"], &["unknown command: `start`", "did you mean `run`? see larder --help"]),
        (&["serve"], &["unknown command: `serve`", "did you mean `run`? see larder --help"]),
        (&["status"], &["unknown command: `status`", "did you mean `top`? see larder --help"]),
        (&["run", "--port", "3128"], &["unknown flag or argument: `--port`", "did you mean `--listen`?"]),
        (&["run", "--upstream", "http://a"], &["`--upstream`", "did you mean `--origin`? see larder run --help"]),
        (&["sim", "generate"], &["unknown command: `generate`", "larder sim --help lists the commands"]),
        (&["sim", "run", "--sead", "1"], &["unknown flag or argument: `--sead`", "did you mean `--seed`?"]),
    ] {
        check(&home, arguments, 2, expected);
    }
}

/// Guards against a user who has to read the whole help to find out which words a flag accepts.
#[test]
fn wrong_word_is_answered_with_the_words_there_are_and_the_command_whose_help_to_see() {
    let home = TempDir::new().unwrap();
    for (arguments, expected) in [
        (
            &["exec", "--summary", "xml", "true"][..],
            &["--summary: unknown value: `xml`", "text, json", "larder exec --help"][..],
        ),
        (&["ls", "--sort", "color"], &["--sort: unknown value: `color`", "size, age, hits", "larder ls --help"]),
        (
            &["completions", "tcsh"],
            &["unknown value: `tcsh`", "bash, elvish, fish, powershell, zsh", "larder completions --help"],
        ),
        (&["env", "--shell", "csh"], &["unknown value: `csh`", "bash, fish, powershell, github", "larder env --help"]),
        (&["offline", "of"], &["unknown value: `of`", "did you mean `off`?", "larder offline --help"]),
        (&["sim", "run", "--output", "xml"], &["unknown value: `xml`", "table, json, csv", "larder sim run --help"]),
        (&["sim", "run", "--format", "pcap"], &["`pcap`", "squid", "larder sim run --help"]),
        (&["sim", "paper", "markatos-tabel2"], &["did you mean `markatos-table2`?", "larder sim papers"]),
        (&["bench", "--workload", "zipff"], &["`zipff`", "polymix-4", "larder bench --help"]),
        (&["bench", "device", "/", "--io", "magic"], &["auto, uring or threads", "larder bench device --help"]),
        (&["plan", "--size", "1TB", "--memory", "1GB", "--tune", "x=1"], &["the constants are", "larder plan --help"]),
        (
            &["store", "format", "x", "--policy", "lru"],
            &["the policies are", "hashcache-log", "larder store format --help"],
        ),
        (
            &["store", "format", "x", "--size", "10MB"],
            &["size 10 MB is below 64 MiB", "64MiB to 16TiB", "larder store format --help"],
        ),
        (&["run", "--policy", "lru"], &["the policies are", "hashcache-log", "larder run --help"]),
        (&["run", "--offline", "maybe"], &["off, auto, on or on-even-forbidden", "larder run --help"]),
        (&["run", "--log-format", "w3c"], &["squid, common, combined, json", "larder run --help"]),
        (&["run", "--mirror", "pypy"], &["did you mean `pypi`?", "npm, cargo, go, maven", "larder run --help"]),
        (
            &["run", "--origin-of", "pypy=http://a"],
            &["did you mean `pypi`?", "npm, cargo, go, maven", "larder run --help"],
        ),
        (&["mirror", "show", "nmp"], &["did you mean `npm`?", "larder mirror show --help"]),
        (&["run", "--intercept", "pypy"], &["`pypy`", "did you mean `pypi`?", "npm, cargo, go", "larder run --help"]),
        (&["exec", "--intercept", "nmp", "true"], &["`nmp`", "did you mean `npm`?", "larder exec --help"]),
        (&["exec", "--except", "crago", "true"], &["`crago`", "did you mean `cargo`?", "larder exec --help"]),
        (&["ca", "init", "--host", "pypy"], &["`pypy`", "did you mean `pypi`?", "larder ca init --help"]),
        (&["ls", "--limit", "many"], &["--limit: not a count: `many`", "0 means all", "larder ls --help"]),
        (&["warm", "--missing", "--jobs", "0"], &["--jobs: ", "from 1 to 64", "larder warm --help"]),
    ] {
        check(&home, arguments, 2, expected);
    }
}

#[test]
fn wrong_configuration_is_pointed_at() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("larder.toml");
    let path = file.to_str().unwrap();
    for (text, expected) in [
        ("[store]\nsise = \"1GB\"\n", &["larder.toml:2:1", "unknown key `sise`", "did you mean `size`?"][..]),
        ("[store]\nsize = \"1XB\"\n", &["larder.toml:2:8", "unknown unit in size: `1XB`"]),
        ("listen = true\n", &["larder.toml:1:10", "found: boolean", "write an address here, such as listen = [\"127"]),
        ("allow_clients = true\n", &["larder.toml:1:17", "such as allow_clients = [\"192.168.0.0/16\"]"]),
        ("offline = true\n", &["larder.toml:1:11", "such as offline = \"auto\" (off, auto, on, on-even-forbidden)"]),
        ("preserve_host = true\n", &["larder.toml:1:17", "`preserve_host` has no effect without `origin`"]),
        ("http_port = 3128\n", &["larder.toml:1:1", "write `listen`, such as listen = "]),
        ("upstream = \"http://a\"\n", &["larder.toml:1:1", "write `origin`, such as origin = "]),
        ("[[site]]\nhosts = [\"a\"]\norigin = \"http://b\"\ncheck_interval = \"1ms\"\n", &["4:18", "at least 100ms"]),
        ("[store\n", &["larder.toml:1:", "the file is not valid TOML"]),
        ("[[site]]\nhosts = [\"a\"]\n", &["larder.toml:1:1", "[[site]] has no `origin`"]),
        ("[intercept]\nhosts = [\"pypy\"]\n", &["larder.toml:2:10", "did you mean `pypi`?"]),
        (
            "listen = [\"0.0.0.0:1\"]\n",
            &["larder.toml:1:11", "requires a list of clients: 0.0.0.0:1", "allow_clients = [\"192.168.0.0/16\"]"],
        ),
        ("[[listener]]\naddress = \"0.0.0.0:1\"\n", &["larder.toml:2:11", "requires a list of clients: 0.0.0.0:1"]),
        (
            "[fleet]\nsiblings = true\n",
            &["the fleet has siblings, and no nodes are listed", "list all nodes in [fleet]"],
        ),
        ("[fleet]\nsiblings = \"yes\"\n", &["larder.toml:2:12", "expected true or false, found: string"]),
        ("trusted_proxies = [\"lan\"]\n", &["larder.toml:1:20", "not a network: `lan`"]),
        ("client_field = \"via\"\n", &["larder.toml:1:16", "unknown field for the client's address", "forwarded"]),
        ("ready_path = \"ready\"\n", &["larder.toml:1:14", "not a path: `ready`", "/-/ready"]),
        ("node = \"a b\"\n", &["larder.toml:1:8", "not a name: `a b`"]),
        (
            "origin = \"http://a\"\n[[listener]]\naddress = \"127.0.0.1:1\"\norigin_form = true\n",
            &["a listener with origin_form needs forward mode: 127.0.0.1:1", "remove `origin_form`"],
        ),
        ("[memory]\ntotal = \"10\"\n", &["10 B of --memory is too little", "give at least"]),
        ("[store]\nsize = \"10MB\"\n", &["larder.toml:2:8", "size 10 MB is below 64 MiB", "64MiB to 16TiB"]),
        ("[store]\nsize = \"5\"\n", &["larder.toml:2:8", "size 5 B is below 64 MiB", "did you mean 5GB?"]),
        ("[memory]\ncache = \"5\"\n", &["larder.toml:2:9", "size 5 B is below 64 KiB", "did you mean 5MB or 5GB?"]),
        ("[memory]\nwindows = \"9kB\"\n", &["larder.toml:2:11", "size 9 kB is below 64 KiB", "at least 64KiB"]),
        ("[store]\nsize = [\"1GB\", \"2GB\"]\n", &["2 sizes for 1 disk"]),
        ("[[build_cache]]\n", &["larder.toml:1:1", "[[build_cache]] has no `path`", "path = \"/cache\""]),
        ("[[build_cache]]\npath = \"cache\"\n", &["larder.toml:2:8", "must begin with a slash", "`cache`"]),
        ("[[build_cache]]\npath = \"/a\"\norigin = \"b\"\n", &["larder.toml:3:10", "http://"]),
        (
            "[[build_cache]]\npath = \"/pypi\"\n[[mirror]]\nname = \"pypi\"\n",
            &["two build caches or mirrors have the same path: /pypi", "a `path` of its own"],
        ),
        (
            "[[site]]\nhosts = [\"a\"]\norigin = \"http://b\"\n[[site]]\nhosts = [\"A\"]\norigin = \"http://c\"\n",
            &["larder.toml:5:10", "two sites have the same host: `a`"],
        ),
    ] {
        fs::write(&file, text).unwrap();
        check(&home, &["config", "check", path], 2, expected);
        check(&home, &["run", "--config", path], 2, expected);
    }
    fs::write(&file, b"workers = 2\norigin = \"http://caf\xe9\"\n").unwrap();
    check(
        &home,
        &["config", "check", path],
        2,
        &["larder.toml:2:21", "the file is not UTF-8 text", "save the file as UTF-8"],
    );
}

/// A file with several mistakes must not need one run for each.
#[test]
fn all_mistakes_of_a_configuration_are_shown_in_one_run() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("larder.toml");
    let path = file.to_str().unwrap();
    let both = |text: &str, expected: &[&str]| {
        fs::write(&file, text).unwrap();
        for arguments in [["config", "check", path], ["run", "--config", path]] {
            let output = run(&home, &arguments);
            let shown = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{shown}");
            expected.iter().for_each(|text| assert!(shown.contains(text), "{text:?} is not in {shown}"));
            let help_count = shown.matches("help: ").count();
            assert!(shown.trim_end().ends_with(&format!("{help_count} errors")), "{shown}");
        }
    };
    both(
        "liste = 1\nallow_clients = [\"lan\", \"wan\"]\n[store]\nsise = \"1GB\"\n[limits]\nidle_timeout = \"soon\"\n",
        &[
            "larder.toml:1:1",
            "did you mean `listen`?",
            "larder.toml:2:18",
            "not a network: `lan`",
            "larder.toml:2:25",
            "larder.toml:4:1",
            "did you mean `size`?",
            "larder.toml:6:16",
            "not a duration",
        ],
    );
    let missing = home.path().join("none").display().to_string();
    both(
        &format!(
            "listen = [\"0.0.0.0:1\"]\nlisten_tls = [\"127.0.0.1:2\"]\n\
             [forward]\npasswords = \"{missing}\"\n[store]\nsize = [\"1GB\", \"2GB\"]\n\
             [memory]\ntotal = \"1000TB\"\n"
        ),
        &[
            "requires a list of clients: 0.0.0.0:1",
            "a TLS listener needs a certificate",
            "2 sizes for 1 disk",
            &missing,
            "--memory is more than",
        ],
    );
    let many: String = (0..30).map(|number| format!("unknown_{number:02} = 1\n")).collect();
    fs::write(&file, many).unwrap();
    let shown = String::from_utf8(run(&home, &["config", "check", path]).stderr).unwrap();
    assert!(shown.contains("`unknown_19`") && !shown.contains("`unknown_20`"), "{shown}");
    assert!(shown.trim_end().ends_with("30 errors, of which the first 20 are shown"), "{shown}");
}

#[test]
fn files_that_cannot_be_read_are_told_with_1_and_those_that_hold_something_else_with_2() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("larder.toml");
    let letter = home.path().join("letter");
    fs::write(&letter, "dear").unwrap();
    let path = file.to_str().unwrap();
    let letter = letter.to_str().unwrap();
    let folder = home.path().to_str().unwrap();
    let tls = |certificate: &str| {
        let pair = format!("{certificate},{certificate}");
        ["run", "--listen-tls", "0", "--certificate", &pair].map(str::to_owned).to_vec()
    };
    let flags = |flags: &[&str]| flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>();
    let missing = home.path().join("none").display().to_string();
    for gone in [missing.as_str(), folder] {
        for arguments in [
            flags(&["run", "--config", gone]),
            flags(&["config", "check", gone]),
            flags(&["run", "--passwords", gone]),
            flags(&["plan", "--size", "1TB", "--memory", "1GB", "--device", gone]),
            flags(&["plan", "--size", "1TB", "--memory", "1GB", "--trace", gone]),
            flags(&["sim", "run", "--trace", gone]),
            tls(gone),
        ] {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            check(&home, &arguments, 1, &[gone]);
        }
        let help = "help: give the path of a readable TOML file; `larder config default` prints one";
        check(&home, &["config", "print", gone], 1, &[gone, help]);
    }
    check(&home, &["sim", "run", "--machine", folder], 1, &["cannot read model", folder]);
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    for arguments in [
        &["sim", "run", "--trace", readme][..],
        &["sim", "evictions", "--trace", readme],
        &["plan", "--size", "1TB", "--memory", "1GB", "--trace", readme],
    ] {
        let told = ["no trace of a known format (squid, common, csv, oracle, larder)", "lines are damaged (line "];
        check(&home, arguments, 1, &told);
    }
    let arguments = tls(letter);
    check(&home, &arguments.iter().map(String::as_str).collect::<Vec<_>>(), 2, &[letter, "cannot read certificate"]);
    check(&home, &["run", "--passwords", letter], 2, &[letter]);
    let log = ["run", "--access-log", &format!("{missing}/access.log")];
    check(&home, &log, 1, &[&format!("no such directory for the access log: {missing}"), "mkdir -p"]);
    for (certificate, code) in [(missing.as_str(), 1), (letter, 2)] {
        for text in [
            format!("[[certificate]]\nfile = \"{certificate}\"\nkey = \"{certificate}\"\n"),
            format!("[[build_cache]]\npath = \"/a\"\ntokens = \"{certificate}\"\n"),
        ] {
            fs::write(&file, text).unwrap();
            check(&home, &["config", "check", path], code, &[certificate]);
        }
    }
}

#[test]
fn place_that_cannot_hold_the_store_is_refused_by_the_check_too() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("larder.toml");
    let letter = home.path().join("letter");
    fs::write(&letter, "dear").unwrap();
    let path = file.to_str().unwrap();
    let missing = home.path().join("none").display().to_string();
    for (disk, told) in [
        (&*format!("{missing}/x.larder"), &*format!("no such directory for the store: {missing}")),
        ("/dev/fd/disk", "no such device"),
        (letter.to_str().unwrap(), "it exists and is not a Larder store"),
    ] {
        fs::write(&file, format!("listen = [\"127.0.0.1:0\"]\n[store]\npath = \"{disk}\"\n")).unwrap();
        check(&home, &["config", "check", path], 1, &[told]);
        check(&home, &["run", "--config", path], 1, &[told]);
    }
}

#[test]
fn folder_that_cannot_hold_the_second_tier_is_refused_by_the_check() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("larder.toml");
    let letter = home.path().join("letter");
    fs::write(&letter, "dear").unwrap();
    let path = file.to_str().unwrap();
    let write = |folder: &str| fs::write(&file, format!("[tier]\nfolder = \"{folder}\"\n")).unwrap();
    let missing = home.path().join("none/folder").display().to_string();
    for (folder, told) in [
        (&*format!("{missing}/tier"), &*format!("no such directory for the second tier: {missing}")),
        (letter.to_str().unwrap(), "the folder of the second tier is not one"),
    ] {
        write(folder);
        check(&home, &["config", "check", path], 1, &[told]);
    }
    for folder in [home.path().to_owned(), home.path().join("new")] {
        write(folder.to_str().unwrap());
        assert_eq!(run(&home, &["config", "check", path]).status.code(), Some(0), "{}", folder.display());
    }
}

#[test]
fn nothing_is_wrapped_where_there_is_no_terminal() {
    let home = TempDir::new().unwrap();
    let deep = home.path().join("a-folder-with-a-long-name/and-another-one-in-it/and-a-third-one-in-that/store.larder");
    let said = run(&home, &["run", "--disk", deep.to_str().unwrap()]).stderr;
    let said = String::from_utf8(said).unwrap();
    let parent = deep.parent().unwrap().display();
    let help =
        format!("help: create it first (mkdir -p {parent}), or give another --disk path, or --disk none for memory");
    assert!(said.contains(&help), "{said}");
}

#[test]
fn right_configuration_is_ok_and_touches_nothing() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("larder.toml");
    fs::write(&file, "[store]\nsize = \"1TB\"\n").unwrap();
    let before = contents(home.path());
    let output = run(&home, &["config", "check", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}: ok\n", file.display()));
    assert_eq!(contents(home.path()), before);
}

#[test]
fn help_and_version_are_no_errors() {
    let home = TempDir::new().unwrap();
    for (arguments, expected) in [
        (&["--help"][..], "Examples:"),
        (&["run", "--help"], "larder run --listen 0.0.0.0:3128 --allow-client 192.168.0.0/16"),
        (&["--version"], "larder "),
    ] {
        let output = run(&home, arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(String::from_utf8(output.stdout).unwrap().contains(expected), "{arguments:?}");
    }
}

/// Guards against a script that acts by an exit code, or by a level of the log, that the page promises and the program
/// does not keep.
#[test]
fn exit_codes_and_log_levels_are_those_of_the_page() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/errors.md");
    let page = fs::read_to_string(page).unwrap();
    let of =
        |word: &str| page.lines().find(|line| line.contains(word)).and_then(|line| line.split('|').nth(1)).unwrap();
    let home = TempDir::new().unwrap();
    let missing = home.path().join("none").display().to_string();
    for (word, arguments) in [
        ("Done, or stopped by a signal", &["--version"][..]),
        ("Something failed: a message", &["config", "check", &missing]),
        ("A flag, an argument, or the content", &["run", "--sise", "1GB"]),
    ] {
        let code = run(&home, arguments).status.code().unwrap();
        assert_eq!(of(word).trim(), code.to_string(), "{word}");
    }
    let mut larder = Larder::start_in(&home, &[("LARDER_LOG", "info")], &["--disk", "none"]);
    assert!(run(&home, &["offline", "on"]).status.success());
    let told = larder.wait_for_line("offline mode changed").to_lowercase();
    let level = of("the offline mode was changed").trim().trim_matches('`').to_owned();
    let line = told.lines().find(|line| line.contains("offline mode changed")).unwrap();
    assert!(line.contains(&format!(" {level} ")), "{level}: {line}");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn unusable_store_files_are_refused_and_left_alone() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("precious");
    let path = file.to_str().unwrap();
    fs::write(&file, "a letter to the editor").unwrap();
    check(&home, &["run", "--disk", path, "--size", "64MiB"], 1, &[path, "--disk"]);
    fs::write(&file, vec![7; 64 << 20]).unwrap();
    check(&home, &["run", "--disk", path, "--size", "64MiB"], 1, &[path, "--disk"]);
    let gone = home.path().join("gone/store.larder");
    check(&home, &["run", "--disk", gone.to_str().unwrap()], 1, &["no such directory for the store", "mkdir -p"]);
}

/// Guards against a user who is told to format a device that can never be a store, or to look for faults of a disk that
/// is only full.
#[test]
fn what_can_never_be_a_store_or_does_not_fit_is_refused_with_the_remedy() {
    let home = TempDir::new().unwrap();
    let letter = home.path().join("letter");
    fs::write(&letter, "dear").unwrap();
    let letter = letter.to_str().unwrap();
    let device = "/dev/null is a character device, ";
    for (arguments, expected) in [
        (
            &["run", "--disk", "/dev/null"][..],
            &["cannot use /dev/null as the store: it is a character device", "give a file, a directory or a block"][..],
        ),
        (&["store", "format", "/dev/null", "--force"], &[device, "give the path of a file, or a block device"]),
        (&["store", "check", "/dev/null"], &[device, "give the path of a store"]),
        (&["store", "check", letter], &["letter is not a Larder store", "give the path of a store"]),
        (&["store", "info", letter], &["letter is not a Larder store", "give the path of a store"]),
    ] {
        check(&home, arguments, 1, expected);
    }
    let large = home.path().join("large.larder");
    let large = large.to_str().unwrap();
    for arguments in [&["run", "--disk", large, "--size", "16TiB"][..], &["store", "format", large, "--size", "16TiB"]]
    {
        check(&home, arguments, 1, &["a store of 17.6 TB does not fit", "MB or less", "make room (df -h "]);
    }
    // A store that would be replaced stays as it is.
    let store = home.path().join("store.larder");
    let store = store.to_str().unwrap();
    assert!(run(&home, &["store", "format", store, "--size", "64MiB"]).status.success());
    check(&home, &["store", "format", store, "--size", "16TiB", "--force"], 1, &["a store of 17.6 TB does not fit"]);
}

#[test]
fn stores_of_another_size_in_use_or_damaged_are_refused_and_left_alone() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("store.larder");
    let flags = ["--disk", file.to_str().unwrap(), "--size", "64MiB"];
    assert_eq!(Larder::start(&home, &flags).stop(), Some(0));
    let again = [&["run", "--listen", "127.0.0.1:0"], &flags[..]].concat();
    // Locked as by another larder, but the holder of the lock writes nothing.
    let holder = fs::File::open(&file).unwrap();
    holder.lock().unwrap();
    check(&home, &again, 1, &["store.larder", "in use"]);
    drop(holder);

    let other = ["run", "--disk", file.to_str().unwrap(), "--size", "128MiB"];
    check(&home, &other, 1, &["store.larder", "--size"]);

    let store = fs::OpenOptions::new().write(true).open(&file).unwrap();
    store.set_len(48 << 20).unwrap();
    check(&home, &again, 1, &["67108864 bytes", "now has 50331648", "move"]);
    store.set_len(64 << 20).unwrap();
    let noise = [0x5a; 64 << 10];
    store.write_all_at(&noise, 0).unwrap();
    store.write_all_at(&noise, (64 << 20) - noise.len() as u64).unwrap();
    check(&home, &again, 1, &["store.larder"]);
}

#[test]
fn sizes_out_of_range_make_no_file() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("store.larder");
    let path = file.to_str().unwrap();
    check(&home, &["run", "--disk", path, "--size", "1MB"], 2, &["--size"]);
    check(&home, &["run", "--disk", path, "--size", "17TiB"], 2, &["--size"]);
    check(&home, &["run", "--disk", path, "--mean-object-size", "1"], 2, &["--mean-object-size"]);
}

#[test]
fn a_port_in_use_is_named_and_makes_no_file() {
    let home = TempDir::new().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let store = home.path().join("store.larder");
    check(&home, &["run", "--listen", &address, "--disk", store.to_str().unwrap()], 1, &[&address, "--listen"]);
}
