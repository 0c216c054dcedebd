//! For network administrators: the proxy script for browsers, and the pages that browsers show for errors.

use std::net::TcpListener;

use larder_proxy::HostRules;

use crate::support::{Fixture, Reply, Response};

fn get(fixture: &Fixture, target: &str, fields: &str) -> Response {
    let mut connection = fixture.connect();
    connection.send(format!("GET {target} HTTP/1.1\r\n{fields}\r\n"));
    connection.read_response("GET")
}

/// Guards against a school whose browsers do not find the proxy, or send all requests through it.
#[test]
fn browsers_get_a_script_that_names_the_address_they_used() {
    let hosts = vec!["pypi.org".parse().unwrap(), "*.debian.org".parse().unwrap()];
    let forward = Fixture::with(
        |_, _| Reply::ok(&[], "of an origin"),
        |config| {
            (config.default_origin, config.forward) = (None, true);
            config.pac = HostRules { hosts, except: Vec::new() };
        },
    );
    for path in ["/proxy.pac", "/wpad.dat"] {
        let script = get(&forward, path, "Host: cache.lan:3128\r\n");
        assert_eq!((script.status, script.field("content-type")), (200, Some("application/x-ns-proxy-autoconfig")));
        assert!(script.text().contains("return \"PROXY cache.lan:3128; DIRECT\";"), "{}", script.text());
        assert!(script.text().contains("var listed = [\"pypi.org\", \"*.debian.org\"];"), "{}", script.text());
    }
    assert_eq!(get(&forward, "/proxy.pac", "Host: a'b\r\n").status, 400);
    assert_eq!(get(&forward, "/other.pac", "Host: cache.lan\r\n").status, 400);
    let address = forward.origin.address;
    let theirs = get(&forward, &format!("http://{address}/wpad.dat"), &format!("Host: {address}\r\n"));
    assert_eq!(theirs.text(), "of an origin", "another's script is another's");
    let reverse = Fixture::new(|_, _| Reply::ok(&[], "of the site"));
    assert_eq!(get(&reverse, "/proxy.pac", "Host: www.example\r\n").text(), "of the site");
}

#[test]
fn browsers_get_a_page_when_something_fails_and_programs_a_line() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fixture =
        Fixture::with(|_, _| Reply::default(), |config| (config.default_origin, config.forward) = (None, true));
    let target = format!("http://{nobody}/%3Cscript%3E");
    let host = format!("Host: {nobody}\r\n");
    let page = get(&fixture, &target, &format!("{host}Accept: text/html,*/*;q=0.8\r\n"));
    assert_eq!((page.status, page.field("content-type")), (502, Some("text/html; charset=utf-8")));
    assert_eq!(page.field("cache-control"), Some("no-store"));
    let text = page.text();
    assert!(text.starts_with("<!DOCTYPE html>") && text.contains("The site does not respond correctly"), "{text}");
    assert!(text.contains(&format!("No response from {nobody}: it refuses connections")), "{text}");
    assert!(text.contains("error=connection_refused") && !text.contains("<script"), "{text}");
    let line = get(&fixture, &target, &format!("{host}Accept: */*\r\n"));
    assert_eq!((line.status, line.field("content-type")), (502, Some("text/plain; charset=utf-8")));
    assert!(line.text().starts_with(&format!("no response from {nobody}")), "{}", line.text());
}
