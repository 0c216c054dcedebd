//! Serves `/metrics` in a format that the client can read.
//!
//! Clients that accept OpenMetrics receive it. All others receive Prometheus' text format, version 0.0.4, in which a
//! counter's name includes `_total` and there is no end mark. The metrics are collected in `exposition`.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use prometheus_client::{encoding::text, registry::Registry};

use super::page;
use crate::client::response_body::ResponseBody;

/// Answers a request for the metrics.
pub(super) fn answer(registry: &Registry, fields: &HeaderMap) -> Response<ResponseBody> {
    let mut figures = String::new();
    if text::encode(&mut figures, registry).is_err() {
        return page(StatusCode::INTERNAL_SERVER_ERROR, "the figures cannot be encoded\n".into());
    }
    let (figures, kind) = match accepts_open_metrics(fields) {
        true => (figures, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        false => (as_prometheus_text(&figures), "text/plain; version=0.0.4; charset=utf-8"),
    };
    let mut response = page(StatusCode::OK, figures.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Returns whether a request accepts OpenMetrics, as Prometheus does.
fn accepts_open_metrics(fields: &HeaderMap) -> bool {
    let lines = fields.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|range| {
        range.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/openmetrics-text"))
    })
}

/// Converts metrics from OpenMetrics to Prometheus' own text format.
fn as_prometheus_text(figures: &str) -> String {
    let counters: Vec<&str> =
        figures.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(figures.len() + counters.len() * "_total".len() * 2);
    for line in figures.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let about = ["# HELP ", "# TYPE "].into_iter().find_map(|mark| Some((mark, line.strip_prefix(mark)?)));
        let written = match about.and_then(|(mark, rest)| Some((mark, rest.split_once(' ')?))) {
            Some((mark, (name, rest))) if counters.contains(&name) => writeln!(text, "{mark}{name}_total {rest}"),
            _ => writeln!(text, "{line}"),
        };
        written.expect("a string takes what is written to it");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_suffix_and_there_is_no_end_mark() {
        let open = "# HELP larder_hits Hits.\n# TYPE larder_hits counter\nlarder_hits_total 3\n# HELP larder_open Open.\n\
            # TYPE larder_open gauge\n# UNIT larder_open bytes\nlarder_open 1\n# EOF\n";
        let text = "# HELP larder_hits_total Hits.\n# TYPE larder_hits_total counter\nlarder_hits_total 3\n\
            # HELP larder_open Open.\n# TYPE larder_open gauge\nlarder_open 1\n";
        assert_eq!(as_prometheus_text(open), text);
    }

    #[test]
    fn open_metrics_is_for_those_who_accept_it() {
        for (accept, is_open) in [
            ("application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5", true),
            ("text/plain", false),
            ("*/*", false),
            ("text/plain, Application/OpenMetrics-Text", true),
        ] {
            let fields = [(header::ACCEPT, HeaderValue::from_static(accept))].into_iter().collect();
            assert_eq!(accepts_open_metrics(&fields), is_open, "{accept}");
        }
        assert!(!accepts_open_metrics(&HeaderMap::new()));
    }
}
