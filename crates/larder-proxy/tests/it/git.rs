//! Git's POST requests, answered from the cache if a rule permits it. Guards against a client that receives the
//! repository in another state, or an error that is stored.

use larder_http::{
    Rules, Ruling,
    rules::{MatchTexts, Rule},
};
use larder_proxy::ProxyConfig;

use crate::support::{Connection, Fixture, Gate, Received, Reply, Response, request_text};

/// The fields that servers send with every response to git.
const FIELDS: [&str; 3] = [
    "Cache-Control: no-cache, max-age=0, must-revalidate",
    "Expires: Fri, 01 Jan 1980 00:00:00 GMT",
    "Content-Type: application/x-git-upload-pack-result",
];
const PATH: &str = "/team/tool.git/git-upload-pack";
const WANTED: &str = "want 8b137891791fe96927ad78e64b0aad7bded08bdc\n";

fn packets(lines: &[&str]) -> String {
    let packet = |line: &&str| match *line {
        "0000" | "0001" => (*line).to_owned(),
        data => format!("{:04x}{data}", data.len() + 4),
    };
    lines.iter().map(packet).collect()
}

fn fetch(agent: &str, argument: &str) -> String {
    packets(&["command=fetch", agent, "0001", "thin-pack", argument, "done\n", "0000"])
}

fn pack(content: &str) -> String {
    packets(&["packfile\n", &format!("\u{1}{content}"), "0000"])
}

fn with_git(config: &mut ProxyConfig) {
    let ruling = Ruling { name: "git".into(), caches_git: true, ..Ruling::default() };
    config.rules = Rules::new(vec![Rule::new(&MatchTexts::default(), ruling).unwrap()]);
}

/// Answers each question by the order in which it came.
fn numbered(_: &Received, number: usize) -> Reply {
    Reply::ok(&FIELDS, pack(&format!("number {number}")))
}

fn ask(connection: &mut Connection, path: &str, body: &str, fields: &[&str]) -> Response {
    let length = format!("Content-Length: {}", body.len());
    let lines = ["Content-Type: application/x-git-upload-pack-request", "Git-Protocol: version=2", &length];
    connection.send(request_text("POST", path, &[&lines, fields].concat()) + body);
    connection.read_response("POST")
}

#[test]
fn objects_that_were_fetched_once_are_a_hit_for_whoever_wants_the_same() {
    let fixture = Fixture::with(numbered, with_git);
    let mut client = fixture.connect();
    let first = ask(&mut client, PATH, &fetch("agent=git/2.39.5", WANTED), &["Pragma: no-cache"]);
    assert_eq!((first.text(), first.cache_status()), (pack("number 0"), "fwd=uri-miss; fwd-status=200; stored"));
    let received = &fixture.origin.received()[0];
    assert_eq!((received.method.as_str(), received.target.as_str()), ("POST", PATH));
    assert_eq!(received.body, fetch("agent=git/2.39.5", WANTED).as_bytes());
    assert_eq!(received.field("git-protocol"), Some("version=2"));
    let fixture = fixture.restart_with(with_git);
    let again = ask(&mut fixture.connect(), PATH, &fetch("agent=jgit/6.1", WANTED), &[]);
    assert!(again.is_hit() && again.text() == pack("number 0"), "{}", again.cache_status());
    assert_eq!(again.field("larder-ruling"), None);
    let mut others = fixture.connect();
    for (path, argument) in [(PATH, "want 0000000000000000000000000000000000000001\n"), ("/b/git-upload-pack", WANTED)]
    {
        let other = ask(&mut others, path, &fetch("agent=git/2.39.5", argument), &[]);
        assert!(!other.is_hit() && other.text() != pack("number 0"), "{path} {argument}");
    }
    assert!(!fixture.get(PATH, &[]).is_hit(), "a GET of the same URL asks something else");
}

#[test]
fn what_has_more_than_one_answer_goes_to_the_origin_as_it_came() {
    let fixture = Fixture::with(numbered, with_git);
    let mut client = fixture.connect();
    let push = ["Content-Type: application/x-git-receive-pack-request"];
    let questions = [
        (PATH, packets(&["command=fetch", "0001", "want-ref refs/heads/main\n", "done\n", "0000"]), &[][..]),
        (PATH, "0032want 8b137891791fe96927ad78e64b0aad7bded08bdc\n00000009done\n".to_owned(), &[]),
        (PATH, fetch("agent=a", WANTED), &["Authorization: Basic dTpw"]),
        ("/team/tool.git/git-receive-pack", fetch("agent=a", WANTED), &push),
    ];
    for (path, body, fields) in &questions {
        let before = fixture.origin.count();
        for number in before..before + 2 {
            let answer = ask(&mut client, path, body, fields);
            assert!(!answer.is_hit() && answer.text() == pack(&format!("number {number}")), "{body} {fields:?}");
            assert_eq!(fixture.origin.received()[number].body, body.as_bytes());
        }
    }
    let without_rule = Fixture::new(numbered);
    let mut client = without_rule.connect();
    (0..2).for_each(|_| _ = ask(&mut client, PATH, &fetch("agent=a", WANTED), &[]));
    assert_eq!(without_rule.origin.count(), 2);
}

