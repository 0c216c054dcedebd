//! Guards against a user on a new machine, where something is missing or wrong, and a message that does not name it.

use crate::process::{command, errors};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt, path::Path};
use tempfile::TempDir;

/// Runs larder in a home and with these variables. It must exit with `code`, print `told`, and say what to do.
fn refused(home: &Path, variables: &[(&str, &str)], arguments: &[&str], (code, told): (i32, &str)) {
    let output = command(home).envs(variables.iter().copied()).args(arguments).output().unwrap();
    let said = errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.contains(told) && said.contains("help: ") && !said.contains("panicked"), "{arguments:?}: {said}");
}

#[test]
fn exec_says_what_it_cannot_have() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    let inside = format!("{}/x", file.display());
    let nowhere = format!("{}/none", home.path().display());
    let exec = ["exec", "--", "/bin/true"];
    let temporary = home.path().to_str().unwrap();
    let no_cache = [("XDG_CACHE_HOME", inside.as_str()), ("TMPDIR", temporary)];
    let warned = command(home.path()).args(exec).envs(no_cache).output().unwrap();
    let told = errors(&warned).split_whitespace().collect::<Vec<_>>().join(" ");
    let fault = format!("in memory only, because the store cannot be used: cannot create directory {inside}/larder");
    assert!(warned.status.success() && told.contains(&fault), "{told}");
    let no_place = [("XDG_CACHE_HOME", inside.as_str()), ("TMPDIR", file.to_str().unwrap())];
    refused(home.path(), &no_place, &exec, (1, "cannot create the control socket: "));
    refused(home.path(), &[("TMPDIR", &nowhere)], &exec, (1, "cannot write the CA: No such file"));
    refused(home.path(), &[], &["exec", "--", &nowhere], (127, "cannot run the command: No such file"));
    refused(home.path(), &[], &["exec", "--", file.to_str().unwrap()], (126, "cannot run the command: Permission"));
    refused(home.path(), &[], &["exec"], (2, "missing: "));
    let scheme = ["exec", "--intercept", "http://pypi.org", "--", "/bin/true"];
    refused(home.path(), &[], &scheme, (2, "not a host: `http://pypi.org`"));
    refused(home.path(), &[], &["exec", "--summary", "xml", "--", "/bin/true"], (2, "--summary"));
    let taken = home.path().join("cache/larder");
    let socket = taken.join("control.sock");
    // Larders started by the commands above remove their sockets when they end.
    let _ = fs::remove_file(&socket);
    fs::create_dir_all(&socket).unwrap();
    refused(home.path(), &[], &exec, (1, "cannot start larder: Is a directory"));
}

/// Writes an authority that has ended.
fn expired_authority(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2022, 1, 1));
    let certificate = params.self_signed(&key).unwrap();
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("ca.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("ca.key"), key.serialize_pem()).unwrap();
    fs::set_permissions(folder.join("ca.key"), fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn interception_says_what_is_wrong_with_its_authority() {
    let home = TempDir::new().unwrap();
    let at = |name: &str| home.path().join(name).display().to_string();
    let made = |name: &str| {
        let output = command(home.path()).args(["ca", "init", "--dir", &at(name)]).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
    };
    made("one");
    made("other");
    fs::copy(home.path().join("one/ca.key"), home.path().join("other/ca.key")).unwrap();
    expired_authority(&home.path().join("expired"));
    made("junk");
    fs::write(home.path().join("junk/ca.pem"), "junk").unwrap();
    made("open");
    fs::set_permissions(home.path().join("open/ca.key"), fs::Permissions::from_mode(0o644)).unwrap();
    for (name, told) in [
        ("none", "there is no CA: No such file"),
        ("other", "the certificate does not match the private key"),
        ("expired", "expired"),
        ("junk", "the CA cannot be used"),
        ("open", "other users may read the CA's key"),
    ] {
        let config = home.path().join("larder.toml");
        let text = format!("[intercept]\nhosts = [\"pypi.org\"]\nca_dir = \"{}\"\n", at(name));
        fs::write(&config, text).unwrap();
        let run = ["run", "--listen", "0", "--disk", "none", "--config", config.to_str().unwrap()];
        refused(home.path(), &[], &run, (1, told));
    }
    refused(home.path(), &[], &["ca", "init", "--dir", &at("one")], (1, "a CA already exists"));
    refused(home.path(), &[], &["ca", "show", "--dir", &at("none")], (1, "there is no CA"));
    fs::write(home.path().join("file"), "").unwrap();
    refused(home.path(), &[], &["ca", "init", "--dir", &at("file/x")], (1, "cannot write the CA"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let run = ["run", "--listen", &port, "--disk", "none"];
    refused(home.path(), &[], &run, (1, "Address already in use"));
    refused(home.path(), &[], &["env"], (1, "no larder of yours is running"));
}

/// Guards against other users of the machine who read the password for a company's proxy.
#[test]
fn password_of_a_parent_in_a_file_that_all_may_read_is_refused() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("larder.toml");
    let path = file.to_str().unwrap();
    let set = |text: &str, mode: u32| {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    };
    let url = "http://user:secret@proxy.example:3128";
    for text in [
        format!("parent = \"{url}\"\n"),
        format!("[parents]\nmembers = [{{ url = \"http://a.example:3128\" }}, {{ url = \"{url}\" }}]\n"),
        format!("[[site]]\nhosts = [\"a.example\"]\norigin = \"http://b.example\"\nparent = \"{url}\"\n"),
    ] {
        for mode in [0o644, 0o604] {
            set(&text, mode);
            for arguments in [&["config", "check", path][..], &["run", "--disk", "none", "--config", path]] {
                let told = (2, "contains a parent's password, and all users may read it");
                refused(home.path(), &[], arguments, told);
                let output = command(home.path()).args(arguments).output().unwrap();
                assert!(!errors(&output).contains("secret"), "{}", errors(&output));
            }
        }
        set(&text, 0o640);
        let output = command(home.path()).args(["config", "check", path]).output().unwrap();
        assert!(output.status.success(), "{text}: {}", errors(&output));
    }
    set("parent = \"http://proxy.example:3128\"\n", 0o644);
    let output = command(home.path()).args(["config", "check", path]).output().unwrap();
    assert!(output.status.success(), "without a password: {}", errors(&output));
}
