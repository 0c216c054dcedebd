//! Answers the requests of build tools to a build cache, as plain HTTP and as much WebDAV as they use.
//!
//! Owns: the methods, and the texts of refusals. `build_caches` decides who may write, `upload` stores what a client
//! sends, and `serve` reads entries like stored responses. Invariant: an entry is visible only when all of it was
//! received, has the digest that its path names, if it names one, and is stored.
//!
//! Known clients: ccache, sccache, Bazel, Gradle, Turborepo and Nix. There are no collections: every path that ends
//! with a slash counts as an existing collection (RFC 4918 5.2).

mod upload;

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderValue, Request, StatusCode,
    header::{ALLOW, AUTHORIZATION, CONNECTION, CONTENT_TYPE, COOKIE, ETAG, RETRY_AFTER, WWW_AUTHENTICATE},
};
use larder_http::{CacheStatus, cache_status::Forward, date::format_http_date, fields::accepted_authority};

use self::upload::{Upload, UploadBody, UploadPiece, UploadRefusal};
use crate::{
    asked::RequestHead,
    build_caches::{BuildCacheRequest, WriteAccess, WriterFacts},
    cache::{
        lookup::{self, FoundResponse, LookupResult},
        purges::PurgeMode,
    },
    client::{
        peer::Client,
        peer_user::{self, NearEnds},
        response_body::{ResponseBody, text_response},
    },
    clock,
    errors::Failure,
    outcome::{MissReason, Outcome},
    received_body::{IncomingBody, ReceivedBody},
    request::{
        admission,
        invalidation::{self, InvalidatedBy, Invalidation, InvalidationSubject},
        serve,
        served::ServedResponse,
        target::Target,
    },
    worker::Worker,
};

