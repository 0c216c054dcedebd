//! A corpus of malformed and ambiguous messages, sent over real sockets to an origin that records every octet.
//!
//! Either a request is refused and its connection closed, or the origin receives it with the one meaning that the case
//! states. A strict parser reads what the origin received. A response is forwarded with one meaning or replaced by a
//! 502. In every case, the next response for another target is that target's own.

mod corpus;
mod over_http2;
mod recording;
mod ways;

use std::{collections::HashMap, sync::Mutex};

use self::{
    corpus::{Case, cases},
    recording::{Recorded, Recording},
    ways::{Stage, Way},
};
use crate::support::{Connection, Origin, Reply, Response, client::Stream};

/// Checks that each request is refused or has the meaning stated in the case, the same by every way in.
#[track_caller]
fn check_requests(text: &str, count_min: usize) {
    let cases = cases(text);
    assert!(cases.len() >= count_min, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for way in Way::ALL {
        let origin = Recording::start();
        let stage = Stage::new(way, origin.address);
        for case in &cases {
            origin.take();
            if let Err(why) = check_request(case, &stage, &origin) {
                wrong.push(format!("{way:?}, {}: {why}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} by {} ways:\n{}", wrong.len(), cases.len(), Way::ALL.len(), wrong.join("\n"));
}

fn check_request(case: &Case, stage: &Stage, origin: &Recording) -> Result<(), String> {
    let connection = &mut stage.open();
    connection.send_if_open(&stage.way.sent(&case.sent));
    if case.ends {
        connection.end_sending();
    }
    let mut expected = Vec::new();
    let mut ended = false;
    for outcome in case.outcomes_by(stage.way.name()) {
        let words: Vec<&str> = outcome.words.splitn(3, ' ').collect();
        match words[..] {
            ["closed"] => ended = expect_end(connection.try_read_head_or_end())?,
            ["dropped" | "refused"] => {
                ended = match connection.try_read_head_or_end() {
                    Some(mut response) if matches!(response.status, 400 | 505) => refused(connection, &mut response)?,
                    other => expect_end(other)?,
                };
            }
            ["100"] => {
                let response = connection.try_read_head_or_end();
                response.filter(|response| response.status == 100).ok_or("no 100 came")?;
            }
            [statuses] | [statuses, "or", _] if statuses.parse::<u16>().is_ok() => {
                let mut response = connection.try_read_head_or_end().ok_or("closed without an answer")?;
                if !outcome.words.split(" or ").any(|status| status == response.status.to_string()) {
                    return Err(format!("answered with {}, got {:?}", response.status, origin.take()));
                }
                ended = refused(connection, &mut response)?;
            }
            [status, "and", "on"] => {
                let mut response = connection.try_read_head_or_end().ok_or("closed without an answer")?;
                connection.read_body("GET", &mut response);
                if response.status.to_string() != status {
                    return Err(format!("answered with {}, got {:?}", response.status, origin.take()));
                }
            }
            [method, target, ..] => {
                let mut response = connection.try_read_head_or_end().ok_or("closed without an answer")?;
                connection.read_body(method, &mut response);
                if response.status != 200 {
                    return Err(format!("answered with {}: {}", response.status, response.text()));
                }
                let body = words.get(2).map(|body| corpus::unescape(body)).unwrap_or_default();
                expected.push((method, target, body, &outcome.fields));
            }
            _ => return Err(format!("no such outcome: {}", outcome.words)),
        }
    }
    if !ended {
        let sentinel = connection.request("GET", "/sentinel", &[]);
        if sentinel.status != 200 {
            return Err(format!("what followed was answered with {}", sentinel.status));
        }
    }
    let mut got = origin.take().into_iter();
    for (method, target, body, fields) in expected {
        let received = got.next().ok_or(format!("{method} {target} did not arrive"))??;
        if (received.method.as_str(), received.target.as_str(), &received.body) != (method, target, &body) {
            return Err(format!("arrived as {received:?}"));
        }
        let is_expected = |(name, _): &&(String, _)| !(stage.way == Way::Mirror && name == "host");
        fields.iter().filter(is_expected).try_for_each(|field| received.check_field(field))?;
    }
    match (got.next(), ended) {
        (None, true) => Ok(()),
        (Some(Ok(last)), false) if last.target == "/sentinel" => {
            got.next().map_or(Ok(()), |more| Err(format!("{more:?}")))
        }
        (more, _) => Err(format!("the origin got more: {more:?}")),
    }
}

fn refused(connection: &mut Connection<impl Stream>, response: &mut Response) -> Result<bool, String> {
    connection.read_body("GET", response);
    expect_end(connection.try_read_head_or_end())
}

fn expect_end(next: Option<Response>) -> Result<bool, String> {
    next.map_or(Ok(true), |next| Err(format!("went on with {}", next.status)))
}

impl Recorded {
    /// Checks that a field `name: value` occurs exactly once, or that a field `name` is absent.
    fn check_field(&self, (name, value): &(String, Option<Vec<u8>>)) -> Result<(), String> {
        let values: Vec<_> = self.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value).collect();
        match value {
            None if values.is_empty() => Ok(()),
            Some(value) if values == [value] => Ok(()),
            _ => Err(format!("{name} arrived as {values:?}")),
        }
    }
}

#[test]
fn requests_whose_length_can_be_read_in_two_ways_are_refused() {
    check_requests(include_str!("smuggling/lengths.case"), 75);
}

#[test]
fn chunks_that_can_be_read_in_two_ways_are_refused() {
    check_requests(include_str!("smuggling/chunks.case"), 30);
}

#[test]
fn malformed_heads_and_ambiguous_targets_are_refused() {
    check_requests(include_str!("smuggling/heads.case"), 80);
}

#[test]
fn responses_that_can_be_read_in_two_ways_are_refused_and_never_stored() {
    let cases = cases(include_str!("smuggling/responses.case"));
    assert!(cases.len() >= 60, "{} cases", cases.len());
    let scripted: HashMap<String, (Vec<u8>, bool)> =
        cases.iter().map(|case| (format!("/{}", case.name), (case.sent.clone(), case.ends))).collect();
    let scripted = Mutex::new(scripted);
    let origin = Origin::start(move |received, _| match scripted.lock().unwrap().get(&received.target) {
        Some((sent, false)) => Reply::default().send(sent),
        Some((sent, true)) => Reply::default().send(sent).close(),
        None => Reply::ok(&["Cache-Control: no-store"], &received.target),
    });
    let mut wrong = Vec::new();
    for way in Way::ALL {
        let stage = Stage::new(way, origin.address);
        for case in &cases {
            if let Err(why) = check_response(case, &stage) {
                wrong.push(format!("{way:?}, {}: {why}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} by {} ways:\n{}", wrong.len(), cases.len(), Way::ALL.len(), wrong.join("\n"));
}

fn check_response(case: &Case, stage: &Stage) -> Result<(), String> {
    let outcome = &case.outcomes[0].words;
    let (expected, stored) = outcome.strip_suffix(" stored").map_or((outcome.as_str(), false), |rest| (rest, true));
    let method = case.method.as_deref().unwrap_or("GET");
    let target = stage.way.target(&format!("/{}", case.name));
    let seen = match stage.open().try_request(method, &target) {
        // The head of a response that breaks off may not have been sent.
        None => "broken".to_owned(),
        Some(first) if !first.complete => "broken".to_owned(),
        Some(first) if first.status == 502 => "502".to_owned(),
        Some(first) => format!("{} {}", first.status, first.text()).trim_end().to_owned(),
    };
    if seen != expected {
        return Err(format!("{seen:?}"));
    }
    // Uses the same connection to the origin if it is still open.
    let after = format!("/after/{}", case.name);
    let next = stage.open().try_request("GET", &stage.way.target(&after));
    if next.as_ref().is_none_or(|next| next.text() != after || !next.complete) {
        return Err(format!("afterwards {next:?}"));
    }
    let again = stage.open().try_request(method, &target);
    if again.as_ref().is_some_and(Response::is_hit) != stored {
        return Err(format!("again {again:?}"));
    }
    Ok(())
}
