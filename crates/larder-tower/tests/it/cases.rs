//! Reads the table of cases (`cases.txt`), plays the origin, and compares what the client of a [`Subject`] gets.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{AGE, DATE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED},
};
use larder_http::{Timestamp, date::format_http_date};
use std::{
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::{SystemTime, UNIX_EPOCH},
};

const TABLE: &str = include_str!("cases.txt");
/// The time at which every case begins, in seconds since 1970, for a subject whose time can be set.
const START_SECS: i64 = 1_800_000_000;

/// A case of the table.
struct Case {
    name: &'static str,
    kinds: &'static str,
    steps: Vec<&'static str>,
}

/// Returns the cases for caches of this kind.
fn cases(kind: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[') {
            Some(line) => {
                let (kinds, name) = line.split_once("] ").expect("[kinds] name");
                assert!(["both", "private", "shared"].contains(&kinds), "{line}");
                cases.push(Case { name, kinds, steps: Vec::new() });
            }
            None => cases.last_mut().expect("a case begins with its name").steps.push(line),
        }
    }
    cases.retain(|case| case.kinds == kind || case.kinds == "both");
    assert!(cases.len() > 40, "the table is read");
    cases
}

/// The origin of all cases, and the clock.
#[derive(Default)]
pub(crate) struct CaseOrigin {
    start_secs: AtomicI64,
    passed_secs: AtomicI64,
    answer: Mutex<String>,
    /// The request fields that the origin received for the present step.
    received: Mutex<Option<HeaderMap>>,
    answer_count: Mutex<usize>,
}

impl CaseOrigin {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_secs(self.start_secs.load(SeqCst)).plus_secs(self.passed_secs.load(SeqCst))
    }

    /// Returns the answer to a request, or `None` if the connection is to be closed.
    pub(crate) fn answer(&self, method: &Method, fields: &HeaderMap) -> Option<Response<Bytes>> {
        *self.received.lock().unwrap() = Some(fields.clone());
        let answer = self.answer.lock().unwrap().clone();
        let (status, lines) = answer.split_once(' ').unwrap_or((answer.as_str(), ""));
        if status == "drop" {
            return None;
        }
        let mut count = self.answer_count.lock().unwrap();
        *count += 1;
        let mut response = Response::new(body(*count));
        *response.status_mut() = status.parse().expect("a status");
        *response.headers_mut() = self.fields(lines);
        response.headers_mut().insert(DATE, format_http_date(self.now()));
        let validators = [(IF_NONE_MATCH, ETAG), (IF_MODIFIED_SINCE, LAST_MODIFIED)];
        let mut validators = validators.iter().filter(|(condition, _)| fields.contains_key(condition));
        let decisive = validators.next();
        if decisive.is_some_and(|(condition, field)| response.headers().get(field) == fields.get(condition)) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let has_body = !matches!(response.status().as_u16(), 204 | 304) && method != Method::HEAD;
        Some(if has_body { response } else { response.map(|_| Bytes::new()) })
    }

    /// Reads fields from `Name: value; Name: value`, with dates relative to the present.
    fn fields(&self, text: &str) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for field in text.split("; ").filter(|field| !field.is_empty()) {
            let (name, value) = field.split_once(": ").expect("Name: value");
            let value = match value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                Some(secs) => format_http_date(self.now().plus_secs(secs.parse().expect("seconds"))),
                None => HeaderValue::try_from(value).expect("a field's value"),
            };
            fields.append(HeaderName::try_from(name).expect("a field's name"), value);
        }
        fields
    }
}

/// Returns the seconds since 1970.
fn now_secs() -> i64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    passed.as_secs().cast_signed()
}

/// Returns the body of the answer with this number.
fn body(number: usize) -> Bytes {
    match number {
        0 => Bytes::new(),
        _ => format!("{number:04} is the number of this answer").into(),
    }
}

/// A response as a client gets it.
pub(crate) type Reply = Result<(StatusCode, HeaderMap, Bytes), String>;

/// A cache that is held to the table.
pub(crate) trait Subject {
    /// Whether the subject takes the time from the origin of the cases. If not, it is held to the cases in which no
    /// time passes.
    const FOLLOWS_TIME: bool = true;

    /// Returns the URL before each path.
    fn base(&self) -> String;

    /// Forgets all responses.
    async fn clear(&self);

    /// Sends a request through the cache, and reads the whole response.
    async fn send(&self, request: Request<Bytes>) -> Reply;
}

