//! The rows about responses, the second tier, and the proxy's records and limits.

use super::row;
use crate::{
    ground::value,
    settings::config::{
        table::{
            DefaultValue::{Prose, Required, Toml},
            Reader,
            ReloadBehavior::{Reload, Restart},
            Setting,
            ValueKind::{Boolean, Count, Duration, List, Rate, Share, Size, Text},
            once,
        },
        values::{bytes, count, duration, duration_from, path, small_count},
    },
};
use larder_http::TargetList;

const OBSERVATION: &str = "Observation";

#[rustfmt::skip]
pub(super) const SETTINGS: &[Setting] = &[
    row!("cache.object_size_max", "", Size, "", Toml("\"4GiB\""), Reload, "\"8GB\"",
        "Longest body that is stored. Longer ones pass through."
        => site |p, v| p.cache.entry_bytes_max = bytes(v)?),
    row!("cache.heuristic_fraction", "", Share, "0 to 1", Toml("0.1"), Reload, "0.2",
        "A response without an explicit lifetime is fresh for this share of the time since its Last-Modified (RFC \
         9111 4.2.2). 0 turns this off."
        => site |p, v| p.cache.http.heuristic_fraction = v.parsed("a number from 0 to 1", value::fraction)?),
    row!("cache.heuristic_max", "", Duration, "", Toml("\"24h\""), Reload, "\"12h\"",
        "Longest such lifetime."
        => site |p, v| p.cache.http.heuristic_max = duration(v)?),
    row!("cache.heuristic_error_max", "", Duration, "", Toml("\"10s\""), Reload, "\"1m\"",
        "Longest such lifetime of an error (4xx, 5xx). Its Last-Modified is that of the error page. Longer saves \
         requests to the origin, but hides a resource that has appeared since. `cache.negative` sets other lifetimes \
         by status."
        => site |p, v| p.cache.http.heuristic_error_max = duration(v)?),
    row!("cache.heuristic_with_cookies", "", Boolean, "", Toml("false"), Reload, "true",
        "Gives a heuristic lifetime also to responses that set a cookie, and to responses to requests with a \
         cookie that neither say `public` nor vary by `Cookie`. Off: the origin validates such a response each \
         time, and it is never served stale. On: a page made for one client that does not say so is shown to \
         others."
        => site |p, v| p.cache.http.heuristic_with_cookies = v.boolean()?),
    row!("cache.stale_if_error_max", "", Duration, "", Toml("\"24h\""), Reload, "\"2d\"",
        "How long past its lifetime a response may be served when the origin fails, if nothing forbids it (RFC \
         9111 4.2.4)."
        => site |p, v| p.cache.http.stale_if_error_max = duration(v)?),
    row!("cache.negative", "", List, "400=.. to 599=..", Prose("none"), Reload, "[\"404=10s\", \"410=5m\"]",
        "Lifetimes, by status, for errors that state none, such as `[\"404=10s\"]`. Allowed where RFC 9111 4.2.2 \
         allows a heuristic: 404, 405, 410, 414, 451, 501, and any error that says `public`. Longer saves \
         requests to the origin, but hides a resource that has appeared since."
        => site |p, v| p.cache.http.negative_lifetimes = v.each("a status with a duration", value::negative_lifetime)?),
    row!("cache.honor_request_directives", "", Boolean, "", Toml("true"), Reload, "false",
        "Obeys a client's Cache-Control and Pragma."
        => site |p, v| p.cache.http.honor_request_directives = v.boolean()?),
    row!("cache.normalize_vary", "", Boolean, "", Toml("true"), Reload, "false",
        "Ignores, when it selects a variant, white space around commas and how a request field is split over \
         lines."
        => site |p, v| p.cache.http.normalize_vary = v.boolean()?),
    row!("cache.normalize_language", "", Boolean, "", Toml("false"), Reload, "true",
        "Compares `Accept-Language` without case and white space. A client that prefers one language gets a \
         stored variant in that language, even if it accepts others too. More hits, but the origin is not asked \
         even if it would choose otherwise."
        => site |p, v| p.cache.http.normalize_language = v.boolean()?),
    row!("cache.store_set_cookie", "", Boolean, "", Toml("false"), Reload, "true",
        "Stores responses with `Set-Cookie` like any other. Off: only those that say `public` or give a lifetime \
         for shared caches (`s-maxage`, or `max-age` in a targeted field). On: one client's session can be given \
         to others."
        => site |p, v| p.cache.http.store_set_cookie = v.boolean()?),
    row!("cache.targeted_fields", "",
        List, "", Toml("[\"CDN-Cache-Control\"]"), Reload, "[\"Example-Cache-Control\", \"CDN-Cache-Control\"]",
        "Response fields that replace Cache-Control and Expires; the first valid one counts (RFC 9213). `[]` for \
         none."
        => site |p, v| p.cache.http.targets = TargetList::new(v.each("a field name", value::field_name)?)),
    row!("cache.group_window", "", Duration, "0s to 60s", Toml("\"2s\""), Reload, "\"5s\"",
        "Requests by one client with the same Referer are stored next to the page if each follows the one before \
         within this time, and if the policy supports it. A page ends after 12 s, or after this time if it is \
         longer. Longer keeps slow pages together but may include the next click. At most 60 s; `0s` turns this off."
        => site |p, v| p.cache.group_window = v.parsed("a duration", value::group_window)?),
    row!("cache.compress", "", List, "zstd, br, gzip", Prose("none"), Reload, "[\"br\", \"gzip\"]",
        "Content codings to apply, best first, for clients that accept them: `\"zstd\"`, `\"br\"`, `\"gzip\"`. \
         See [Compression](#compression)."
        => site |p, v| p.cache.http.compression.codings = v.each("a coding", value::coding)?),
    row!("cache.compress_types", "",
        List, "", Prose("`text/*`, JSON, JavaScript, XML, XHTML, SVG, WebAssembly"), Reload, "[\"text/html\", \"image/svg+xml\"]",
        "Media types to compress, such as `text/html` or `text/*`."
        => site |p, v| p.cache.http.compression.types = v.each("a media type", value::media_type)?),
    row!("cache.compress_size_min", "", Size, "", Toml("\"1KiB\""), Reload, "\"2KiB\"",
        "Shortest body to compress, if its length is known."
        => site |p, v| p.cache.http.compression.size_min = bytes(v)?),
    row!("rule.name", "", Text, "", Prose("`rule 1` and so on"), Reload, "\"jars\"",
        "Name that `larder explain` shows."),
    row!("rule.hosts", "", List, "", Prose("all"), Reload, "[\"repo.example\", \"*.repo.example\"]",
        "Hosts that the rule matches. A host without a port matches every port; `*.NAME` is allowed. The first \
         matching rule applies, alone. See [Rules](#rules)."),
    row!("rule.paths", "", List, "", Prose("all"), Reload, "[\"/**/*.jar\"]",
        "Patterns of the whole path without query: `*` matches anything but a slash, `**` anything."),
    row!("rule.methods", "", List, "", Prose("GET and HEAD"), Reload, "[\"GET\", \"HEAD\"]",
        "Methods that the rule matches."),
    row!("rule.statuses", "", List, "", Prose("all"), Reload, "[\"200\"]",
        "Statuses that the rule matches, such as `404` or `5xx`."),
    row!("rule.types", "", List, "", Prose("all"), Reload, "[\"text/html\"]",
        "Media types that the rule matches, such as `image/*`."),
    row!("rule.cookies", "", List, "", Prose("all requests"), Reload, "[\"!wordpress_logged_in_*\"]",
        "Conditions on the request's cookies: `NAME`, `NAME=VALUE`, or one of these after `!` for its opposite; `*` \
         stands for any characters. See [Conditions](#conditions)."),
    row!("rule.fields", "", List, "", Prose("all requests"), Reload, "[\"!x-preview\"]",
        "Conditions on the request's fields, in the same form."),
    row!("rule.queries", "", List, "", Prose("all requests"), Reload, "[\"!preview\"]",
        "Conditions on the arguments of the request's query, in the same form."),
    row!("rule.fresh", "", Duration, "", Prose("as the origin says"), Reload, "\"1d\"",
        "How long the response is fresh after it was received. Overrides its lifetime and `no-cache`. For requests \
         with a Cookie only if the rule has `cookies`, or `ignore` lists `cookie`."),
    row!("rule.immutable", "", Boolean, "", Toml("false"), Reload, "true",
        "The response never changes: it is fresh for a year unless `fresh` says otherwise. The body is verified if its \
         digest is known; otherwise a client's `no-cache` forces a validation. Web pages are not stored, unless `types` \
         names `text/html`."),
    row!("rule.stale_while_revalidate", "", Duration, "", Prose("as the origin says"), Reload, "\"1m\"",
        "How long past its lifetime the response is served while it is validated. `must-revalidate` still \
         applies, unless `ignore` lists it."),
    row!("rule.stale_if_error", "", Duration, "", Prose("as the origin says"), Reload, "\"30d\"",
        "How long past its lifetime the response is served when the origin fails."),
    row!("rule.ignore", "", List, "", Prose("nothing"), Reload, "[\"client no-cache\", \"vary: user-agent\"]",
        "Directives to ignore; see [Rules](#rules)."),
    row!("rule.store", "", Boolean, "", Toml("true"), Reload, "false",
        "`false`: do not store the response."),
    row!("rule.vary", "", List, "", Prose("none"), Reload, "[\"X-Tenant\"]",
        "Request fields that the response varies on, added to its Vary."),
    row!("rule.object_size_max", "", Size, "", Prose("that of `cache.object_size_max`"), Reload, "\"1GB\"",
        "Longest body to store."),
    row!("rule.finish_abandoned", "", Boolean, "", Prose("if the body is small, or half received"), Reload, "true",
        "Completes a fetch that all its clients have abandoned."),
    row!("rule.follow_redirects", "", Boolean, "", Toml("false"), Reload, "true",
        "Follows redirects and caches the final response; see [Redirects](#redirects)."),
    row!("rule.follow_to_http", "", Boolean, "", Toml("false"), Reload, "true",
        "Also follows redirects from `https://` to `http://`."),
    row!("rule.authorization", "", Text, "share, check", Prose("as RFC 9111 says"), Reload, "\"check\"",
        "How to share responses to requests with credentials. `share`: with everybody, like `ignore = \
         [\"authorization\"]`. `check`: see [Credentials](#credentials)."),
    row!("rule.check_digest", "", Boolean, "", Toml("false"), Reload, "true",
        "Verifies the body against the digest at the end of its path (`sha256:HEX` or `SHA256/HEX`; SHA-512 too), even \
         if the response is not `immutable`. \
         A body that does not match is not stored, and its client's response is cut off before the end."),
    row!("rule.git", "", Boolean, "", Toml("false"), Reload, "true",
        "Answers git's POST requests from the cache; see [Git](#git)."),
    row!("key.urls", "", List, "", Required, Reload, "[\"http://mirror.example/debian/\"]",
        "URL prefixes, in whole path segments, that the rule matches. The first matching rule applies."),
    row!("key.strip", "", List, "", Prose("none"), Reload, "[\"utm_*\"]",
        "Query arguments to leave out of the cache key, by name or as a prefix with `*`. Use it only for \
         arguments that do not change the response."),
    row!("key.as", "", Text, "", Prose("none"), Reload, "\"http://deb.example/debian/\"",
        "A prefix that replaces the matched one in the cache key, so that mirrors of one repository share \
         entries. Use it only where both serve the same files. Requests still go to the host they name."),
    row!("mirror.name", "--mirror", Text, "", Prose("none"), Reload, "\"pypi\"",
        "A package registry that `larder mirror list` names, served under its path: `http://127.0.0.1:3128/pypi/` \
         and so on. See [Mirror package registries](../how-to/mirrors.md)."),
    row!("mirror.origin", "--origin-of NAME=URL",
        Text, "", Prose("the registry's own"), Reload, "\"https://npm.example.com\"",
        "Another server in place of the registry's first one, or the server of your own under `path`."),
    row!("mirror.registries", "",
        List, "", Prose("none"), Reload, "[\"registry.example.com:5000=http://10.0.0.8:5000\"]",
        "For the mirror `oci`: more container registries, as `HOST` or `HOST=URL`."),
    row!("mirror.path", "", Text, "", Prose("none"), Reload, "\"/company\"",
        "The path under which to serve a server of your own."),
    row!("mirror.immutable", "", List, "", Prose("none"), Reload, "[\"/**/*.jar\"]",
        "Path patterns below the origin whose files never change."),
    row!("mirror.fresh", "", Duration, "", Prose("as the origin says"), Reload, "\"10m\"",
        "Lifetime of everything else on a server of your own."),
    row!("mirror.follow_redirects", "", Boolean, "", Toml("false"), Reload, "true",
        "Follows redirects of that server; see [Redirects](#redirects)."),
    row!("mirror.documents", "", List, "", Prose("none"), Reload, "[\"text/html\"]",
        "Media types of documents in which links to the origin's URL are rewritten to the mirror."),
    row!("build_cache.path", "--build-cache", Text, "", Required, Reload, "\"/cache\"",
        "The path below which build tools keep their results, for ccache, sccache, Bazel, Gradle, Turborepo and Nix. See \
         [Build caches](../how-to/build-cache.md)."),
    row!("build_cache.tokens", "", Text, "", Prose("none: nobody may write"), Reload, "\"/etc/larder/build-tokens\"",
        "A file with a line `write TOKEN` for each writer, readable by Larder's user only. All other clients may only read."),
    row!("build_cache.local_writers", "", Boolean, "", Toml("false"), Reload, "true",
        "Permits writes from programs on this machine, without a token. Only for a machine without a proxy in front of \
         Larder: the requests that such a proxy forwards come from this machine, too. Excludes `tokens`."),
    row!("build_cache.origin", "", Text, "", Prose("none"), Reload, "\"http://cache-1.example:3128/cache\"",
        "Another build cache, which is asked for results that are missing here. It is never written to, and while it does \
         not respond, they are misses."),
    row!("rate_limit.rate", "", Rate, "at least 1KiB", Required, Reload, "\"1MB\"",
        "Bytes per second that clients receive. See [Rate limits](#rate-limits)."),
    row!("rate_limit.for", "", Text, "all, each network, each client", Toml("\"all\""), Reload, "\"each client\"",
        "The clients that share the rate: `\"all\"`, `\"each network\"` of those listed, or `\"each client\"` for \
         a rate per client (for IPv6, per /64 network)."),
    row!("rate_limit.clients", "", List, "", Prose("all"), Reload, "[\"10.0.1.0/24\"]",
        "Networks of the clients to limit."),
    row!("rate_limit.hosts", "", List, "", Prose("all"), Reload, "[\"*.video.example\"]",
        "Hosts to limit, as clients name them, such as `*.video.example`."),
    row!("rate_limit.burst", "", Size, "", Prose("one second's worth"), Reload, "\"20MB\"",
        "Bytes sent at full speed after a pause. More: short pages are not slowed. Less: the uplink is shared \
         more evenly."),
    row!("rate_limit.name", "", Text, "", Prose("its position"), Reload, "\"video\"",
        "Name that `larder explain` shows."),
    row!("log.access", "--access-log", Text, "", Prose("none"), Reload, "\"/var/log/larder/access.log\"",
        "Access log file; `-` is standard output. To rotate it, move the file and send SIGUSR1.",
        flag once("PATH", OBSERVATION, "Access log file, or `-` for standard output")
        => run |s, v| s.proxy.access_log = Some(v.parsed("a path", value::access_log)?)),
    row!("log.format", "--log-format",
        Text, "squid, common, combined, json, or a format", Toml("\"squid\""), Reload, "\"combined\"",
        "`squid` (native), `common`, `combined`, `json` (one object per line), or a format of your own; see \
         [Access log](#access-log).",
        flag once("FORMAT", OBSERVATION, "squid, common, combined, json, or directives of Apache's LogFormat [default: squid]")
        => run |s, v| s.proxy.log_format = v.parsed("a log format", value::log_format)?),
    row!("log.queries", "", Boolean, "", Toml("false"), Reload, "true",
        "Logs the query part of URLs, which may be private. Off: a query is logged as `?`, in Referer too."
        => run |s, v| s.proxy.log_queries = v.boolean()?),
    row!("log.recent", "", Boolean, "", Toml("true"), Reload, "false",
        "Keeps the last 1,000 requests in memory for the dashboard's query log, with clients and URLs. Off: none, and \
         those kept are forgotten."
        => run |s, v| s.proxy.query_log = v.boolean()?),
    row!("admin.listen", "--admin", Text, "", Prose("none"), Restart, "\"127.0.0.1:3180\"",
        "Address of the admin listener. Loopback only, unless `tokens` is set.",
        flag once("ADDRESS", OBSERVATION, "Address of the dashboard, /metrics and /healthz")
        => run |s, v| s.proxy.admin = Some(v.parsed("an address", value::listen_address)?)),
    row!("admin.tokens", "", Text, "", Prose("none"), Reload, "\"/etc/larder/tokens\"",
        "A file of access tokens. Every request except `/healthz` must present one. See [Remote \
         administration](#remote-administration)."
        => run |s, v| s.proxy.admin_tokens = Some(path(v)?)),
    row!("admin.tls", "", Boolean, "", Toml("false"), Reload, "true",
        "Uses TLS with the certificates of `[[certificate]]`."
        => run |s, v| s.proxy.admin_tls = v.boolean()?),
    row!("request.x_forwarded", "", Boolean, "", Toml("false"), Reload, "true",
        "Sends the client's address, scheme and host to origins in X-Forwarded-For, X-Forwarded-Proto and \
         X-Forwarded-Host."
        => run |s, v| s.proxy.add_x_forwarded = v.boolean()?),
    row!("request.forwarded", "", Boolean, "", Toml("false"), Reload, "true",
        "Sends the same in Forwarded (RFC 7239)."
        => run |s, v| s.proxy.add_forwarded = v.boolean()?),
    row!("request.underscores", "", Boolean, "", Toml("false"), Reload, "true",
        "Forwards request fields whose names have underscores. Programs behind CGI, WSGI or Rack take them for the \
         fields with hyphens. See [Fields that origins trust](trusted-fields.md#underscores-in-names)."
        => run |s, v| s.proxy.keep_underscores = v.boolean()?),
    row!("response.via", "", Boolean, "", Toml("true"), Reload, "false",
        "Adds Via (RFC 9110 7.6.3). Without it, loops are detected by CDN-Loop alone."
        => run |s, v| s.proxy.add_via = v.boolean()?),
    row!("response.cache_status", "", Boolean, "", Toml("true"), Reload, "false",
        "Adds [Cache-Status](cache-status.md) (RFC 9211): the proxy's `name` (default `Larder`), \
         `detail=memory` or `disk` for a hit, `stored` if the store had room."
        => run |s, v| s.proxy.add_cache_status = v.boolean()?),
    row!("fleet.nodes", "", List, "", Prose("none"), Reload, "[\"a=10.0.0.1:8080\", \"b=10.0.0.2:8080\"]",
        "All nodes of a fleet, also this one, each with its name and the address where it serves clients: \
         `NAME=HOST:PORT`. This one is found by `node`. A purge on any of them takes effect on all. See \
         [Purges](../how-to/fleet.md#purge-on-all-nodes)."
        => run |s, v| s.proxy.fleet.nodes = v.each("a node", value::fleet_node)?),
    row!("fleet.dns", "", Text, "", Prose("none"), Reload, "\"larder.example:8080\"",
        "A name whose addresses are the nodes, and the port on which all of them serve clients: in place of `nodes`, for \
         `siblings`. It is resolved every few seconds. Requires `log`. See [Siblings \
         by DNS](../how-to/fleet.md#siblings-by-dns)."
        => run |s, v| s.proxy.fleet.dns = Some(v.parsed("a host and a port", value::fleet_name)?)),
    row!("fleet.log", "", Text, "", Prose("none"), Reload, "\"redis://10.0.0.9:6379/larder-purges\"",
        "A stream that carries the purges of all nodes, in Redis or in NATS JetStream: `redis://HOST:PORT/STREAM`, \
         `redis+sentinel://HOST:PORT,HOST:PORT/MASTER/STREAM` or `nats://HOST:PORT,HOST:PORT/STREAM`. With TLS: \
         `rediss://`, `rediss+sentinel://` or `tls://`. The nodes then do not read each other's purges, and `nodes` is \
         needed for `siblings` only. Needs a larder that is built with the feature `log-redis` or `log-nats`. See \
         [Purges through Redis or NATS](../how-to/fleet.md#purges-through-redis-or-nats)."
        => run |s, v| s.proxy.fleet.log = Some(v.parsed("an address", value::shared_log)?)),
    row!("fleet.log_credentials_file", "", Text, "", Prose("none"), Reload, "\"/etc/larder/log.secret\"",
        "A file with the credentials for `log`: a password or token, or `USER:PASSWORD`, readable by Larder's user only."
        => run |s, v| s.proxy.fleet.log_credentials_file = Some(path(v)?)),
    row!("fleet.secret_file", "", Text, "", Prose("none"), Reload, "\"/etc/larder/fleet.secret\"",
        "A file with the secret by which the nodes recognize each other, at least 16 characters, readable by Larder's \
         user only. Required with `nodes` and with `log`, and the same on all nodes."
        => run |s, v| s.proxy.fleet.secret_file = Some(path(v)?)),
    row!("fleet.listen", "", Text, "", Prose("none"), Reload, "\"10.0.0.1:8443\"",
        "The address on which this node serves the other nodes with TLS, besides the addresses for clients. Requires \
         `certificate`, `key` and `ca_file`, on all nodes. `nodes` then has these addresses. See [Certificates between \
         nodes](../how-to/fleet.md#certificates-between-nodes)."
        => run |s, v| s.node_tls.listen = Some(v.parsed("an address", value::listen_address)?)),
    row!("fleet.certificate", "", Text, "", Prose("none"), Reload, "\"/etc/larder/node.pem\"",
        "This node's certificate in PEM form, for its host in `nodes` or for the name in `dns`. It is shown to other \
         nodes when they connect, and when this node connects."
        => run |s, v| s.node_tls.certificate = Some(path(v)?)),
    row!("fleet.key", "", Text, "", Prose("none"), Reload, "\"/etc/larder/node.key\"",
        "The private key of `certificate`."
        => run |s, v| s.node_tls.key = Some(path(v)?)),
    row!("fleet.ca_file", "", Text, "", Prose("none"), Reload, "\"/etc/larder/fleet-ca.pem\"",
        "A file with the CAs that sign the nodes' certificates. No other CA counts between nodes."
        => run |s, v| s.node_tls.ca_file = Some(path(v)?)),
    row!("fleet.siblings", "", Boolean, "", Toml("false"), Reload, "true",
        "Whether the nodes share their entries: a node that lacks a response asks the node that owns its key before the \
         origin. See [Siblings](../how-to/fleet.md#siblings-without-a-balancer)."
        => run |s, v| s.proxy.fleet.shares_entries = v.boolean()?),
    row!("fleet.node_timeout", "", Duration, "at least 1s", Toml("\"1m\""), Reload, "\"5m\"",
        "Time that another node may be silent. While one is silent for longer, stored responses are validated at the \
         origin before use, at least once per this time, because the other may have purged them. With more, a node may \
         take longer to restart; with less, purges on a node that cannot be reached take effect sooner."
        => run |s, v| s.proxy.fleet.node_timeout = duration_from(v, std::time::Duration::from_secs(1))?),
    row!("limits.header_size", "", Size, "8KiB to 1MiB", Toml("\"64KiB\""), Reload, "\"32KiB\"",
        "Longest message head, 8 KiB to 1 MiB."
        => run |s, v| s.proxy.limits.header_bytes_max = v.parsed("a size", value::header_size)?),
    row!("limits.header_fields", "", Count, "1 to 10000000", Toml("400"), Reload, "200",
        "Most fields in a message."
        => run |s, v| s.proxy.limits.header_count_max = count(v)?),
    row!("limits.connections", "", Count, "1 to 10000000", Toml("16384"), Reload, "4096",
        "Most client connections at once. Beyond it, the one that has waited longest for a request is closed for a \
         new one, then one whose client has taken nothing of its response for two seconds. If there is none, the new \
         one gets 503 with Retry-After; on TLS listeners it is closed before the handshake. If the limit on open files (`ulimit -n`) is too low for this number, half of the files \
         are for clients and half for origins, and a start line says so."
        => run |s, v| s.proxy.limits.connection_count_max = count(v)?),
    row!("limits.client_connections", "", Count, "1 to 10000000", Prose("no limit"), Reload, "100",
        "Most open connections of one client address; of IPv6, of one /64. Further ones get 503 with Retry-After; on \
         TLS listeners they are closed before the handshake. The connecting address counts, except those of \
         `trusted_proxies`, of load balancers with PROXY headers and of other nodes. Many clients behind one router share an address."
        => run |s, v| s.proxy.limits.client_connection_count_max = Some(count(v)?)),
    row!("limits.client_requests", "", Count, "1 to 10000000", Prose("no limit"), Reload, "50",
        "Most requests of one client address that are being answered at once; of IPv6, of one /64. Others get 429 with \
         Retry-After. The address is the one in the access log, so that clients behind trusted proxies count apart. \
         Hits from memory and open tunnels do not count."
        => run |s, v| s.proxy.limits.client_request_count_max = Some(count(v)?)),
    row!("limits.waiting", "",
        Count, "1 to 10000000", Prose("a quarter of the machine's memory at 64 KiB each, at least 1024"), Reload, "1000",
        "Most requests that may wait for a response at once. Others get 503 with Retry-After. A container's \
         memory limit counts if it is lower than the machine's. Printed at start and in `/metrics`."
        => run |s, v| s.proxy.limits.waiting_count_max = count(v)?),
    row!("limits.streams", "", Count, "1 to 65535", Toml("128"), Reload, "64",
        "Most concurrent requests on one HTTP/2 connection."
        => run |s, v| s.proxy.limits.stream_count_max = small_count(v)?),
    row!("limits.abandoned", "", Count, "1 to 65535", Toml("500"), Reload, "100",
        "Most requests a client may cancel within ten seconds on one HTTP/2 connection. Exceeding it closes the \
         connection."
        => run |s, v| s.proxy.limits.abandoned_count_max = small_count(v)?),
    row!("limits.control_frames", "", Count, "1 to 65535", Toml("2000"), Reload, "1000",
        "Most frames without a request (SETTINGS, PING, PRIORITY, WINDOW_UPDATE and the like) that a client may \
         send within ten seconds on one HTTP/2 connection. Each request adds 16 and each 64 bytes received add \
         one. Exceeding it closes the connection."
        => run |s, v| s.proxy.limits.control_count_max = small_count(v)?),
    row!("limits.idle_timeout", "", Duration, "", Toml("\"60s\""), Reload, "\"2m\"",
        "How long a client connection may be idle between requests."
        => run |s, v| s.proxy.limits.idle = duration(v)?),
    row!("limits.header_timeout", "", Duration, "", Toml("\"30s\""), Reload, "\"10s\"",
        "How long a client may take to send a request head."
        => run |s, v| s.proxy.limits.header = duration(v)?),
    row!("limits.stall_timeout", "", Duration, "", Toml("\"180s\""), Reload, "\"90s\"",
        "How long a message or tunnel may make no progress. See [Slow clients](#slow-clients)."
        => site |p, v| p.limits.stall = duration(v)?),
    row!("limits.body_rate", "", Rate, "", Toml("500"), Reload, "\"1KiB\"",
        "Minimum bytes per second of a request body until the origin starts to respond; slower ones get 408. \
         A higher rate drops clients that hold connections by sending slowly, and also clients on slow links; 0 turns it \
         off. Does not apply to tunnels, WebSocket, or requests without a body."
        => site |p, v| p.limits.body_rate = bytes(v)?),
    row!("limits.body_grace", "", Duration, "", Toml("\"60s\""), Reload, "\"30s\"",
        "How long, in total, a client may lag behind that rate. Sending faster earns time back, up to this limit. \
         It is therefore also the longest pause allowed."
        => site |p, v| p.limits.body_grace = duration(v)?),
    row!("limits.store_timeout", "", Duration, "", Toml("\"3s\""), Reload, "\"2s\"",
        "How long the store may take to respond. Larder then uses the origin, and retries a slow store less and \
         less often, at least once a minute."
        => run |s, v| s.proxy.limits.store = duration(v)?),
    row!("limits.origin_connect_timeout", "", Duration, "", Toml("\"10s\""), Reload, "\"5s\"",
        "How long connecting to an origin may take."
        => site |p, v| p.limits.origin_connect = duration(v)?),
    row!("limits.origin_response_timeout", "", Duration, "", Toml("\"60s\""), Reload, "\"30s\"",
        "How long an origin may be silent."
        => site |p, v| p.limits.origin_response = duration(v)?),
    row!("limits.origin_idle_timeout", "", Duration, "", Toml("\"60s\""), Reload, "\"45s\"",
        "How long an unused connection to an origin is kept."
        => site |p, v| p.limits.origin_idle = duration(v)?),
    row!("limits.origin_connections", "",
        Count, "1 to 10000000", Prose("half of the open-file limit, from 1000 to 16384, and at most `waiting`"), Reload, "500",
        "Most connections to one origin at once, not counting tunnels. See [Waiting for an \
         origin](#waiting-for-an-origin)."
        => site |p, v| p.limits.origin_connection_count_max = count(v)?),
    row!("limits.origin_idle_connections", "", Count, "1 to 10000000", Toml("64"), Reload, "32",
        "Most unused connections kept per origin and worker."
        => site |p, v| p.limits.origin_idle_count_max = count(v)?),
    row!("tier.folder", "", Text, "", Prose("none"), Restart, "\"/mnt/slow/larder\"",
        "Folder for entries that the store evicts, such as one of a slower disk or of a network file system. A miss is \
         looked up there before the origin is contacted. See [A second tier](../how-to/tier.md)."
        => run |s, v| s.proxy.tier.folder = Some(path(v)?)),
    row!("tier.bucket", "", Text, "", Prose("none"), Restart, "\"larder-packs\"",
        "Bucket of an object store that speaks S3, for the same purpose. The credentials are those of the environment, \
         as for AWS' own tools. Needs a larder that is built with the feature `tier-s3`. See [Evicted entries in \
         S3](../how-to/tier.md#keep-evicted-entries-in-s3)."
        => run |s, v| s.proxy.tier.bucket.name = Some(v.parsed("the name of a bucket", value::bucket)?)),
    row!("tier.endpoint", "", Text, "", Prose("AWS, in the region"), Restart, "\"https://s3.example\"",
        "URL of the object store."
        => run |s, v| s.proxy.tier.bucket.endpoint = Some(v.parsed("a URL", value::endpoint)?)),
    row!("tier.region", "", Text, "", Prose("`AWS_REGION`, or `us-east-1`"), Restart, "\"eu-central-1\"",
        "Region of the bucket."
        => run |s, v| s.proxy.tier.bucket.region = Some(v.parsed("a region", value::object_prefix)?)),
    row!("tier.prefix", "", Text, "", Toml("\"\""), Restart, "\"caches/office\"",
        "Prefix of all names in the bucket. Larder adds a name of its own, so several Larders may have the same one."
        => run |s, v| s.proxy.tier.bucket.prefix = v.parsed("a prefix", value::object_prefix)?),
    row!("tier.secret", "", Text, "", Prose("a secret of the store"), Restart, "\"/etc/larder/tier-secret\"",
        "A file with the secret that signs the entries in the tier, readable by Larder's user only and of at least 16 \
         characters. Entries that are not signed with it are misses."
        => run |s, v| s.proxy.tier.secret = Some(path(v)?)),
    row!("tier.size", "", Size, "", Toml("\"100GB\""), Restart, "\"2TB\"",
        "Most bytes in the tier. Beyond it, the oldest packs are removed. The index takes about 50 bytes of memory for \
         each entry."
        => run |s, v| s.proxy.tier.bytes_max = bytes(v)?),
    row!("tier.admit", "", Text, "hit, all", Toml("\"hit\""), Restart, "\"all\"",
        "Which evicted entries go out: `hit`, those that were requested again and those of at least `large`; `all`, \
         every one, which writes everything that the store ever had."
        => run |s, v| s.proxy.tier.admits_all = v.parsed("hit or all", value::tier_admission)?),
    row!("tier.large", "", Size, "", Toml("\"256KiB\""), Restart, "\"1MiB\"",
        "Length from which an entry goes out although it was not requested again. Bodies over 1 MiB consist of entries \
         of 1 MiB."
        => run |s, v| s.proxy.tier.large_bytes = bytes(v)?),
    row!("tier.read_timeout", "", Duration, "", Toml("\"1s\""), Restart, "\"200ms\"",
        "Longest time that a request waits for the tier. After that the origin is contacted."
        => run |s, v| s.proxy.tier.timeout = duration(v)?),
    row!("tier.pack_age", "", Duration, "", Toml("\"1m\""), Restart, "\"10m\"",
        "Longest time that entries wait until their pack of 16 MiB is full. They are not found while they wait. With \
         more, fewer and longer packs are stored."
        => run |s, v| s.proxy.tier.pack_age = duration(v)?),
    row!("tier.writes_per_day", "", Size, "", Prose("no limit"), Restart, "\"200GB\"",
        "Most bytes written to the tier per day; a 24th of it at once. Entries beyond it are evicted as without a tier."
        => run |s, v| s.proxy.tier.write_bytes_per_day = Some(bytes(v)?)),
    row!("tier.puts_per_day", "", Count, "1 or more", Prose("no limit"), Restart, "5000",
        "Most packs stored per day; a 24th of it at once."
        => run |s, v| s.proxy.tier.puts_per_day = Some(count(v)? as u64)),
];
