//! Guards against programs that disagree about the owner of a key, so that each of them fetches it from another node.

use crate::process::{command, errors};
use std::{fs, process::Output};
use tempfile::TempDir;

fn owner(home: &TempDir, arguments: &[&str]) -> Output {
    command(home.path()).args(["cluster", "owner"]).args(arguments).output().unwrap()
}

fn printed(home: &TempDir, arguments: &[&str]) -> String {
    let output = owner(home, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(home: &TempDir, arguments: &[&str], told: &str) {
    let output = owner(home, arguments);
    let said = errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(said.contains(told) && said.contains("help: "), "{arguments:?}: {said}");
}

/// The first vectors of `fixtures/owner.tsv`, which another implementation computed.
#[test]
fn owner_is_printed_as_the_published_vectors_have_it() {
    let home = TempDir::new().unwrap();
    let vectors = include_str!("../../../../fixtures/owner.tsv");
    let mut lines = vectors.lines().filter(|line| !line.starts_with('#'));
    let nodes = lines.next().and_then(|line| line.strip_prefix("nodes\t")).unwrap().replace(' ', ",");
    for line in lines.take(3) {
        let [url, slot, owner] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!(printed(&home, &["--nodes", &nodes, url]), format!("{owner}  slot {slot}  {url}\n"));
    }
}

#[test]
fn owner_by_the_configuration_is_the_origin_of_the_key_under_its_rules() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("larder.toml");
    let site = |balance: &str| {
        format!(
            "[[site]]\nhosts = [\"a.example\"]\nbalance = \"{balance}\"\n\
             origins = [{{ url = \"http://10.0.0.1\" }}, {{ url = \"http://10.0.0.2:81\", weight = 2 }}]\n\
             [[key]]\nurls = [\"http://a.example\"]\nstrip = [\"utm_*\"]\n"
        )
    };
    let config = ["--config", file.to_str().unwrap()];
    let by_nodes = printed(&home, &["--nodes", "10.0.0.2:81=2,10.0.0.1:80", "http://a.example/x"]);
    fs::write(&file, site("consistent_hash")).unwrap();
    let spellings = ["http://a.example/x?utm_source=1", "http://A.example:80/x?utm_medium=2&utm_id=3"];
    let printed = printed(&home, &[&config[..], &spellings].concat());
    for (line, spelling) in printed.lines().zip(spellings) {
        assert_eq!(line, by_nodes.trim_end().replace("http://a.example/x", spelling));
    }
    assert_eq!(printed.lines().count(), 2);
    fs::write(&file, site("round_robin")).unwrap();
    refused(&home, &[&config[..], &["http://a.example/x"]].concat(), "no node owns a key");
    refused(&home, &[&config[..], &["http://b.example/x"]].concat(), "no [[site]] has origins for http://b.example/x");
}

#[test]
fn nodes_and_urls_that_have_no_owner_are_refused() {
    let home = TempDir::new().unwrap();
    refused(&home, &["http://a.example/"], "no nodes given");
    refused(&home, &["--nodes", "a,b,a", "http://a.example/"], "two nodes have the name a");
    refused(&home, &["--nodes", "a=0", "http://a.example/"], "weight of a must be from 1 to 100: 0");
    refused(&home, &["--nodes", "a=x", "http://a.example/"], "not a weight from 1 to 100: `a=x`");
    refused(&home, &["--nodes", "a,,b", "http://a.example/"], "a node has no name");
    refused(&home, &["--nodes", "a,b", "/path"], "not a URL: `/path`");
    refused(&home, &["--nodes", "a,b", "ftp://a.example/"], "scheme is neither http nor https");
}

fn check_config(home: &TempDir, text: &str) -> Output {
    let file = home.path().join("larder.toml");
    fs::write(&file, text).unwrap();
    command(home.path()).args(["config", "check", file.to_str().unwrap()]).output().unwrap()
}

#[test]
fn wrong_parents_are_refused_with_the_place() {
    let home = TempDir::new().unwrap();
    let member = "members = [{ url = \"http://a:1\" }, { url = \"http://a:1\" }]";
    for (text, told) in [
        ("parent = [\"http://a:1\", \"https://b:1\"]", "parent must begin with http://"),
        ("parent = \"http://a:1\"\n[parents]\nmembers = [{ url = \"http://b:1\" }]", "parents are listed twice"),
        (&format!("[parents]\n{member}\nbalance = \"consistent_hash\""), "two nodes have the name a:1"),
        ("[parents]\nmembers = [{ weight = 2 }]", "give the parent's address"),
        ("[parents]\nmembers = [{ url = \"http://a:1\", weight = 101 }]", "must be from 1 to 100"),
        ("parent = \"http://a:1\"\n[parents]\ndirect = \"always\"", "it can be never or on-failure"),
        ("parent = \"http://a:1\"\n[parents]\nbalance = \"random\"", "it can be round_robin or consistent_hash"),
        ("parent = \"http://a:1\"\n[parents]\ncheck_path = \"ready\"", "a path begins with a slash"),
    ] {
        let output = check_config(&home, text);
        let said = errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(2), "{text}: {said}");
        assert!(said.contains(told) && said.contains("larder.toml:"), "{text}: {said}");
    }
    let right = "parent = [\"http://a:1\", \"http://b:1\"]\n[parents]\nbalance = \"consistent_hash\"\n\
                 direct = \"on-failure\"\ncheck_path = \"/-/ready\"\ncheck_interval = \"2s\"\nmax_fails = 2\nfail_timeout = \"5s\"";
    assert!(check_config(&home, right).status.success(), "{}", errors(&check_config(&home, right)));
}