/// Answers a request to a build cache.
///
/// # Errors
/// The request is refused like any other, or its body does not arrive.
pub(crate) async fn answer(
    client: &Arc<Client>,
    worker: &Arc<Worker>,
    target: &Target,
    cache: &BuildCacheRequest,
    mut request: Box<Request<IncomingBody>>,
) -> Result<ServedResponse, Failure> {
    // Judged first, because fields that a client names in Connection are removed when the request is admitted.
    let access = access(client, &request, cache);
    let mut asked = admission::admit(client, worker, target, &mut request, None).await?;
    let head = Arc::get_mut(&mut asked).expect("a request that was just admitted has one owner");
    // The origin must not learn the token. Entries are the same for all clients.
    head.fields.remove(AUTHORIZATION);
    head.fields.remove(COOKIE);
    let mut body = UploadBody::new(worker, ReceivedBody::of_request(request));
    let rest = cache.rest(asked.path()).split('?').next().unwrap_or_default();
    let mut served = match (asked.method.as_str(), access) {
        ("GET" | "HEAD", _) if rest == TURBO_STATUS => json(r#"{"status":"enabled"}"#),
        ("GET" | "HEAD", _) => return read(worker, &asked).await,
        ("PROPFIND", _) => properties(worker, &asked).await,
        // Turborepo reports its own hits and misses.
        ("POST", _) if rest == TURBO_EVENTS => json("{}"),
        ("OPTIONS", _) => options(),
        ("PUT", WriteAccess::Granted) => put(worker, &asked, &mut body, cache).await?,
        ("DELETE", WriteAccess::Granted) => delete(worker, &asked).await,
        ("MKCOL", WriteAccess::Granted) => written(StatusCode::CREATED, "collections need not be made\n"),
        ("PUT" | "DELETE" | "MKCOL", refused) => refusal(refused),
        _ => {
            let mut served = failed(StatusCode::METHOD_NOT_ALLOWED, "a build cache does not know this method\n");
            served.response.headers_mut().insert(ALLOW, HeaderValue::from_static(METHODS));
            served
        }
    };
    let is_too_long = served.response.status() == StatusCode::PAYLOAD_TOO_LARGE;
    if is_too_long && !body.is_over() {
        // The response does not wait for a body that may have gigabytes.
        if !client.is_http2() {
            served.response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            // A client that sends before it reads would never see a response on a closed connection.
            tokio::spawn(async move { body.skip().await });
        }
        return Ok(served);
    }
    let is_expected = asked.expectation().is_some();
    // Here, too, a client may read only after it has sent its whole body.
    if !body.is_over() && (is_expected || !body.skip().await) && !client.is_http2() {
        served.response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(served)
}

/// Returns whether a request's client may write to the build cache.
fn access(client: &Client, request: &Request<IncomingBody>, cache: &BuildCacheRequest) -> WriteAccess {
    let is_own_user = || client.near.and_then(NearEnds::user).is_some_and(peer_user::is_own_or_root);
    cache.judge_writer(&WriterFacts {
        fields: request.headers(),
        authority: accepted_authority(request.uri(), request.headers()),
        is_near: client.near.is_some(),
        is_own_user: &is_own_user,
    })
}

/// Answers from a stored entry, or from the origin.
async fn read(worker: &Arc<Worker>, asked: &Arc<RequestHead>) -> Result<ServedResponse, Failure> {
    let Some(key) = &asked.key else { return Ok(absent("it is not in this build cache\n")) };
    match Box::pin(serve::from_cache(worker, asked, key)).await {
        Err(Failure::Offline { .. }) => Ok(absent("it is not in this build cache\n")),
        Err(failure) if failure.is_origin_failure() => {
            Ok(absent("it is not in this build cache, and its origin does not respond\n"))
        }
        served => served,
    }
}

/// Stores what a client sends.
async fn put(
    worker: &Arc<Worker>,
    asked: &RequestHead,
    body: &mut UploadBody,
    cache: &BuildCacheRequest,
) -> Result<ServedResponse, Failure> {
    if asked.path().ends_with('/') {
        return Ok(failed(StatusCode::METHOD_NOT_ALLOWED, "the path of an entry must not end with a slash\n"));
    }
    let Some(primary) = &asked.key else {
        return Ok(failed(StatusCode::URI_TOO_LONG, "the path is too long for an entry\n"));
    };
    let before = find(worker, asked).await;
    if let Some(served) = upload::precondition(&asked.fields, before.as_ref()) {
        return Ok(served);
    }
    let refused = |refusal| Ok(refused_upload(&refusal));
    let mut upload = match Upload::begin(worker, asked, primary) {
        Ok(upload) => upload,
        Err(refusal) => return refused(refusal),
    };
    let completed = loop {
        match upload.next_piece(body).await? {
            Ok(UploadPiece::Bytes(piece)) => match upload.push(piece).await {
                Ok(()) => {}
                Err(refusal) => return refused(refusal),
            },
            Ok(UploadPiece::End(completed)) => break completed,
            Err(refusal) => return refused(refusal),
        }
    };
    match upload.finish(completed, cache.has_origin()).await {
        Ok(tag) => {
            let status = if before.is_some() { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
            let mut served = written(status, "");
            served.response.headers_mut().insert(ETAG, tag);
            Ok(served)
        }
        Err(refusal) => refused(refusal),
    }
}

/// Removes an entry.
async fn delete(worker: &Arc<Worker>, asked: &RequestHead) -> ServedResponse {
    let Some(primary) = asked.key.as_ref() else { return absent("it is not in this build cache\n") };
    if find(worker, asked).await.is_none() {
        return absent("it is not in this build cache\n");
    }
    // An upload of the entry that began earlier must not bring it back.
    let subject = InvalidationSubject::Resource(primary);
    let invalidation = Invalidation { subject, effect: PurgeMode::Hard, by: InvalidatedBy::Request };
    match invalidation::invalidate(worker, invalidation).await {
        Ok(_) => written(StatusCode::NO_CONTENT, ""),
        Err(_) => failed(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the entry is removed, but may reappear after a crash: the store could not record the removal\n",
        ),
    }
}

/// Returns the stored entry for a request.
async fn find(worker: &Worker, asked: &RequestHead) -> Option<FoundResponse> {
    match lookup::find(&worker.cache, asked.key.as_ref()?, &asked.fields).await {
        LookupResult::Found(found) => Some(found),
        LookupResult::OtherVariants(_) | LookupResult::Nothing => None,
    }
}

/// Answers PROPFIND (RFC 4918 9.1) about one path, whatever its depth.
async fn properties(worker: &Arc<Worker>, asked: &RequestHead) -> ServedResponse {
    let path = asked.path().split('?').next().unwrap_or_default();
    let (kind, modified, len) = if path.ends_with('/') {
        ("<D:collection/>", format_http_date(clock::now()), String::new())
    } else {
        let Some(found) = find(worker, asked).await else { return absent("it is not in this build cache\n") };
        let len = format!("<D:getcontentlength>{}</D:getcontentlength>", found.entry.body_len());
        ("", format_http_date(found.entry.head.response_time()), len)
    };
    let path = path.replace('&', "&amp;");
    let modified = modified.to_str().unwrap_or_default();
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\"><D:response>\
         <D:href>{path}</D:href><D:propstat><D:prop><D:resourcetype>{kind}</D:resourcetype>\
         <D:getlastmodified>{modified}</D:getlastmodified>{len}</D:prop><D:status>HTTP/1.1 200 OK</D:status>\
         </D:propstat></D:response></D:multistatus>\n"
    );
    let mut response = text_response(StatusCode::MULTI_STATUS, text.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"));
    ServedResponse { response, outcome: Outcome::Hit, origin: None, why: None }
}

fn options() -> ServedResponse {
    let mut served = written(StatusCode::NO_CONTENT, "");
    let fields = served.response.headers_mut();
    fields.insert(ALLOW, HeaderValue::from_static(METHODS));
    fields.insert("dav", HeaderValue::from_static("1"));
    served
}

/// Refuses a write.
fn refusal(access: WriteAccess) -> ServedResponse {
    let (status, text) = match access {
        WriteAccess::WrongToken => {
            (StatusCode::UNAUTHORIZED, "the token is not one of this build cache's tokens: it is read-only for you\n")
        }
        WriteAccess::ReadOnly => (
            StatusCode::FORBIDDEN,
            "this build cache is read-only for you: its operator can set `tokens` for writers, or `local_writers` for \
             programs on its own machine\n",
        ),
        WriteAccess::NoToken | WriteAccess::Granted => (
            StatusCode::UNAUTHORIZED,
            "writing to this build cache needs a token: send it as a bearer token, or as the password of any user\n",
        ),
    };
    let mut served = ServedResponse { outcome: Outcome::Denied, ..failed(status, text) };
    if status == StatusCode::UNAUTHORIZED {
        for challenge in ["Bearer realm=\"build cache\"", "Basic realm=\"build cache: the password is a token\""] {
            served.response.headers_mut().append(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
    }
    served
}

fn refused_upload(refusal: &UploadRefusal) -> ServedResponse {
    let mut served = failed(refusal.status(), format!("{refusal}\n"));
    if refusal.status() == StatusCode::SERVICE_UNAVAILABLE {
        served.response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    served
}

/// Answers that there is no entry.
fn absent(text: &'static str) -> ServedResponse {
    let why = MissReason::of(CacheStatus::forwarded(Forward::UriMiss));
    let response = text_response(StatusCode::NOT_FOUND, text.into());
    ServedResponse { response, outcome: Outcome::Miss, origin: None, why }
}

/// Answers a request that changed something, or needed no change.
fn written(status: StatusCode, text: &'static str) -> ServedResponse {
    let why = MissReason::of(CacheStatus::forwarded(Forward::Method));
    ServedResponse { response: text_response(status, text.into()), outcome: Outcome::Miss, origin: None, why }
}

fn failed(status: StatusCode, text: impl Into<Bytes>) -> ServedResponse {
    ServedResponse { response: text_response(status, text.into()), outcome: Outcome::Failed, origin: None, why: None }
}

fn json(text: &'static str) -> ServedResponse {
    let mut served = written(StatusCode::OK, "");
    *served.response.body_mut() = ResponseBody::full(text.into());
    served.response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    served
}

const METHODS: &str = "GET, HEAD, PUT, DELETE, OPTIONS, PROPFIND, MKCOL";
/// The paths at which Turborepo asks whether the cache is in use, and reports its hits and misses.
const TURBO_STATUS: &str = "/v8/artifacts/status";
const TURBO_EVENTS: &str = "/v8/artifacts/events";
