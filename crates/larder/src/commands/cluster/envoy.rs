//! The configuration of Envoy in front of several Larders.
//!
//! Owns: the text. Invariants: if a node dies, a GET or HEAD is sent to another one. Other requests are sent again only
//! if they did not reach the node. Envoy allows 3 concurrent retries by default, with which a dying node loses
//! requests, so the limit is raised far above that.

use super::balancer::{BalancerPlan, KeyPlace, pattern, queries};
use std::{collections::BTreeSet, fmt::Write as _};

pub(super) fn text(plan: &BalancerPlan) -> String {
    let mut text = format!(
        "# Envoy in front of {} Larders, written by `larder cluster config envoy`.\n\
         {needs}",
        plan.nodes.len(),
        needs = plan.needs(),
    );
    if plan.forwards {
        text += "# The nodes' listeners need `origin_form = true` for forward requests.\n";
    }
    let _ = write!(
        text,
        "static_resources:\n  listeners:\n  - name: clients\n    address:\n      \
         socket_address: {{ address: \"{}\", port_value: {} }}\n    filter_chains:\n    - filters:\n      \
         - name: envoy.filters.network.http_connection_manager\n        typed_config:\n          \
         \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n          \
         stat_prefix: clients\n          use_remote_address: true\n          stream_idle_timeout: 75s\n          \
         http_filters:\n          - name: envoy.filters.http.router\n            typed_config:\n              \
         \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router\n          \
         route_config:\n            name: keys\n            virtual_hosts:\n",
        plan.listen.ip(),
        plan.listen.port(),
    );
    let is_standing = |place: &KeyPlace| place.stands.clone();
    let standing: Vec<(String, String)> = plan.places.iter().filter_map(is_standing).collect();
    let hosts: BTreeSet<&str> =
        plan.places.iter().map(|place| &*place.host).chain(standing.iter().map(|(host, _)| &**host)).collect();
    for host in hosts {
        let domains = if host.contains(':') { format!("\"{host}\"") } else { format!("\"{host}\", \"{host}:80\"") };
        push_host(&mut text, &host.replace([':', '[', ']'], "-"), &domains);
        for place in plan.places.iter().filter(|place| place.host == host) {
            let is_shared = place.stands.is_some() || standing.contains(&(place.host.clone(), place.path.clone()));
            push_routes(&mut text, &place.path, Some(&hash_of(place, is_shared)), is_shared);
        }
        // A URL prefix that replaces others in keys is hashed in the same way as they are: only by the path below the
        // prefix.
        for (_, path) in standing.iter().filter(|(standing, _)| standing == host) {
            push_routes(&mut text, path, Some(&below(path)), true);
        }
        push_routes(&mut text, "", None, false);
    }
    push_host(&mut text, "others", "\"*\"");
    push_routes(&mut text, "", None, false);
    push_cluster(&mut text, plan);
    text
}

fn push_host(text: &mut String, name: &str, domains: &str) {
    let _ = write!(text, "            - name: \"{name}\"\n              domains: [{domains}]\n              routes:\n");
}

/// Returns a pattern that matches the parts of a path that are not hashed. `is_shared` is true if several prefixes
/// share keys.
fn hash_of(place: &KeyPlace, is_shared: bool) -> String {
    let query = place.stripped.as_deref().map(queries);
    match (is_shared, query) {
        (true, Some(query)) => format!("{}|{query}", below(&place.path)),
        (true, None) => below(&place.path),
        (false, query) => query.unwrap_or_else(|| "[?&]".to_owned()),
    }
}

/// Returns a pattern that matches the prefix `path` and the separators of a query.
fn below(path: &str) -> String {
    format!("^{}|[?&]", pattern(path))
}

/// Writes two routes for the paths below a prefix: one for requests that may be repeated, and one for all others.
fn push_routes(text: &mut String, path: &str, unhashed: Option<&str>, is_shared: bool) {
    let at = match path {
        "" => "prefix: \"/\"".to_owned(),
        path => format!("path_separated_prefix: \"{path}\""),
    };
    for is_repeatable in [true, false] {
        let (methods, retries) = if is_repeatable {
            (", headers: [{ name: \":method\", string_match: { safe_regex: { regex: \"GET|HEAD\" } } }]", ",reset")
        } else {
            ("", "")
        };
        let _ = write!(
            text,
            "              - match: {{ {at}{methods} }}\n                route:\n                  cluster: larders\n                  \
             timeout: 0s\n                  retry_policy:\n                    \
             retry_on: \"connect-failure,refused-stream,reset-before-request{retries}\"\n                    num_retries: 6\n                    \
             retry_host_predicate:\n                    - name: envoy.retry_host_predicates.previous_hosts\n                      \
             typed_config:\n                        \
             \"@type\": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate\n                    \
             host_selection_retry_max_attempts: 5\n                  hash_policy:\n",
        );
        if !is_shared {
            *text += "                  - header: { header_name: \":authority\" }\n";
        }
        let _ = match unhashed {
            None => writeln!(text, "                  - header: {{ header_name: \":path\" }}"),
            Some(pattern) => writeln!(
                text,
                "                  - header: {{ header_name: \":path\", regex_rewrite: {{ pattern: {{ regex: '{pattern}' }}, \
                 substitution: \"\" }} }}"
            ),
        };
    }
}

fn push_cluster(text: &mut String, plan: &BalancerPlan) {
    *text += "  clusters:\n  - name: larders\n    type: STRICT_DNS\n    connect_timeout: 2s\n    lb_policy: MAGLEV\n    \
              # No slow start: a node that was restarted is warm, and the others are not for its keys.\n    \
              common_lb_config: { healthy_panic_threshold: { value: 0 } }\n    \
              circuit_breakers:\n      thresholds:\n      \
              - { max_connections: 20000, max_pending_requests: 20000, max_requests: 20000, max_retries: 1000 }\n    \
              outlier_detection:\n      split_external_local_origin_errors: true\n      \
              consecutive_local_origin_failure: 1\n      consecutive_5xx: 0\n      enforcing_consecutive_5xx: 0\n      \
              consecutive_gateway_failure: 0\n      enforcing_consecutive_gateway_failure: 0\n      \
              enforcing_local_origin_success_rate: 0\n      enforcing_success_rate: 0\n      interval: 1s\n      \
              base_ejection_time: 2s\n      max_ejection_percent: 100\n";
    if let Some(path) = &plan.ready_path {
        let _ = write!(
            text,
            "    health_checks:\n    - timeout: 1s\n      interval: 1s\n      unhealthy_threshold: 2\n      \
             healthy_threshold: 1\n      no_traffic_interval: 1s\n      http_health_check: {{ path: \"{path}\", host: larder }}\n",
        );
    }
    *text += "    load_assignment:\n      cluster_name: larders\n      endpoints:\n      - lb_endpoints:\n";
    for node in &plan.nodes {
        let host = node.host.trim_matches(['[', ']']);
        let _ = writeln!(
            text,
            "        - endpoint: {{ hostname: \"{}\", address: {{ socket_address: {{ address: \"{host}\", port_value: {} }} }} }}",
            node.name, node.port,
        );
    }
}
