//! Siblings that break off. Guards against a part of what another node sends that is stored or served as the whole.

use std::{fmt, sync::atomic::Ordering::SeqCst, time::Duration};

use crate::support::{
    Received, Reply, body,
    nodes::NAMES,
    relay::{Break, Cut, relayed_nodes},
};

const MIB: usize = 1 << 20;

/// A response of another node, which breaks off.
#[derive(Clone, Copy, Debug)]
struct BrokenAnswer {
    /// How the origin frames the body: by its length, in chunks, or by the end of the connection.
    framing: &'static str,
    /// Whether the origin names a version of the body, so that another server can continue it.
    has_tag: bool,
    len: usize,
    /// Octets after the head that the other node sends.
    sent: usize,
    ending: Break,
}

/// The end of a target that only this response has.
impl fmt::Display for BrokenAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { framing, has_tag, len, sent, ending } = self;
        write!(f, "{framing}/{has_tag}/{len}/{sent}/{ending:?}")
    }
}

fn answers() -> Vec<BrokenAnswer> {
    let mut answers = Vec::new();
    for framing in ["length", "chunked", "closed"] {
        for has_tag in [true, false] {
            for len in [3000, MIB + 3000] {
                for sent in [0, len / 2, MIB, len - 1] {
                    for ending in [Break::Close, Break::Reset] {
                        answers.push(BrokenAnswer { framing, has_tag, len, sent, ending });
                    }
                }
            }
        }
    }
    // Silence takes the patience of a node.
    for framing in ["length", "chunked", "closed"] {
        answers.push(BrokenAnswer { framing, has_tag: true, len: 3000, sent: 2999, ending: Break::Silence });
    }
    answers.retain(|answer| answer.sent < answer.len);
    answers
}

fn reply(received: &Received, _: usize) -> Reply {
    let mut words = received.target.split('/').skip(3);
    let framing = words.next().unwrap();
    let tag = words.next().unwrap();
    let len = words.next().unwrap();
    let octets = body(len.parse().unwrap());
    let mut fields = vec!["Cache-Control: max-age=600"];
    if tag == "true" {
        fields.push("ETag: \"1\"");
    }
    match framing {
        "length" => Reply::ok(&fields, octets),
        "chunked" => {
            fields.push("Transfer-Encoding: chunked");
            let size = format!("{:x}\r\n", octets.len());
            Reply::head("200 OK", &fields).send(size).send(octets).send("\r\n0\r\n\r\n")
        }
        _ => {
            fields.push("Connection: close");
            Reply::head("200 OK", &fields).send(octets).close()
        }
    }
}

#[test]
fn part_from_a_sibling_that_breaks_off_is_never_the_whole() {
    let all = answers();
    let cut = move |request: &mut Vec<u8>| {
        let text = String::from_utf8_lossy(request);
        let named = all.iter().find(|answer| text.contains(&format!("/{answer} ")));
        named.map(|answer| Cut { sent: answer.sent, ending: answer.ending })
    };
    let (nodes, relays) =
        relayed_nodes(reply, cut, |config| config.policy.limits.origin_response = Duration::from_secs(1));
    let mut faults = Vec::new();
    let mut targets = Vec::new();
    for answer in answers() {
        let target = (0..).map(|number| format!("/cut/{number}/{answer}")).find(|target| nodes.owner_of(target) == 1);
        let target = target.unwrap();
        let whole = body(answer.len);
        let found = nodes.get(0, &target, &[]);
        let is_wrong = !whole.starts_with(&found.body) || (found.complete && found.body != whole);
        if found.status == 200 && is_wrong {
            faults.push(format!("{target}: {} and {} octets", found.status, found.body.len()));
        }
        targets.push((target, whole));
    }
    let cut_count = relays[1].cut_count.load(SeqCst);
    assert!(cut_count >= targets.len(), "the relay has broken off {cut_count} of {}", targets.len());
    for (target, whole) in &targets {
        for node in 0..NAMES.len() {
            let found = nodes.get(node, target, &["Cache-Control: only-if-cached"]);
            if found.status == 200 && found.complete && found.body != *whole {
                faults.push(format!("{target} is stored at {node}: {} octets", found.body.len()));
            }
        }
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), targets.len(), faults.join("\n"));
}
