//! Prints the summary of `larder exec` on standard error once its command has ended.
//!
//! Owns: the wording, as text and as JSON. `larder_proxy::Session` counts.

use crate::{
    ground::{output::tell, size},
    run::control::SessionFigures,
};
use clap::ValueEnum;

/// The format of the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SummaryForm {
    Text,
    Json,
}

/// Prints the counts of a session that lasted `seconds`.
pub(super) fn print(figures: &SessionFigures, form: SummaryForm, seconds: f64) {
    match form {
        SummaryForm::Text => text(figures, seconds).iter().for_each(|line| tell!("{line}")),
        SummaryForm::Json => tell!("{}", json(figures, seconds)),
    }
}

fn text(figures: &SessionFigures, seconds: f64) -> Vec<String> {
    let SessionFigures { requests, from_cache, bytes, saved_bytes, .. } = figures;
    let saved = size::show(*saved_bytes);
    let all = size::show(*bytes);
    let requests = size::show_things(*requests, "request", "requests");
    let from_cache = size::show_count(*from_cache);
    let mut lines =
        vec![format!("larder: {requests}, {from_cache} from cache, {saved} of {all} saved, {seconds:.0} s")];
    if figures.requests == 0 && figures.bypassed_count == 0 && figures.rejected_count == 0 {
        lines.push("larder: programs contact localhost and 127.0.0.1 directly, past the cache (no_proxy)".to_owned());
    }
    if figures.bypassed_count > 0 {
        let tunnels = size::show_things(figures.bypassed_count, "tunnel", "tunnels");
        lines.push(format!("larder: {tunnels} bypassed the cache:"));
        lines.extend(with_reasons(&figures.bypassed, "targets"));
    }
    if figures.denied_count > 0 {
        let requests = size::show_things(figures.denied_count, "request", "requests");
        lines.push(format!("larder: {requests} refused, because the target is not allowed:"));
        lines.extend(with_reasons(&figures.denied, "targets"));
    }
    if figures.rejected_count > 0 {
        let connections = size::show_things(figures.rejected_count, "connection", "connections");
        lines.push(format!("larder: {connections} failed, because the program does not trust the CA of this session:"));
        lines.extend(with_reasons(&figures.rejected, "hosts"));
        let host = figures.rejected.first().map_or("HOST", |(host, _)| host);
        lines.push(format!("  make it trust the file that $SSL_CERT_FILE names, or exempt the host: --except {host}"));
    }
    if figures.missing_count > 0 {
        let requests = size::show_things(figures.missing_count, "request", "requests");
        lines.push(format!("larder: offline, {requests} failed because no usable response is stored:"));
        lines.extend(figures.missing.iter().take(SHOWN_COUNT_MAX).map(|url| format!("  {url}")));
        lines.extend(further(figures.missing.len(), "URLs"));
    }
    lines
}

/// Returns the lines for the members of a list, each with its reason, and for those that are left out. `of` names the
/// members.
fn with_reasons<'a>(list: &'a [(String, String)], of: &str) -> impl Iterator<Item = String> + use<'a> {
    let shown = list.iter().take(SHOWN_COUNT_MAX).map(|(name, why)| format!("  {name}: {why}"));
    shown.chain(further(list.len(), of))
}

/// Returns the line that says how many members of a list are left out. `None` if all are shown.
fn further(count: usize, of: &str) -> Option<String> {
    let hidden = count.checked_sub(SHOWN_COUNT_MAX).filter(|hidden| *hidden > 0)?;
    Some(format!("  and {hidden} more {of}; --summary json lists them"))
}

fn json(figures: &SessionFigures, seconds: f64) -> serde_json::Value {
    let reasons = |targets: &[(String, String)]| -> Vec<_> {
        targets.iter().map(|(target, reason)| serde_json::json!({ "target": target, "reason": reason })).collect()
    };
    serde_json::json!({
        "requests": figures.requests,
        "from_cache": figures.from_cache,
        "bytes": figures.bytes,
        "saved_bytes": figures.saved_bytes,
        "bypassed_count": figures.bypassed_count,
        "bypassed": reasons(&figures.bypassed),
        "missing_count": figures.missing_count,
        "missing": figures.missing,
        "denied_count": figures.denied_count,
        "denied": reasons(&figures.denied),
        "rejected_count": figures.rejected_count,
        "rejected": reasons(&figures.rejected),
        "seconds": (seconds * 1000.0).round() / 1000.0,
    })
}

/// Maximum number of printed members of a list.
const SHOWN_COUNT_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_thing_is_not_several() {
        let one = SessionFigures { requests: 1, bytes: 3, ..SessionFigures::default() };
        assert_eq!(text(&one, 0.4), ["larder: 1 request, 0 from cache, 0 B of 3 B saved, 0 s"]);
        let none = text(&SessionFigures::default(), 2.0);
        assert_eq!(none[0], "larder: 0 requests, 0 from cache, 0 B of 0 B saved, 2 s");
        assert!(none[1].contains("no_proxy"), "{none:?}");
    }

    /// Guards against a hint at localhost for a program that rejected every certificate.
    #[test]
    fn rejected_certificates_are_the_reason_for_no_requests() {
        let rejected = vec![("pypi.org".to_owned(), "its alert is UnknownCA".to_owned())];
        let figures = SessionFigures { rejected_count: 5, rejected, ..SessionFigures::default() };
        let lines = text(&figures, 1.0);
        assert!(lines[1].starts_with("larder: 5 connections failed, because the program does not trust"), "{lines:?}");
        assert_eq!(lines[2], "  pypi.org: its alert is UnknownCA");
        assert!(lines[3].contains("$SSL_CERT_FILE") && lines[3].ends_with("--except pypi.org"), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("no_proxy")), "{lines:?}");
    }

    #[test]
    fn tunnels_past_the_cache_and_missing_urls_are_listed_up_to_a_bound() {
        let figures = SessionFigures {
            requests: 1200,
            bypassed_count: 1,
            bypassed: vec![("db.example:5432".to_owned(), "no TLS".to_owned())],
            missing_count: 30,
            missing: (0..25).map(|number| format!("https://a.example/{number}")).collect(),
            ..SessionFigures::default()
        };
        let lines = text(&figures, 1.0);
        assert_eq!(lines[1..3], ["larder: 1 tunnel bypassed the cache:", "  db.example:5432: no TLS"]);
        assert_eq!(
            lines[3..5],
            ["larder: offline, 30 requests failed because no usable response is stored:", "  https://a.example/0"]
        );
        assert_eq!(lines.last().unwrap(), "  and 5 more URLs; --summary json lists them");
        assert_eq!(lines.len(), 3 + 1 + SHOWN_COUNT_MAX + 1);
        assert_eq!(json(&figures, 1.0)["missing"].as_array().unwrap().len(), 25);
    }
}