fn balancer(home: &TempDir, arguments: &[&str]) -> Output {
    command(home.path()).args(["cluster", "config"]).args(arguments).output().unwrap()
}

/// `tests/real/cluster.sh` runs such files with the real load balancers.
#[test]
fn files_of_the_deployment_are_those_that_are_written() {
    let home = TempDir::new().unwrap();
    let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
    let config = format!("{deploy}/a.toml");
    let nodes = "a=10.0.0.1:8080,b=10.0.0.2:8080,c=10.0.0.3:8080";
    for (kind, file) in [("haproxy", "haproxy.cfg"), ("nginx", "nginx.conf"), ("envoy", "envoy.yaml")] {
        let output = balancer(&home, &[kind, "--config", &config, "--nodes", nodes]);
        assert!(output.status.success(), "{}", errors(&output));
        let written = String::from_utf8(output.stdout).unwrap();
        let expected = fs::read_to_string(format!("{deploy}/{file}")).unwrap();
        assert_eq!(written, expected, "write deploy/{file} again");
        assert!(written.contains("utm_[^&=]*") && !written.contains("slow_start"), "{written}");
    }
}

#[test]
fn balancers_without_usable_nodes_or_rules_are_refused() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("larder.toml");
    fs::write(&file, "[[key]]\nurls = [\"http://a.example\"]\nstrip = [\"a'b\"]\n").unwrap();
    let file = file.to_str().unwrap();
    let node = "a=10.0.0.1:80";
    for (arguments, told) in [
        (&["apache", "--nodes", node][..], "unknown value: `apache`"),
        (&["haproxy"], "--nodes"),
        (&["haproxy", "--nodes", "a=10.0.0.1"], "the node has no port: `a=10.0.0.1`"),
        (&["haproxy", "--nodes", "a=10.0.0.1:0"], "not a port from 1 to 65535"),
        (&["haproxy", "--nodes", "a=10.0.0.1:80,a=10.0.0.2:80"], "two nodes are the same"),
        (&["haproxy", "--nodes", "a=10.0.0.1:80,b=10.0.0.1:80"], "two nodes are the same"),
        (&["nginx", "--nodes", "a=b;c:80"], "the host is not a name or an address"),
        (&["nginx", "--nodes", "a b=c:80"], "a node's name"),
        (&["nginx", "--nodes", node, "--listen", "web"], "not an address to listen on"),
        (
            &["envoy", "--nodes", node, "--config", file],
            "a balancer's configuration cannot express this key rule: `a'b`",
        ),
    ] {
        let output = balancer(&home, arguments);
        let said = errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(told) && said.contains("help: "), "{arguments:?}: {said}");
    }
}
