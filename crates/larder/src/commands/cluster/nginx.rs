//! The configuration of nginx in front of several Larders.
//!
//! Owns: the text. Invariants: if a node dies, only requests that may be repeated are sent to another one. The key is
//! computed with `map` only, because every build of nginx has it. A map replaces a pattern once, so there is one map
//! for each argument that is left out, up to [`STRIPPED_MAX`].

use super::balancer::{BalancerPlan, KeyPlace, pattern};
use std::fmt::Write as _;

pub(super) fn text(plan: &BalancerPlan) -> String {
    let BalancerPlan { listen, nodes, .. } = plan;
    let mut text = format!(
        "# nginx in front of {} Larders, written by `larder cluster config nginx`.\n\
         {needs}",
        nodes.len(),
        needs = plan.needs(),
    );
    if plan.forwards {
        text += "# The nodes' listeners need `origin_form = true` for forward requests.\n";
    }
    text += "\nworker_processes auto;\nevents {\n    worker_connections 8192;\n}\n\nhttp {\n    access_log off;\n    \
             server_tokens off;\n\n";
    let key = push_key(&mut text, &plan.places);
    let _ = write!(
        text,
        "    upstream larders {{\n        hash {key} consistent;\n        # A node that fails is left out for two seconds; \
         no slow start, for a node that was restarted is warm.\n",
    );
    for node in nodes {
        let _ = writeln!(text, "        server {}:{} max_fails=1 fail_timeout=2s;", node.host, node.port);
    }
    let _ = write!(
        text,
        "        keepalive 128;\n    }}\n\n    server {{\n        listen {listen};\n        client_max_body_size 0;\n        \
         location / {{\n            proxy_pass http://larders;\n            proxy_http_version 1.1;\n            \
         proxy_set_header Connection \"\";\n            proxy_set_header Host $http_host;\n            \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n            \
         proxy_set_header X-Forwarded-Proto $scheme;\n            \
         # A node that dies loses no request that may be repeated: it goes to the next one.\n            \
         proxy_next_upstream error timeout;\n            proxy_next_upstream_tries {};\n            \
         proxy_connect_timeout 2s;\n            proxy_read_timeout 75s;\n            \
         proxy_max_temp_file_size 0;\n        }}\n    }}\n}}\n",
        nodes.len().max(2),
    );
    text
}

/// Writes the maps that compute the key of a request. Returns the name of the variable that contains the key.
fn push_key(text: &mut String, places: &[KeyPlace]) -> String {
    if places.is_empty() {
        return "$host$request_uri".to_owned();
    }
    *text += "    # The key: host, path and query, after the [[key]] rules.\n    \
              map \"$http_host $request_uri\" $larder_rule {\n        default 0;\n";
    for (place, number) in places.iter().zip(1..) {
        let host = pattern(&place.host);
        let path = pattern(&place.path);
        let port = if place.host.contains(':') { "" } else { "(:80)?" };
        let _ = writeln!(text, "        \"~^(?i:{host}){port} {path}(?=[/?]|$)\" {number};");
    }
    *text += "    }\n    map \"$larder_rule $request_uri\" $larder_path {\n";
    for (place, number) in places.iter().zip(1..) {
        if let Some((host, path)) = &place.stands {
            let host = host.split_once(':').map_or(host.as_str(), |(host, _)| host);
            let _ = writeln!(
                text,
                "        \"~^{number} {}(?<larder_rest{number}>[^?]*)\" \"{host}{path}$larder_rest{number}\";",
                pattern(&place.path)
            );
        }
    }
    *text += "        \"~^[0-9]+ (?<larder_whole>[^?]*)\" \"$host$larder_whole\";\n    }\n    \
              map $request_uri $larder_args0 {\n        default \"\";\n        \
              \"~^[^?]*[?](?<larder_query>.*)$\" \"&$larder_query\";\n    }\n";
    let stripping = places.iter().zip(1..).filter_map(|(place, number)| Some((number, place.stripped.as_ref()?)));
    let stripping: Vec<(usize, &String)> = stripping.collect();
    if stripping.is_empty() {
        return "$larder_path$larder_args0".to_owned();
    }
    for step in 1..=STRIPPED_MAX {
        let _ = writeln!(text, "    map \"$larder_rule $larder_args{}\" $larder_args{step} {{", step - 1);
        for (number, stripped) in &stripping {
            let name = format!("{step}_{number}");
            let _ = writeln!(
                text,
                "        \"~^{number} (?<larder_front{name}>.*)&(?:{stripped})(?:=[^&]*)?(?<larder_back{name}>&.*)?$\" \
                 \"$larder_front{name}$larder_back{name}\";",
            );
        }
        let _ = writeln!(text, "        \"~^[0-9]+ (?<larder_same{step}>.*)$\" $larder_same{step};\n    }}");
    }
    format!("$larder_path$larder_args{STRIPPED_MAX}")
}

/// Maximum number of arguments that the configuration strips from one URL. Any further arguments stay in the key, so
/// URLs that differ only in them may go to different nodes.
const STRIPPED_MAX: usize = 12;
