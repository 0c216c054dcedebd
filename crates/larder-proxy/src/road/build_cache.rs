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
    HeaderValue, Method, Request, StatusCode,
    header::{ALLOW, AUTHORIZATION, CONNECTION, CONTENT_TYPE, COOKIE, ETAG, RETRY_AFTER, WWW_AUTHENTICATE},
};
use larder_http::{CacheStatus, cache_status::Forward, date::format_http_date, fields::accepted_authority};

use self::upload::{Upload, UploadBody, UploadPiece, UploadRefusal};
use crate::{
    figures::outcome::{MissReason, Outcome},
    ground::{
        cache::{
            lookup::{self, FoundResponse, LookupResult},
            purges::PurgeMode,
        },
        clock,
        errors::Failure,
        received_body::{IncomingBody, ReceivedBody},
    },
    origins::request_body::ClientBody,
    road::{
        admitted::AdmittedRequest,
        client::{
            peer_user::{self, NearEnds},
            response_body::{ResponseBody, text_response},
        },
        exchange::ClientExchange,
        invalidation::{self, InvalidatedBy, Invalidation, InvalidationSubject},
        served::ServedResponse,
        steps::Step,
        target::TargetKind,
    },
    targets::{
        asked::RequestHead,
        build_caches::{BuildCacheRequest, WriteAccess, WriterFacts},
    },
};

impl ClientExchange {
    /// Decides whether the client may write, if the request is for a build cache.
    pub(super) fn judge_writer(&mut self, request: &Request<impl Sized>) {
        let near = self.client.near;
        let TargetKind::BuildCache(cache) = &mut self.target.kind else { return };
        let is_own_user = || near.and_then(NearEnds::user).is_some_and(peer_user::is_own_or_root);
        cache.judge_writer(&WriterFacts {
            fields: request.headers(),
            authority: accepted_authority(request.uri(), request.headers()),
            is_near: near.is_some(),
            is_own_user: &is_own_user,
        });
    }

    /// Keeps `asked`, an admitted request to a build cache, for the exchange, and returns its next step.
    pub(super) fn admit_to_build_cache(
        &mut self,
        mut asked: Arc<RequestHead>,
        request: Box<Request<IncomingBody>>,
    ) -> Step {
        let step = self.step_in_build_cache(RequestHead::unshared(&mut asked));
        self.body = Some(Box::new(ClientBody::Arriving(ReceivedBody::of_request(request))));
        self.admitted = Some(AdmittedRequest { worker: Arc::clone(&self.worker), asked });
        step
    }

    /// Removes the credentials from an admitted request to a build cache, and returns its next step.
    pub(super) fn step_in_build_cache(&self, asked: &mut RequestHead) -> Step {
        // The token must not reach the origin. Entries are the same for all clients, so credentials select nothing.
        asked.fields.remove(AUTHORIZATION);
        asked.fields.remove(COOKIE);
        let is_read = matches!(asked.method, Method::GET | Method::HEAD);
        let is_for_entry =
            asked.key.is_some() && self.target.rest(asked.path()).split('?').next() != Some(TURBO_STATUS);
        if is_read && is_for_entry { Step::Cache } else { Step::Own }
    }

    /// Returns the 404 for a build cache's entry that neither the store nor the origin has.
    ///
    /// `None` if the request is not for an entry, or failed for another reason.
    pub(super) fn absence(&self, failure: &Failure) -> Option<ServedResponse> {
        let is_for_entry = self.target.is_build_cache() && self.trace.has(Step::Cache);
        match failure {
            Failure::Offline { .. } if is_for_entry => Some(absent("it is not in this build cache\n")),
            failure if is_for_entry && failure.is_origin_failure() => {
                Some(absent("it is not in this build cache, and its origin does not respond\n"))
            }
            _ => None,
        }
    }

