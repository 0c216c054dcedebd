//! What the cache would do with a request now, and why, in words for the operator.
//!
//! Does not: ask an origin, or change what is stored; what it finds in the store it leaves in memory, as any look-up does.
//! Invariant: it decides by the same functions as an exchange. Cost: that of a look-up for each key the URL can have.

use std::{fmt::Write as _, sync::Arc};

use http::{HeaderMap, Method, Uri};
use larder_http::{Reuse, StoredHead, VaryRule, freshness::Lifetime, reuse, reuse::Age, validate};

use crate::{
    cache::{
        entry::{EntryBody, Marker},
        lookup::{self, Found, Lookup},
        storing,
    },
    clock,
    request::serve,
    worker::Worker,
};

/// What would become of a GET of `uri` with these fields; `None` for what has no key.
pub(crate) async fn explain(worker: &Arc<Worker>, uri: &Uri, fields: &HeaderMap) -> Option<String> {
    let mut text = String::new();
    for primary in storing::primaries_of(&worker.cache, uri)? {
        line(&mut text, "key", String::from_utf8_lossy(&primary));
        match lookup::find(&worker.cache, &primary, fields).await {
            Lookup::Nothing => line(&mut text, "stored", "nothing: a request goes to the origin"),
            Lookup::OtherVariants(marker) => {
                line(&mut text, "stored", "other variants only: a request goes to the origin");
                tell_rules(&mut text, &marker);
            }
            Lookup::Found(found) => tell_found(&mut text, worker, fields, &found),
        }
    }
    Some(text)
}

/// Whether anything is stored of `uri`, whatever its variant.
pub(crate) async fn is_stored(worker: &Arc<Worker>, uri: &Uri) -> bool {
    for primary in storing::primaries_of(&worker.cache, uri).unwrap_or_default() {
        if !matches!(lookup::find(&worker.cache, &primary, &HeaderMap::new()).await, Lookup::Nothing) {
            return true;
        }
    }
    false
}

fn tell_found(text: &mut String, worker: &Worker, fields: &HeaderMap, found: &Found) {
    let (head, settings) = (&found.entry.head, &worker.shared.config.http);
    let place = if found.from_memory { "in memory" } else { "on the disk" };
    let form = match found.entry.body {
        EntryBody::Whole(_) => "",
        EntryBody::Chunks { .. } => " in chunks",
    };
    line(text, "stored", format_args!("{place}: status {}, {} bytes{form}", head.status(), found.entry.body_len()));
    if let Some(marker) = &found.marker {
        tell_rules(text, marker);
    }
    for (name, value) in head.selecting().iter() {
        let value = value.map_or_else(|| "(none)".into(), |value| String::from_utf8_lossy(value));
        line(text, "variant", format_args!("{name}: {value}"));
    }
    tell_age(text, worker, head);
    let decision = reuse::decide(&Method::GET, fields, head, clock::now(), settings);
    let (answer, reason) = match decision {
        Reuse::Fresh { reason, .. } => ("from the cache", reason),
        Reuse::Stale { may_serve_meanwhile: true, reason, .. } => ("from the cache, and validated behind", reason),
        Reuse::Stale { reason, .. } | Reuse::MustValidate { reason, .. } if head.has_validator() => {
            ("validated first", reason)
        }
        Reuse::Stale { reason, .. } | Reuse::MustValidate { reason, .. } => ("fetched anew", reason),
        Reuse::NotUsable { reason } => ("from the origin, as if nothing were stored", reason),
    };
    line(text, "answer", format_args!("{answer} ({})", reason.token()));
    if let Reuse::Stale { may_serve_on_error, .. } | Reuse::MustValidate { may_serve_on_error, .. } = decision {
        line(text, "on error", if may_serve_on_error { "the stored response" } else { "the error" });
        for (name, value) in validate::request_fields(head) {
            line(text, "asks", format_args!("{name}: {}", String::from_utf8_lossy(value.as_bytes())));
        }
    }
}

fn tell_age(text: &mut String, worker: &Worker, head: &StoredHead) {
    let (freshness, settings) = (head.freshness(), &worker.shared.config.http);
    let Age { age_secs, ttl_secs } = serve::age_of(worker, head);
    let source = match freshness.lifetime {
        Lifetime::Absent => "none",
        Lifetime::Explicit { .. } | Lifetime::Heuristic { .. } => freshness.lifetime_reason(settings).token(),
    };
    let lifetime_secs = freshness.lifetime_millis(settings) / 1000;
    line(text, "age", format_args!("{age_secs} s of {lifetime_secs} s ({source}), {ttl_secs} s left"));
}

fn tell_rules(text: &mut String, marker: &Marker) {
    for rule in marker.rules.rules() {
        let VaryRule::Fields(names) = rule else { continue };
        let names: Vec<&str> = names.iter().map(http::HeaderName::as_str).collect();
        line(text, "varies", names.join(", "));
    }
}

fn line(text: &mut String, what: &str, told: impl std::fmt::Display) {
    writeln!(text, "{what:<9}{told}").expect("a string takes what is written to it");
}
