// A `Fetcher` without a network: the least that the cache of responses needs of its user. The origin is a function of
// the path. The examples in the documentation of `larder_cache::http` include this file.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, response};
use http_body::Frame;
use larder_cache::{
    Cache,
    http::{
        ResponseCache,
        answer::{Answer, AnswerBody, CacheQuery, marks::ResponseMarks},
        body::{
            continuation::{ContinuationAnswer, MissingRange},
            error::BodyError,
            fill::BodyChecks,
            table::BodyTable,
        },
        chunks::ChunkedBody,
        fetcher::{
            AccessAnswer, ClientRequest, CursorTerms, FetchEvent, Fetcher, IncomingBody, PromiseRule, Refusal,
            RequestEdits,
        },
        http_cache::HttpCache,
        late_commits::LateCommit,
        lookup::FoundResponse,
        storing::{StoreAdmission, StorePlace},
    },
};
use larder_http::{
    Settings, StoredHead, Timestamp,
    framing::{BodyMeter, CompletedBody, EndMark, IncompleteBody},
    route::{RequestTerms, UplinkState},
    rules::RuledRequest,
};
use std::{
    convert::Infallible,
    future::poll_fn,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

/// A GET request for a page of the site.
pub(crate) struct PageRequest {
    path: String,
    fields: HeaderMap,
    key: Arc<[u8]>,
    takes_plain: bool,
}

/// The body of a page, as the origin sends it.
pub(crate) struct PageBody {
    bytes: Option<Bytes>,
    meter: BodyMeter,
}

/// The way to the origin: `https://site.example`, whose pages are fresh for a minute.
pub(crate) struct Site {
    cache: Cache,
    responses: Arc<ResponseCache>,
    bodies: BodyTable<Self>,
    marks: ResponseMarks,
    /// The events of fetches, as text.
    pub(crate) events: Mutex<Vec<String>>,
}

impl PageRequest {
    /// Creates a request for `path`, with these fields.
    pub(crate) fn new(path: &str, fields: HeaderMap) -> Self {
        let key = Settings::default().key_rules.key("https", AUTHORITY, path).expect("it is a path").into();
        Self { path: path.to_owned(), fields, key, takes_plain: false }
    }

    /// Returns this request with the wish to encode the head of the response itself.
    pub(crate) fn plain(self) -> Self {
        Self { takes_plain: true, ..self }
    }
}

impl PageBody {
    /// Creates a body of these bytes, which arrive in one piece.
    pub(crate) fn new(bytes: Bytes) -> Self {
        let meter = BodyMeter::of_len(bytes.len() as u64);
        Self { bytes: Some(bytes), meter }
    }
}

impl Site {
    /// Opens the cache of the site's responses in a directory.
    pub(crate) fn open(directory: &Path) -> larder_cache::Result<Arc<HttpCache<Self>>> {
        let cache = Cache::builder(directory).disk("32MB").open()?;
        let entry_bytes_max = cache.value_bytes_max();
        let responses = cache.responses(Settings::default());
        let marks = ResponseMarks { via: None, add_cache_status: true, cache_name: "example".to_owned() };
        let site = Self { cache, responses, bodies: BodyTable::default(), marks, events: Mutex::default() };
        Ok(Arc::new(HttpCache { flights: Arc::default(), fetcher: Arc::new(site), entry_bytes_max }))
    }
}

/// Runs `example` with a cache in a temporary directory, on a tokio runtime.
pub(crate) fn run(example: impl AsyncFnOnce(Arc<HttpCache<Site>>)) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async { example(Site::open(directory.path()).expect("a cache")).await });
}

/// Requests a page from the cache.
pub(crate) async fn get(site: &Arc<HttpCache<Site>>, path: &str) -> Result<Answer<Site>, Refusal> {
    let asked = Arc::new(PageRequest::new(path, HeaderMap::new()));
    CacheQuery { http: site, asked: &asked }.answer().await
}

/// Fetches a page, reads it, and waits until it is stored. Returns its key.
pub(crate) async fn store(site: &Arc<HttpCache<Site>>, path: &str) -> Arc<[u8]> {
    let answer = get(site, path).await.expect("the origin always answers");
    read(answer.response.made(&site.fetcher.marks, answer.status).into_body()).await.expect("the whole page");
    site.fetcher.cache.sync().await.expect("the disk works");
    PageRequest::new(path, HeaderMap::new()).key
}

/// Reads the whole body of an answer.
pub(crate) async fn read(body: AnswerBody<Site>) -> Result<Vec<u8>, BodyError> {
    let mut read = Vec::new();
    match body {
        AnswerBody::Empty => {}
        AnswerBody::Whole(bytes) => read.extend_from_slice(&bytes),
        AnswerBody::Cursor(mut cursor) => {
            while let Some(bytes) = poll_fn(|context| cursor.poll_data(context)).await {
                read.extend_from_slice(&bytes?);
            }
        }
        AnswerBody::Parts(mut parts) => {
            while let Some(bytes) = poll_fn(|context| parts.poll_data(context)).await {
                read.extend_from_slice(&bytes?);
            }
        }
        AnswerBody::Origin(mut body) => {
            while let Some(frame) = poll_fn(|context| body.poll_frame(context)).await {
                read.extend_from_slice(&frame?.into_data().unwrap_or_default());
            }
        }
    }
    Ok(read)
}