    /// Answers a request to a build cache, unless it reads an entry.
    ///
    /// # Errors
    /// The request's body does not arrive.
    pub(super) async fn answer_for_build_cache(
        &mut self,
        cache: &BuildCacheRequest,
    ) -> Result<ServedResponse, Failure> {
        let body = self.body.take().expect("an admitted request has its body");
        let admitted = self.admitted();
        let AdmittedRequest { worker, asked } = admitted;
        let mut body = UploadBody::new(&worker.policy.limits, &worker.watches, *body);
        let rest = cache.rest(asked.path()).split('?').next().unwrap_or_default();
        let mut served = match (asked.method.as_str(), cache.access()) {
            ("GET" | "HEAD", _) if rest == TURBO_STATUS => json(r#"{"status":"enabled"}"#),
            ("GET" | "HEAD", _) => absent("it is not in this build cache\n"),
            ("PROPFIND", _) => admitted.properties().await,
            // Turborepo reports its own hits and misses with this request. They are not needed.
            ("POST", _) if rest == TURBO_EVENTS => json("{}"),
            ("OPTIONS", _) => options(),
            ("PUT", WriteAccess::Granted) => admitted.put(&mut body, cache).await?,
            ("DELETE", WriteAccess::Granted) => admitted.delete().await,
            ("MKCOL", WriteAccess::Granted) => written(StatusCode::CREATED, "collections need not be made\n"),
            ("PUT" | "DELETE" | "MKCOL", refused) => refusal(refused),
            _ => {
                let mut served = failed(StatusCode::METHOD_NOT_ALLOWED, "a build cache does not know this method\n");
                served.response.headers_mut().insert(ALLOW, HeaderValue::from_static(METHODS));
                served
            }
        };
        let is_http2 = self.client.is_http2();
        let is_too_long = served.response.status() == StatusCode::PAYLOAD_TOO_LARGE;
        if is_too_long && !body.is_over() {
            // A body of gigabytes may follow. The response is not held back until it has arrived.
            if !is_http2 {
                served.response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                // A client that reads only after sending everything would never see a response on a closed connection.
                tokio::spawn(async move { body.skip().await });
            }
            return Ok(served);
        }
        let is_expected = asked.expectation().is_some();
        // Also here, a client may read only after it has sent its whole body.
        if !body.is_over() && (is_expected || !body.skip().await) && !is_http2 {
            served.response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(served)
    }
}

impl AdmittedRequest {
    /// Stores the body of a PUT as an entry.
    async fn put(&self, body: &mut UploadBody, cache: &BuildCacheRequest) -> Result<ServedResponse, Failure> {
        let Self { asked, .. } = self;
        if asked.path().ends_with('/') {
            return Ok(failed(StatusCode::METHOD_NOT_ALLOWED, "the path of an entry must not end with a slash\n"));
        }
        let Some(primary) = &asked.key else {
            return Ok(failed(StatusCode::URI_TOO_LONG, "the path is too long for an entry\n"));
        };
        let before = self.find().await;
        if let Some(served) = upload::precondition(&asked.fields, before.as_ref()) {
            return Ok(served);
        }
        let refused = |refusal| Ok(refused_upload(&refusal));
        let mut upload = match Upload::begin(self, primary) {
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

    /// Removes the entry that a DELETE names.
    async fn delete(&self) -> ServedResponse {
        let Self { worker, asked } = self;
        let Some(primary) = asked.key.as_ref() else { return absent("it is not in this build cache\n") };
        if self.find().await.is_none() {
            return absent("it is not in this build cache\n");
        }
        // An upload of the entry that began before the DELETE must not bring it back.
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

    /// Returns the stored entry that a request names.
    async fn find(&self) -> Option<FoundResponse> {
        let Self { worker, asked } = self;
        match lookup::find(&worker.cache, asked.key.as_ref()?, &asked.fields).await {
            LookupResult::Found(found) => Some(found),
            LookupResult::OtherVariants(_) | LookupResult::Nothing => None,
        }
    }

    /// Answers PROPFIND (RFC 4918 9.1) for one path. The Depth field is ignored.
    async fn properties(&self) -> ServedResponse {
        let Self { asked, .. } = self;
        let path = asked.path().split('?').next().unwrap_or_default();
        let (kind, modified, len) = if path.ends_with('/') {
            ("<D:collection/>", format_http_date(clock::now()), String::new())
        } else {
            let Some(found) = self.find().await else { return absent("it is not in this build cache\n") };
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
        ServedResponse { response: Box::new(response), outcome: Outcome::Hit, origin: None, why: None }
    }
}

fn options() -> ServedResponse {
    let mut served = written(StatusCode::NO_CONTENT, "");
    let fields = served.response.headers_mut();
    fields.insert(ALLOW, HeaderValue::from_static(METHODS));
    fields.insert("dav", HeaderValue::from_static("1"));
    served
}

/// Returns the response that refuses a write, with the reason.
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

/// Returns a 404: the entry does not exist.
fn absent(text: &'static str) -> ServedResponse {
    let why = MissReason::of(CacheStatus::forwarded(Forward::UriMiss));
    let response = text_response(StatusCode::NOT_FOUND, text.into());
    ServedResponse { response: Box::new(response), outcome: Outcome::Miss, origin: None, why }
}

/// Returns the response to a request that changed something, or that needed no change.
fn written(status: StatusCode, text: &'static str) -> ServedResponse {
    let why = MissReason::of(CacheStatus::forwarded(Forward::Method));
    ServedResponse { response: Box::new(text_response(status, text.into())), outcome: Outcome::Miss, origin: None, why }
}

fn failed(status: StatusCode, text: impl Into<Bytes>) -> ServedResponse {
    ServedResponse {
        response: Box::new(text_response(status, text.into())),
        outcome: Outcome::Failed,
        origin: None,
        why: None,
    }
}

fn json(text: &'static str) -> ServedResponse {
    let mut served = written(StatusCode::OK, "");
    *served.response.body_mut() = ResponseBody::full(text.into());
    served.response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    served
}

const METHODS: &str = "GET, HEAD, PUT, DELETE, OPTIONS, PROPFIND, MKCOL";
/// Path at which Turborepo asks whether the cache is enabled.
const TURBO_STATUS: &str = "/v8/artifacts/status";
const TURBO_EVENTS: &str = "/v8/artifacts/events";
