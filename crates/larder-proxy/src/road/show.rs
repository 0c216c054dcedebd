//! Shows the operator which parts are stored for a URL, and how a request would be answered.
//!
//! Nothing is changed. Invariant: `explain` prints how a request would be answered, with the function that decides real
//! exchanges. Cost: that of `explain`, and one lookup in memory for each chunk of a long body.

use std::sync::Arc;

use larder_http::{Timestamp, date::format_http_date, fields::Fields as _, tags::tags_of};
use larder_store::MemoryHits;

use crate::{
    ground::cache::{
        Cache,
        chunks::ChunkedBody,
        entry::CHUNK_BYTES,
        invalidation,
        lookup::{self, FoundResponse, LookupResult},
        storing,
    },
    road::explain::{self, ExplainedRequest, line},
    run::worker::Worker,
};

/// Describes the stored response that a GET of `uri` with these fields would find. `None` if the URI has no cache key.
pub(crate) async fn show(worker: &Arc<Worker>, asked: &ExplainedRequest<'_>) -> Option<String> {
    let &ExplainedRequest { uri, fields, .. } = asked;
    let mut text = explain::explain(worker, asked).await?;
    let worker = worker.under_policy_of(uri, None, None);
    let cache = &worker.cache;
    for primary in invalidation::primaries_of(cache, uri)? {
        let primary: Arc<[u8]> = primary.into();
        let (found, marker) = match lookup::find(cache, &primary, fields).await {
            LookupResult::Nothing => continue,
            LookupResult::Found(found) => {
                let marker = found.marker.clone();
                (Some(found), marker)
            }
            LookupResult::OtherVariants(marker) => (None, Some(marker)),
        };
        if let Some(marker) = marker {
            for (language, accepted) in &marker.languages {
                let language = String::from_utf8_lossy(language);
                let accepted = String::from_utf8_lossy(accepted.as_bytes());
                line(&mut text, "language", format_args!("{language}, for Accept-Language: {accepted}"));
            }
        }
        if let Some(found) = found {
            tell(&mut text, cache, &primary, &found).await;
        }
    }
    Some(text)
}

async fn tell(text: &mut String, cache: &Arc<Cache>, primary: &Arc<[u8]>, found: &FoundResponse) {
    let head = &found.entry.head;
    let date = |moment: Timestamp| String::from_utf8_lossy(format_http_date(moment).as_bytes()).into_owned();
    line(text, "request", date(head.request_time()));
    line(text, "response", format_args!("{}, when it was received or last validated", date(head.response_time())));
    let tags: Vec<&str> = tags_of(head.fields()).collect();
    line(text, "tags", if tags.is_empty() { "none".to_owned() } else { tags.join(", ") });
    if let Some(chunks) = ChunkedBody::of(cache, primary, &found.key, &found.entry) {
        let count = found.entry.body_len().div_ceil(CHUNK_BYTES);
        let there = (0..count).filter(|number| chunks.seems_there(*number)).count();
        line(text, "chunks", format_args!("{there} of {count} stored, 1 MiB each"));
    }
    tell_places(text, cache, found).await;
    for (name, value) in head.fields().lines() {
        let name = String::from_utf8_lossy(name);
        let value = String::from_utf8_lossy(value);
        line(text, "field", format_args!("{name}: {value}"));
    }
}

/// Prints where the stored response is, and when it may be evicted.
async fn tell_places(text: &mut String, cache: &Arc<Cache>, found: &FoundResponse) {
    let hits = cache.shared.hot.peek_with(&found.key, |item| item.hits().map_or(0, MemoryHits::get));
    let in_memory = hits.map(|hits| match hits {
        1 => "memory (1 hit since it was loaded)".to_owned(),
        hits => format!("memory ({hits} hits since it was loaded)"),
    });
    let Some(store) = &cache.shared.store else {
        return line(text, "location", in_memory.unwrap_or_default());
    };
    let is_on_disk =
        lookup::ask(cache, crate::ground::cache::patience::ReadPatience::Short, store.locate(&found.key)).await;
    let volumes = store.volumes().map(|volume| format!("{} (policy {})", volume.path.display(), volume.policy.name));
    let volumes: Vec<String> = volumes.collect();
    let on_disk = match (is_on_disk, &volumes[..]) {
        (Ok(Some(_)), [volume]) => volume.clone(),
        (Ok(Some(_)), _) => format!("one of {}", volumes.join(", ")),
        (Ok(None), _) => "not on disk".to_owned(),
        (Err(_), _) => "unknown whether on disk, because the store does not respond".to_owned(),
    };
    line(text, "location", in_memory.into_iter().chain([on_disk]).collect::<Vec<_>>().join(" and "));
    let evicted = match (store.is_pinned(&found.key), storing::expires_at(cache, &found.entry.head)) {
        (true, _) => "when it is unpinned or purged".to_owned(),
        (false, 0) => "when the store needs its space".to_owned(),
        (false, at) => {
            let at = format_http_date(Timestamp::from_secs(at.into()));
            format!("when the store needs its space; unusable after {}", String::from_utf8_lossy(at.as_bytes()))
        }
    };
    line(text, "evicted", evicted);
}