/// Runs all cases for caches of this kind, each with an empty cache. Returns what went wrong.
pub(crate) async fn mismatches<S: Subject>(kind: &str, subject: &S, origin: &CaseOrigin) -> Vec<String> {
    let mut mismatches = Vec::new();
    let passes_time = |case: &Case| case.steps.iter().any(|step| step.starts_with('+'));
    for case in cases(kind).iter().filter(|case| S::FOLLOWS_TIME || !passes_time(case)) {
        origin.start_secs.store(if S::FOLLOWS_TIME { START_SECS } else { now_secs() }, SeqCst);
        subject.clear().await;
        mismatches.extend(run(case, subject, origin).await.err().map(|mismatch| mismatch.to_string()));
    }
    mismatches
}

/// Runs one case, and returns what went wrong.
async fn run(case: &Case, subject: &impl Subject, origin: &CaseOrigin) -> Result<(), Mismatch> {
    origin.passed_secs.store(0, SeqCst);
    *origin.answer_count.lock().unwrap() = 0;
    for step in &case.steps {
        if let Some(secs) = step.strip_prefix('+') {
            origin.passed_secs.fetch_add(secs.parse().expect("seconds"), SeqCst);
            continue;
        }
        let (request, rest) = step.split_once(" -> ").expect("request -> answer => outcome");
        let (answer, outcome) = rest.split_once(" => ").expect("answer => outcome");
        *origin.answer.lock().unwrap() = answer.to_owned();
        *origin.received.lock().unwrap() = None;
        let mut words = request.splitn(3, ' ');
        let method = words.next().expect("a method");
        let path = words.next().expect("a path");
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = method.parse().expect("a method");
        *request.uri_mut() = format!("{}{path}", subject.base()).parse().expect("a URL");
        *request.headers_mut() = origin.fields(words.next().unwrap_or_default());
        let sent = request.clone();
        let reply = subject.send(request).await;
        let received = origin.received.lock().unwrap().take();
        let number = *origin.answer_count.lock().unwrap();
        if let Err(problem) = check(outcome, &sent, &received, number, &reply) {
            return Err(Mismatch { case: case.name, step, problem: format!("{problem}: {received:?} {reply:?}") });
        }
    }
    Ok(())
}

/// A step that did not go as the table says.
struct Mismatch {
    case: &'static str,
    step: &'static str,
    problem: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n    {}\n    {}", self.case, self.step, self.problem)
    }
}

fn check(
    outcome: &str,
    sent: &Request<Bytes>,
    received: &Option<HeaderMap>,
    number: usize,
    reply: &Reply,
) -> Result<(), &'static str> {
    let mut words = outcome.split(' ');
    let word = words.next().expect("an outcome");
    let mut rest: Vec<&str> = words.collect();
    let age = rest.pop_if(|word| word.starts_with("age=")).map(|word| word.trim_start_matches("age="));
    let wanted: usize = rest.pop().map_or(number, |number| number.parse().expect("a number"));
    let own = |fields: &HeaderMap| {
        [IF_NONE_MATCH, IF_MODIFIED_SINCE]
            .iter()
            .any(|name| fields.contains_key(name) && !sent.headers().contains_key(name))
    };
    let (is_asked, is_validation) = match received {
        Some(fields) => (true, own(fields)),
        None => (false, false),
    };
    let Ok((status, fields, got)) = reply else {
        return if word == "error" { Ok(()) } else { Err("the client gets an error") };
    };
    let (wanted_ask, wanted_status) = match word {
        "fetch" => (is_asked && !is_validation, None),
        "refetch" => (is_asked && is_validation, None),
        "validated" => (is_asked && is_validation, Some(200)),
        "stale" => (is_asked, Some(200)),
        "refused" => (!is_asked, Some(504)),
        "error" => return if status.is_server_error() { Ok(()) } else { Err("the client gets no error") },
        "hit" => (!is_asked, Some(200)),
        hit => (!is_asked, hit.strip_prefix("hit-").map(|status| status.parse().expect("a status"))),
    };
    if !wanted_ask {
        return Err("the origin was asked otherwise");
    }
    if wanted_status.is_some_and(|wanted: u16| wanted != status.as_u16()) {
        return Err("another status");
    }
    if age.is_some_and(|age| fields.get(AGE).is_none_or(|value| value != age)) {
        return Err("another age");
    }
    let whole = match word {
        "refused" => Bytes::new(),
        _ if sent.method() == Method::HEAD || status.as_u16() == 204 => Bytes::new(),
        _ => body(wanted),
    };
    let wanted = if word == "hit-206" { whole.slice(..4) } else { whole };
    if *got == wanted { Ok(()) } else { Err("another body") }
}