/// A client that has older objects names them, and receives the others as soon as the origin knows enough.
#[test]
fn a_negotiation_is_kept_once_it_ends_in_a_pack() {
    let acknowledged = "ACK 0000000000000000000000000000000000000001\n";
    let undecided = packets(&["acknowledgments\n", "NAK\n", "0000"]);
    let ready = packets(&["acknowledgments\n", acknowledged, "ready\n", "0001", "packfile\n", "\u{1}rest", "0000"]);
    let answers = [undecided.clone(), ready.clone()];
    let fixture = Fixture::with(move |_, number| Reply::ok(&FIELDS, &answers[number.min(1)]), with_git);
    let has = "have 0000000000000000000000000000000000000001\n";
    let question = packets(&["command=fetch", "agent=a", "0001", "thin-pack", WANTED, has, "0000"]);
    let mut client = fixture.connect();
    let mut ask = || ask(&mut client, PATH, &question, &[]);
    assert_eq!(ask().text(), undecided);
    assert_eq!(ask().text(), ready);
    let again = ask();
    assert!(again.is_hit() && again.text() == ready, "{}", again.cache_status());
}

#[test]
fn an_answer_that_is_an_error_or_not_whole_is_passed_on_and_never_kept() {
    let whole = pack("all of it");
    let broken = [
        packets(&["ERR upload-pack: not our ref 8b13", "0000"]),
        packets(&["packfile\n", "\u{1}PACK", "\u{3}the remote end hung up", "0000"]),
        whole[..whole.len() - 4].to_owned(),
        "<html>try again later</html>".to_owned(),
    ];
    for answer in broken {
        let sent = answer.clone();
        let whole = whole.clone();
        let fixture = Fixture::with(
            move |_, number| Reply::ok(&FIELDS, if number == 0 { sent.clone() } else { whole.clone() }),
            with_git,
        );
        let mut client = fixture.connect();
        let mut ask = || ask(&mut client, PATH, &fetch("agent=a", WANTED), &[]).text();
        assert_eq!(ask(), answer, "its client is to know");
        assert!(ask().ends_with("0000") && ask().contains("all of it"));
        assert_eq!(fixture.origin.count(), 2);
    }
}

#[test]
fn a_long_pack_is_kept_and_two_who_ask_at_once_share_one_fetch() {
    let gate = Gate::default();
    let held = gate.clone();
    let long: String = (0..100).map(|number| pack_piece(number, 60_000)).collect();
    let answer = packets(&["packfile\n"]) + &long + "0000";
    let (head, rest) = answer.split_at(2_000_000);
    let reply = Reply::head("200 OK", &[&FIELDS[..], &["Transfer-Encoding: chunked"]].concat())
        .send(format!("{:x}\r\n{head}\r\n", head.len()))
        .wait(&held)
        .send(format!("{:x}\r\n{rest}\r\n0\r\n\r\n", rest.len()));
    let fixture = Fixture::with(move |_, _| reply.clone(), with_git);
    let question = fetch("agent=a", WANTED);
    std::thread::scope(|scope| {
        let both = [(), ()].map(|()| scope.spawn(|| ask(&mut fixture.connect(), PATH, &question, &[]).body));
        crate::support::eventually("it was asked", || fixture.origin.count() == 1);
        gate.open();
        assert!(both.into_iter().all(|one| one.join().unwrap() == answer.as_bytes()));
    });
    let again = ask(&mut fixture.connect(), PATH, &question, &[]);
    assert!(again.is_hit() && again.body == answer.as_bytes(), "{}", again.cache_status());
    assert_eq!(fixture.origin.count(), 1);
}

fn pack_piece(number: usize, len: usize) -> String {
    packets(&[&format!("\u{1}{number:0len$}")])
}

#[test]
fn references_are_asked_for_each_time_and_stand_in_when_their_origin_cannot_tell() {
    let fixture = Fixture::with(
        |_, number| match number {
            0 | 1 => Reply::ok(&FIELDS, packets(&[&format!("{number} HEAD\n"), "0000"])),
            _ => Reply::status("503 Service Unavailable", &[], ""),
        },
        with_git,
    );
    let mut client = fixture.connect();
    let question = packets(&["command=ls-refs\n", "agent=git/2.39.5", "0001", "peel\n", "ref-prefix HEAD\n", "0000"]);
    let mut ask = || ask(&mut client, PATH, &question, &[]);
    assert_eq!((ask().text(), ask().text()), (packets(&["0 HEAD\n", "0000"]), packets(&["1 HEAD\n", "0000"])));
    let stale = ask();
    assert_eq!((stale.status, stale.text()), (200, packets(&["1 HEAD\n", "0000"])), "{}", stale.cache_status());
    assert_eq!(fixture.origin.count(), 3);
}

#[test]
fn a_question_that_breaks_off_is_its_clients_fault() {
    let fixture = Fixture::with(numbered, with_git);
    let mut client = fixture.connect();
    let fields = ["Content-Type: application/x-git-upload-pack-request", "Content-Length: 100"];
    client.send(request_text("POST", PATH, &fields) + "0011command=fetch");
    client.end_sending();
    assert!(client.try_read_head_or_end().is_none_or(|answer| answer.status == 400));
    assert_eq!(fixture.origin.count(), 0);
}
