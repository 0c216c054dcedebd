//! The proxy as a shared cache, held to the table of cases of larder-tower. Its time cannot be set, so the cases in which
//! time passes are left out.

#[path = "../../../larder-tower/tests/it/cases.rs"]
mod table;

use std::{cell::RefCell, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use larder_device::block_on;
use table::{CaseOrigin, Subject};

use crate::support::{Fixture, Received, Reply, eventually};

/// A proxy in front of the origin of the cases, a new one for each case.
struct ProxySubject {
    origin: Arc<CaseOrigin>,
    fixture: RefCell<Fixture>,
}

impl ProxySubject {
    fn new(origin: &Arc<CaseOrigin>) -> Self {
        let fixture = RefCell::new(fixture(origin));
        Self { origin: Arc::clone(origin), fixture }
    }
}

impl Subject for ProxySubject {
    const FOLLOWS_TIME: bool = false;

    fn base(&self) -> String {
        "http://site.example".to_owned()
    }

    async fn clear(&self) {
        self.fixture.replace(fixture(&self.origin));
    }

    async fn send(&self, request: Request<Bytes>) -> table::Reply {
        let fixture = self.fixture.borrow();
        let store = fixture.store.as_ref().expect("this fixture has a store");
        let commits_before = store.stats().commits;
        let lines = request.headers().iter();
        let lines: Vec<String> =
            lines.map(|(name, value)| format!("{name}: {}", value.to_str().expect("the table has text"))).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let target = request.uri().path_and_query().expect("the table has paths").as_str();
        let response = fixture.connect().try_request_with(request.method().as_str(), target, &lines);
        let response = response.filter(|response| response.complete).ok_or("no whole response")?;
        if response.cache_status().contains("stored") {
            // The entry of the resource is the last to be written: the response, or the marker that leads to it.
            let key = fixture.key(target);
            eventually("it is stored", || store.stats().commits > commits_before && store.may_contain(&key));
        }
        let fields = response.fields.iter().map(|(name, value)| field(name, value)).collect();
        let status = StatusCode::from_u16(response.status).map_err(|error| error.to_string())?;
        Ok((status, fields, response.body.into()))
    }
}

fn fixture(origin: &Arc<CaseOrigin>) -> Fixture {
    let origin = Arc::clone(origin);
    Fixture::new(move |received, _| answer(&origin, received))
}

fn answer(origin: &CaseOrigin, received: &Received) -> Reply {
    let method: Method = received.method.parse().expect("the proxy sends a method");
    let fields: HeaderMap = received.fields.iter().map(|(name, value)| field(name, value)).collect();
    let Some(response) = origin.answer(&method, &fields) else { return Reply::default().close() };
    let lines = response.headers().iter();
    let lines: Vec<String> =
        lines.map(|(name, value)| format!("{name}: {}", value.to_str().expect("the table has text"))).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let status = response.status().to_string();
    match method {
        Method::HEAD => Reply::head(&status, &lines),
        _ => Reply::status(&status, &lines, response.body()),
    }
}

fn field(name: &str, value: &str) -> (HeaderName, HeaderValue) {
    (name.parse().expect("a field's name"), value.parse().expect("a field's value"))
}

#[test]
fn proxy_keeps_to_the_table() {
    let origin = Arc::new(CaseOrigin::default());
    let mismatches = block_on(table::mismatches("shared", &ProxySubject::new(&origin), &origin));
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}