impl ClientRequest for PageRequest {
    fn terms(&self) -> RequestTerms<'_> {
        let ruled = RuledRequest {
            method: &Method::GET,
            scheme: "https",
            authority: AUTHORITY,
            path: &self.path,
            fields: &self.fields,
        };
        RequestTerms::new(ruled, UplinkState::Up)
    }

    fn method(&self) -> &Method {
        &Method::GET
    }

    fn fields(&self) -> &HeaderMap {
        &self.fields
    }

    fn key(&self) -> Option<&Arc<[u8]>> {
        Some(&self.key)
    }

    fn client(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }

    fn takes_plain(&self) -> bool {
        self.takes_plain
    }

    fn names_digest(&self) -> bool {
        false
    }

    fn is_never_stored(&self) -> bool {
        false
    }

    fn checks_access(&self) -> bool {
        false
    }

    fn has_parts(&self) -> bool {
        false
    }
}

impl IncomingBody for PageBody {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let bytes = self.bytes.take();
        self.meter.take(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64));
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn end(&self) -> Result<CompletedBody, IncompleteBody> {
        self.meter.end(EndMark::Length)
    }

    fn may_end_quietly(&self) -> bool {
        false
    }

    fn remaining(&self) -> Option<u64> {
        self.meter.remaining()
    }

    fn has_arrived(&self) -> bool {
        false
    }

    fn take_arrived(&mut self) -> Option<(Bytes, CompletedBody)> {
        None
    }
}

impl Fetcher for Site {
    type Asked = PageRequest;
    type Body = PageBody;
    type Failure = Refusal;
    type Permission = Infallible;
    type Place = ();

    fn cache(&self) -> &Arc<ResponseCache> {
        &self.responses
    }

    fn bodies(&self) -> &BodyTable<Self> {
        &self.bodies
    }

    fn marks(&self) -> &ResponseMarks {
        &self.marks
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1_800_000_000)
    }

    async fn ask(&self, asked: &PageRequest, _: &RequestEdits) -> Result<(response::Parts, PageBody), Refusal> {
        let page = format!("{:PAGE_BYTES$}", format!("the page {}", asked.path));
        let response = http::Response::builder().header("cache-control", "max-age=60").header("etag", "\"v1\"");
        Ok((response.body(()).expect("valid fields").into_parts().0, PageBody::new(page.into())))
    }

    fn refuse(_: &PageRequest, refusal: Refusal) -> Refusal {
        refusal
    }

    fn is_origin_failure(_: &Refusal) -> bool {
        false
    }

    async fn ask_rest(&self, _: &PageRequest, _: &MissingRange<'_>, _: u64) -> ContinuationAnswer<PageBody> {
        ContinuationAnswer::Failed("the origin sends whole pages only".to_owned())
    }

    async fn ask_permission(
        &self,
        _: &PageRequest,
        _: Option<&FoundResponse>,
    ) -> Result<AccessAnswer<Infallible>, Refusal> {
        Ok(AccessAnswer::Refused)
    }

    fn permits(permission: &Infallible, _: &StoredHead, _: Option<u64>) -> bool {
        match *permission {}
    }

    async fn knows_digest(&self, _: &PageRequest, _: &[u8]) -> bool {
        false
    }

    async fn take_place(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn put_confirmed_ruling(&self, _: &PageRequest, _: StatusCode, _: &mut HeaderMap) {}

    async fn checks(&self, _: &PageRequest, _: StatusCode, _: &HeaderMap) -> BodyChecks {
        BodyChecks::default()
    }

    fn terms(&self, _: &PageRequest, _: &ChunkedBody) -> CursorTerms {
        CursorTerms { may_ask: false, promise: PromiseRule::All }
    }

    fn divides(&self, _: &PageRequest, _: u64) -> bool {
        false
    }

    fn can_refresh(&self) -> bool {
        false
    }

    fn asks_nodes(&self, _: &PageRequest) -> bool {
        false
    }

    fn piece_len(&self, _: &PageRequest, _: &ChunkedBody) -> Option<u64> {
        None
    }

    fn admit_copy(&self, _: &PageBody, _: &StorePlace, _: &StoredHead, _: Option<u64>) -> Option<StoreAdmission> {
        None
    }

    fn keeps(&self, _: &PageBody, _: &[u8], _: u64) -> bool {
        true
    }

    fn begin_late_commit(&self) -> Option<LateCommit> {
        self.cache.begin_late_commit()
    }

    fn note(&self, event: FetchEvent<'_, PageRequest>) {
        let text = match event {
            FetchEvent::Begun => "begun",
            FetchEvent::Joined => "joined",
            FetchEvent::Stored { .. } => "stored",
            FetchEvent::GivenUp => "given up",
            FetchEvent::Mismatched { .. } => "mismatched",
        };
        self.events.lock().expect("no holder panics").push(text.to_owned());
    }
}

/// The host of the site.
const AUTHORITY: &str = "site.example";
/// Length of a page, which is filled up with spaces.
const PAGE_BYTES: usize = 10_000;
