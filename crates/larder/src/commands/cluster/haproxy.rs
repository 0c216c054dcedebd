//! The configuration of HAProxy in front of several Larders.
//!
//! Owns: the text. Invariants: if a node dies, only requests that may be repeated are sent to another one. A node that
//! returns gets its whole share at once, because its store is warm.

use super::balancer::{BalancerPlan, pattern, queries};
use std::fmt::Write as _;

pub(super) fn text(plan: &BalancerPlan) -> String {
    let mut text = format!(
        "# HAProxy in front of {count} Larders, written by `larder cluster config haproxy`. Needs HAProxy 2.6 or later.\n\
         {needs}\
         \n\
         global\n    # Without `maxconn`, HAProxy takes as many connections as its limit of open files allows.\n\
         \n\
         defaults\n    mode http\n    timeout connect 2s\n    timeout client 75s\n    timeout server 75s\n    \
         timeout queue 5s\n    timeout http-keep-alive 60s\n    timeout tunnel 1h\n    # A node that dies loses no request \
         that may be repeated: it goes to the next one.\n    retries 3\n    option redispatch 1\n    retry-on conn-failure \
         empty-response\n\
         \n\
         frontend clients\n    bind {listen}\n    option forwardfor\n",
        count = plan.nodes.len(),
        needs = plan.needs(),
        listen = plan.listen,
    );
    push_key(&mut text, plan);
    text += "    default_backend larders\n\n\
             backend larders\n    \
             # No bounded load (hash-balance-factor): below 300 it costs fetches.\n    \
             balance hash var(txn.larder_key)\n    hash-type consistent sdbm avalanche\n    \
             http-request disable-l7-retry if !METH_GET\n";
    if let Some(path) = &plan.ready_path {
        let _ = write!(
            text,
            "    option httpchk\n    http-check send meth GET uri {path} ver HTTP/1.1 hdr Host larder\n    \
             http-check expect status 200\n"
        );
    }
    text += "    # No slowstart: a node that was restarted is warm, and the others are not for its keys.\n    \
             default-server check inter 1s fastinter 500ms fall 2 rise 2 observe layer4 error-limit 1 on-error mark-down\n";
    for (node, number) in plan.nodes.iter().zip(plan.numbers()) {
        let _ = writeln!(text, "    server {} {}:{} id {number}", node.name, node.host, node.port);
    }
    text
}

/// Writes the lines that compute the key of a request.
fn push_key(text: &mut String, plan: &BalancerPlan) {
    *text += "    # The key: host, path and query, after the [[key]] rules.\n    \
              http-request set-var(txn.larder_host) 'req.hdr(host),lower,regsub(\":80$\",)'\n    \
              http-request set-var(txn.larder_path) path\n    \
              http-request set-var(txn.larder_query) query\n    \
              http-request set-var(txn.larder_args) 'str(?),concat(,txn.larder_query)' if { query -m found }\n";
    for (place, number) in plan.places.iter().zip(1..) {
        let _ = writeln!(
            text,
            "    http-request set-var(txn.larder_rule) int({number}) if !{{ var(txn.larder_rule) -m found }} \
             {{ var(txn.larder_host) -m str {} }} {{ path -m reg '^{}(/|$)' }}",
            place.host,
            pattern(&place.path),
        );
    }
    for (place, number) in plan.places.iter().zip(1..) {
        let condition = format!("if {{ var(txn.larder_rule) -m int {number} }}");
        if let Some(stripped) = &place.stripped {
            let _ = writeln!(
                text,
                "    http-request set-var(txn.larder_args) 'var(txn.larder_args),regsub(\"{}\",,g)' {condition}",
                queries(stripped),
            );
        }
        if let Some((host, path)) = &place.stands {
            let _ = write!(
                text,
                "    http-request set-var(txn.larder_host) str({host}) {condition}\n    \
                 http-request set-var(txn.larder_path) 'path,regsub(\"^{}\",\"{path}\")' {condition}\n",
                pattern(&place.path),
            );
        }
    }
    *text += "    http-request set-var(txn.larder_key) \
              'var(txn.larder_host),concat(,txn.larder_path),concat(,txn.larder_args)'\n";
}
