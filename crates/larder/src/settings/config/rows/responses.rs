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
        "Longest body that Larder stores. Larder passes longer bodies on without storing them."
        => site |p, v| p.cache.entry_bytes_max = bytes(v)?),
    row!("cache.heuristic_fraction", "", Share, "0 to 1", Toml("0.1"), Reload, "0.2",
        "Lifetime of a response that states none, as a share of the time since its Last-Modified (RFC 9111 4.2.2). \
         With 0, a response that states no lifetime is not fresh."
        => site |p, v| p.cache.http.heuristic_fraction = v.parsed("a number from 0 to 1", value::fraction)?),
    row!("cache.heuristic_max", "", Duration, "", Toml("\"24h\""), Reload, "\"12h\"",
        "Longest lifetime that `cache.heuristic_fraction` gives a response."
        => site |p, v| p.cache.http.heuristic_max = duration(v)?),
    row!("cache.heuristic_error_max", "", Duration, "", Toml("\"10s\""), Reload, "\"1m\"",
        "Longest lifetime that `cache.heuristic_fraction` gives an error (4xx, 5xx). The Last-Modified of an error \
         belongs to the error page, and says nothing about the resource. With a longer lifetime, the origin gets fewer \
         requests, but clients get the error longer after the resource has appeared. `cache.negative` sets other \
         lifetimes by status."
        => site |p, v| p.cache.http.heuristic_error_max = duration(v)?),
    row!("cache.heuristic_with_cookies", "", Boolean, "", Toml("false"), Reload, "true",
        "Gives a heuristic lifetime also to responses that set a cookie, and to responses to requests with a cookie. \
         (Responses that say `public` or vary by `Cookie` have one anyway.) With `false`, Larder validates such a \
         response at the origin before each use, and never serves it stale. With `true`, a page that was made for one \
         client, but does not say so, is shown to others."
        => site |p, v| p.cache.http.heuristic_with_cookies = v.boolean()?),
    row!("cache.stale_if_error_max", "", Duration, "", Toml("\"24h\""), Reload, "\"2d\"",
        "How long after the end of its lifetime a response may be served when the origin fails, unless the response \
         forbids it (RFC 9111 4.2.4)."
        => site |p, v| p.cache.http.stale_if_error_max = duration(v)?),
    row!("cache.negative", "", List, "400=.. to 599=..", Prose("none"), Reload, "[\"404=10s\", \"410=5m\"]",
        "Lifetimes, by status, of errors that state none, such as `[\"404=10s\"]`. Allowed where RFC 9111 4.2.2 allows \
         a heuristic lifetime: for 404, 405, 410, 414, 451, 501, and any error that says `public`. With longer \
         lifetimes, the origin gets fewer requests, but clients get the error longer after the resource has appeared."
        => site |p, v| p.cache.http.negative_lifetimes = v.each("a status with a duration", value::negative_lifetime)?),
    row!("cache.honor_request_directives", "", Boolean, "", Toml("true"), Reload, "false",
        "Obeys Cache-Control and Pragma in requests of clients, such as `no-cache`."
        => site |p, v| p.cache.http.honor_request_directives = v.boolean()?),
    row!("cache.normalize_vary", "", Boolean, "", Toml("true"), Reload, "false",
        "Ignores white space around commas in request fields when Larder selects a variant, and treats a field that is \
         split over several lines like one line."
        => site |p, v| p.cache.http.normalize_vary = v.boolean()?),
    row!("cache.normalize_language", "", Boolean, "", Toml("false"), Reload, "true",
        "Compares `Accept-Language` without case and white space. A client that prefers one language gets a stored \
         variant in that language, even if it accepts others too. This comparison gives more hits, but the origin \
         might have chosen another language for the client."
        => site |p, v| p.cache.http.normalize_language = v.boolean()?),
    row!("cache.store_set_cookie", "", Boolean, "", Toml("false"), Reload, "true",
        "Stores responses with `Set-Cookie` like any other. With `false`, Larder stores only responses with \
         `Set-Cookie` that say `public` or give a lifetime for shared caches (`s-maxage`, or `max-age` in a targeted \
         field). With `true`, other clients can get the session of the client that received the cookie."
        => site |p, v| p.cache.http.store_set_cookie = v.boolean()?),
    row!("cache.targeted_fields", "",
        List, "", Toml("[\"CDN-Cache-Control\"]"), Reload, "[\"Example-Cache-Control\", \"CDN-Cache-Control\"]",
        "Response fields that replace Cache-Control and Expires (RFC 9213). If a response has several of these fields, \
         the first valid one in this list applies. `[]` ignores all targeted fields."
        => site |p, v| p.cache.http.targets = TargetList::new(v.each("a field name", value::field_name)?)),
    row!("cache.group_window", "", Duration, "0s to 60s", Toml("\"2s\""), Reload, "\"5s\"",
        "Longest time between two requests of a client for objects of one page. If one client's requests with the same \
         Referer follow each other within this time, Larder stores the responses next to the page, if the policy \
         supports it. A page ends after 12 s, or after `cache.group_window` if that is longer. With a longer time, \
         slow pages stay together, but the client's next page may be included. At most 60 s; `0s` turns grouping off."
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
        "Shortest body that Larder compresses, if the length of the body is known."
        => site |p, v| p.cache.http.compression.size_min = bytes(v)?),
    row!("rule.name", "", Text, "", Prose("`rule 1` and so on"), Reload, "\"jars\"",
        "Name of the rule in the output of `larder explain`."),
    row!("rule.hosts", "", List, "", Prose("all"), Reload, "[\"repo.example\", \"*.repo.example\"]",
        "Hosts that the rule matches. A host without a port matches every port, and `*.NAME` matches everything below \
         a name. Only the first rule that matches a response applies. See [Rules](#rules)."),
    row!("rule.paths", "", List, "", Prose("all"), Reload, "[\"/**/*.jar\"]",
        "Patterns for the path without query: `*` stands for any characters except a slash, `**` for any characters. \
         A pattern must match the whole path."),
    row!("rule.methods", "", List, "", Prose("GET and HEAD"), Reload, "[\"GET\", \"HEAD\"]",
        "Methods that the rule matches."),
    row!("rule.statuses", "", List, "", Prose("all"), Reload, "[\"200\"]",
        "Statuses that the rule matches, such as `404` or `5xx`."),
    row!("rule.types", "", List, "", Prose("all"), Reload, "[\"text/html\"]",
        "Media types that the rule matches, such as `image/*`."),
    row!("rule.cookies", "", List, "", Prose("all requests"), Reload, "[\"!wordpress_logged_in_*\"]",
        "Conditions on the request's cookies. Each condition is `NAME` or `NAME=VALUE`, or its opposite with `!` in \
         front; `*` stands for any characters. See [Conditions](#conditions)."),
    row!("rule.fields", "", List, "", Prose("all requests"), Reload, "[\"!x-preview\"]",
        "Conditions on the request's fields, in the same form as `rule.cookies`."),
    row!("rule.queries", "", List, "", Prose("all requests"), Reload, "[\"!preview\"]",
        "Conditions on the arguments of the request's query, in the same form as `rule.cookies`."),
    row!("rule.fresh", "", Duration, "", Prose("as the origin says"), Reload, "\"1d\"",
        "How long a response stays fresh after Larder has received it. Overrides the lifetime that the response \
         states, and `no-cache`. Applies to requests with a Cookie only if the rule has `cookies`, or `ignore` lists \
         `cookie`."),
    row!("rule.immutable", "", Boolean, "", Toml("false"), Reload, "true",
        "States that the response never changes: it is fresh for a year, unless `fresh` sets another time. If Larder \
         knows the digest of the body, it verifies the body. If Larder does not know the digest, a client can force a \
         validation by `no-cache`. Web pages are not stored, unless `types` names `text/html`."),
    row!("rule.stale_while_revalidate", "", Duration, "", Prose("as the origin says"), Reload, "\"1m\"",
        "How long after the end of its lifetime a response is served while Larder validates it. A response with \
         `must-revalidate` is not served stale, unless `ignore` lists `must-revalidate`."),
    row!("rule.stale_if_error", "", Duration, "", Prose("as the origin says"), Reload, "\"30d\"",
        "How long after the end of its lifetime a response is served when the origin fails."),
    row!("rule.ignore", "", List, "", Prose("nothing"), Reload, "[\"client no-cache\", \"vary: user-agent\"]",
        "Directives to ignore; see [Rules](#rules)."),
    row!("rule.store", "", Boolean, "", Toml("true"), Reload, "false",
        "With `false`, Larder does not store the response."),
    row!("rule.vary", "", List, "", Prose("none"), Reload, "[\"X-Tenant\"]",
        "Request fields on which the response depends, in addition to those in its Vary."),
    row!("rule.object_size_max", "", Size, "", Prose("that of `cache.object_size_max`"), Reload, "\"1GB\"",
        "Longest body that Larder stores under this rule."),
    row!("rule.finish_abandoned", "", Boolean, "", Prose("if the body is small, or half received"), Reload, "true",
        "Completes a fetch, and stores its response, even if all clients that requested it have left."),
    row!("rule.follow_redirects", "", Boolean, "", Toml("false"), Reload, "true",
        "Follows redirects and caches the final response; see [Redirects](#redirects)."),
    row!("rule.follow_to_http", "", Boolean, "", Toml("false"), Reload, "true",
        "Also follows redirects from `https://` to `http://`."),
    row!("rule.authorization", "", Text, "share, check", Prose("as RFC 9111 says"), Reload, "\"check\"",
        "How to share responses to requests with credentials. `share` serves such responses to everybody, like `ignore \
         = [\"authorization\"]`. `check` asks the origin for each client; see [Credentials](#credentials)."),
    row!("rule.check_digest", "", Boolean, "", Toml("false"), Reload, "true",
        "Verifies the body against the digest at the end of the URL's path (`sha256:HEX` or `SHA256/HEX`; SHA-512 \
         too), even if the rule is not `immutable`. If the body does not match the digest, Larder does not store the \
         body, and cuts the client's response off before its end."),
    row!("rule.git", "", Boolean, "", Toml("false"), Reload, "true",
        "Answers git's POST requests from the cache; see [Git](#git)."),
    row!("key.urls", "", List, "", Required, Reload, "[\"http://mirror.example/debian/\"]",
        "URL prefixes that this `[[key]]` matches, in whole path segments. Only the first `[[key]]` that matches a URL \
         applies."),
    row!("key.strip", "", List, "", Prose("none"), Reload, "[\"utm_*\"]",
        "Query arguments to leave out of the cache key. Name each argument, or give a prefix followed by `*`. Strip \
         only arguments that do not change the response."),
    row!("key.as", "", Text, "", Prose("none"), Reload, "\"http://deb.example/debian/\"",
        "A URL prefix that replaces the matched one in the cache key, so that mirrors of one repository share entries. \
         Set `as` only where both URLs serve the same files. Larder still sends each request to the host in the \
         request."),
    row!("mirror.name", "--mirror", Text, "", Prose("none"), Reload, "\"pypi\"",
        "A package registry that `larder mirror list` names, served under its path: `http://127.0.0.1:3128/pypi/` \
         and so on. See [Mirror package registries](../how-to/mirrors.md)."),
    row!("mirror.origin", "--origin-of NAME=URL",
        Text, "", Prose("the registry's own"), Reload, "\"https://npm.example.com\"",
        "Server to use instead of the registry's main server. For a mirror with `path`, the URL of your own server."),
    row!("mirror.registries", "",
        List, "", Prose("none"), Reload, "[\"registry.example.com:5000=http://10.0.0.8:5000\"]",
        "For the mirror `oci`: more container registries, as `HOST` or `HOST=URL`."),
    row!("mirror.path", "", Text, "", Prose("none"), Reload, "\"/company\"",
        "Path under which to serve your own server."),
    row!("mirror.immutable", "", List, "", Prose("none"), Reload, "[\"/**/*.jar\"]",
        "Patterns of paths, below the URL in `mirror.origin`, whose files never change."),
    row!("mirror.fresh", "", Duration, "", Prose("as the origin says"), Reload, "\"10m\"",
        "Lifetime of files of your own server that no pattern in `mirror.immutable` matches."),
    row!("mirror.follow_redirects", "", Boolean, "", Toml("false"), Reload, "true",
        "Follows redirects of your own server; see [Redirects](#redirects)."),
    row!("mirror.documents", "", List, "", Prose("none"), Reload, "[\"text/html\"]",
        "Media types of documents in which Larder rewrites links to your server, so that they point to the mirror."),
    row!("build_cache.path", "--build-cache", Text, "", Required, Reload, "\"/cache\"",
        "Path below which build tools store their results, for ccache, sccache, Bazel, Gradle, Turborepo and Nix. See \
         [Build caches](../how-to/build-cache.md)."),
    row!("build_cache.tokens", "", Text, "", Prose("none: nobody may write"), Reload, "\"/etc/larder/build-tokens\"",
        "A file with a line `write TOKEN` for each writer, readable by Larder's user only. All other clients may only read."),
    row!("build_cache.local_writers", "", Boolean, "", Toml("false"), Reload, "true",
        "Permits writes from programs on this machine, without a token. Do not set this key if a proxy in front of \
         Larder runs on this machine, because the requests that the proxy forwards come from this machine too. \
         Excludes `tokens`."),
    row!("build_cache.origin", "", Text, "", Prose("none"), Reload, "\"http://cache-1.example:3128/cache\"",
        "Another build cache, from which Larder requests results that it does not have. Larder never writes to that \
         cache. While that cache does not respond, results that only it has are misses."),
    row!("rate_limit.rate", "", Rate, "at least 1KiB", Required, Reload, "\"1MB\"",
        "Bytes per second that clients receive. See [Rate limits](#rate-limits)."),
    row!("rate_limit.for", "", Text, "all, each network, each client", Toml("\"all\""), Reload, "\"each client\"",
        "The clients that share the rate. `\"all\"` is one rate for all these clients, `\"each network\"` a rate for \
         each network in `clients`, and `\"each client\"` a rate for each client address (for IPv6, for each /64 \
         network)."),
    row!("rate_limit.clients", "", List, "", Prose("all"), Reload, "[\"10.0.1.0/24\"]",
        "Networks of the clients to limit."),
    row!("rate_limit.hosts", "", List, "", Prose("all"), Reload, "[\"*.video.example\"]",
        "Hosts to limit, as clients name them, such as `*.video.example`."),
    row!("rate_limit.burst", "", Size, "", Prose("one second's worth"), Reload, "\"20MB\"",
        "Bytes that a client gets at full speed after a pause. With a larger burst, short pages are not slowed down. \
         With a smaller burst, the uplink is shared more evenly."),
    row!("rate_limit.name", "", Text, "", Prose("its position"), Reload, "\"video\"",
        "Name of the limit in the output of `larder explain`."),
    row!("log.access", "--access-log", Text, "", Prose("none"), Reload, "\"/var/log/larder/access.log\"",
        "Access log file; `-` is standard output. To rotate the log, move the file and send SIGUSR1.",
        flag once("PATH", OBSERVATION, "Access log file, or `-` for standard output")
        => run |s, v| s.proxy.access_log = Some(v.parsed("a path", value::access_log)?)),
    row!("log.format", "--log-format",
        Text, "squid, common, combined, json, or a format", Toml("\"squid\""), Reload, "\"combined\"",
        "`squid` (native), `common`, `combined`, `json` (one object per line), or a format of your own; see \
         [Access log](#access-log).",
        flag once("FORMAT", OBSERVATION, "squid, common, combined, json, or directives of Apache's LogFormat [default: squid]")
        => run |s, v| s.proxy.log_format = v.parsed("a log format", value::log_format)?),
    row!("log.queries", "", Boolean, "", Toml("false"), Reload, "true",
        "Logs the query part of URLs, which may be private. With `false`, each query is logged as `?`, also in the \
         Referer."
        => run |s, v| s.proxy.log_queries = v.boolean()?),
    row!("log.recent", "", Boolean, "", Toml("true"), Reload, "false",
        "Keeps the last 1,000 requests of each worker in memory for the dashboard, with clients and URLs. With \
         `false`, Larder keeps no requests, and forgets those that it has kept."
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
        "Sends the client's address, scheme and host to origins in Forwarded (RFC 7239)."
        => run |s, v| s.proxy.add_forwarded = v.boolean()?),
    row!("request.underscores", "", Boolean, "", Toml("false"), Reload, "true",
        "Forwards request fields whose names have underscores. Programs behind CGI, WSGI or Rack confuse such names \
         with the same names with hyphens. See [Fields that origins trust](trusted-fields.md#underscores-in-names)."
        => run |s, v| s.proxy.keep_underscores = v.boolean()?),
    row!("response.via", "", Boolean, "", Toml("true"), Reload, "false",
        "Adds the field Via to messages (RFC 9110 7.6.3). Without Via, Larder detects loops by CDN-Loop alone."
        => run |s, v| s.proxy.add_via = v.boolean()?),
    row!("response.cache_status", "", Boolean, "", Toml("true"), Reload, "false",
        "Adds the field [Cache-Status](cache-status.md) (RFC 9211) to responses. The field begins with the proxy's \
         `name` (default `Larder`). It says `detail=memory` or `detail=disk` for a hit, and `stored` if the store had \
         room."
        => run |s, v| s.proxy.add_cache_status = v.boolean()?),
    row!("fleet.nodes", "", List, "", Prose("none"), Reload, "[\"a=10.0.0.1:8080\", \"b=10.0.0.2:8080\"]",
        "All nodes of a fleet, including this one, each with its name and the address where it serves clients: \
         `NAME=HOST:PORT`. Each node finds itself in the list by its `node`. A purge on any node takes effect on all. \
         See [Purges](../how-to/fleet.md#purge-on-all-nodes)."
        => run |s, v| s.proxy.fleet.nodes = v.each("a node", value::fleet_node)?),
    row!("fleet.dns", "", Text, "", Prose("none"), Reload, "\"larder.example:8080\"",
        "A host that resolves to the addresses of all nodes, and the port on which they serve clients. Use `dns` \
         instead of `nodes`, for `siblings`. Larder resolves the host every few seconds. Requires `log`. See [Siblings \
         by DNS](../how-to/fleet.md#siblings-by-dns)."
        => run |s, v| s.proxy.fleet.dns = Some(v.parsed("a host and a port", value::fleet_name)?)),
    row!("fleet.log", "", Text, "", Prose("none"), Reload, "\"redis://10.0.0.9:6379/larder-purges\"",
        "A stream that carries the purges of all nodes, in Redis or in NATS JetStream: `redis://HOST:PORT/STREAM`, \
         `redis+sentinel://HOST:PORT,HOST:PORT/MASTER/STREAM` or `nats://HOST:PORT,HOST:PORT/STREAM`. With TLS: \
         `rediss://`, `rediss+sentinel://` or `tls://`. With `log`, the nodes do not read each other's purges, and \
         `nodes` is needed for `siblings` only. Needs a larder that is built with the feature `log-redis` or \
         `log-nats`. See [Purges through Redis or NATS](../how-to/fleet.md#purges-through-redis-or-nats)."
        => run |s, v| s.proxy.fleet.log = Some(v.parsed("an address", value::shared_log)?)),
    row!("fleet.log_credentials_file", "", Text, "", Prose("none"), Reload, "\"/etc/larder/log.secret\"",
        "A file with the credentials for `log`: a password or token, or `USER:PASSWORD`, readable by Larder's user only."
        => run |s, v| s.proxy.fleet.log_credentials_file = Some(path(v)?)),
    row!("fleet.secret_file", "", Text, "", Prose("none"), Reload, "\"/etc/larder/fleet.secret\"",
        "A file with the secret by which the nodes recognize each other, at least 16 characters, readable by Larder's \
         user only. Required with `nodes` and with `log`, and the same on all nodes."
        => run |s, v| s.proxy.fleet.secret_file = Some(path(v)?)),
    row!("fleet.listen", "", Text, "", Prose("none"), Reload, "\"10.0.0.1:8443\"",
        "The address on which this node serves the other nodes with TLS, in addition to the addresses for clients. \
         Requires `certificate`, `key` and `ca_file` on all nodes. If it is set, `fleet.nodes` must list the \
         `fleet.listen` addresses of all nodes. \
         See [Certificates between nodes](../how-to/fleet.md#certificates-between-nodes)."
        => run |s, v| s.node_tls.listen = Some(v.parsed("an address", value::listen_address)?)),
    row!("fleet.certificate", "", Text, "", Prose("none"), Reload, "\"/etc/larder/node.pem\"",
        "This node's certificate in PEM form. The certificate must cover the node's host in `nodes`, or the name in \
         `dns`. The node shows its certificate to other nodes, whichever side connects."
        => run |s, v| s.node_tls.certificate = Some(path(v)?)),
    row!("fleet.key", "", Text, "", Prose("none"), Reload, "\"/etc/larder/node.key\"",
        "The private key of `certificate`."
        => run |s, v| s.node_tls.key = Some(path(v)?)),
    row!("fleet.ca_file", "", Text, "", Prose("none"), Reload, "\"/etc/larder/fleet-ca.pem\"",
        "A file with the CAs that may sign the nodes' certificates. Between nodes, Larder trusts no other CA."
        => run |s, v| s.node_tls.ca_file = Some(path(v)?)),
    row!("fleet.siblings", "", Boolean, "", Toml("false"), Reload, "true",
        "Whether the nodes share their entries. If a node lacks a response, it asks the node that owns its key before \
         it asks the origin. See [Siblings](../how-to/fleet.md#siblings-without-a-balancer)."
        => run |s, v| s.proxy.fleet.shares_entries = v.boolean()?),
    row!("fleet.node_timeout", "", Duration, "at least 1s", Toml("\"1m\""), Reload, "\"5m\"",
        "Time for which another node may be silent. If a node is silent for longer, this node validates its stored \
         responses at the origin before use, at least once per `node_timeout`, because the silent node may have purged \
         them. With a longer time, nodes may take longer to restart. With a shorter time, purges on a node that cannot \
         be reached take effect sooner."
        => run |s, v| s.proxy.fleet.node_timeout = duration_from(v, std::time::Duration::from_secs(1))?),
    row!("limits.header_size", "", Size, "8KiB to 1MiB", Toml("\"64KiB\""), Reload, "\"32KiB\"",
        "Longest head of a message, 8 KiB to 1 MiB."
        => run |s, v| s.proxy.limits.header_bytes_max = v.parsed("a size", value::header_size)?),
    row!("limits.header_fields", "", Count, "1 to 10000000", Toml("400"), Reload, "200",
        "Highest number of header fields in a message."
        => run |s, v| s.proxy.limits.header_count_max = count(v)?),
    row!("limits.connections", "", Count, "1 to 10000000", Toml("16384"), Reload, "4096",
        "Highest number of open client connections. At the limit, Larder closes the connection that has waited longest \
         for a request, to accept a new one. If no connection waits for a request, Larder closes one whose client has \
         read nothing of its response for two seconds. If there is no such connection either, the new connection gets \
         503 with Retry-After; on TLS listeners it is closed before the handshake. If the limit on open files (`ulimit \
         -n`) is too low for this number, Larder uses half of the files for clients and half for origins, and a start \
         line says so."
        => run |s, v| s.proxy.limits.connection_count_max = count(v)?),
    row!("limits.client_connections", "", Count, "1 to 10000000", Prose("no limit"), Reload, "100",
        "Highest number of open connections of one client address; for IPv6, of one /64 network. Further connections \
         get 503 with Retry-After; on TLS listeners they are closed before the handshake. The address is that of the \
         connection, not one in a header field. Larder does not count connections of `trusted_proxies`, of load \
         balancers with PROXY headers and of other nodes. Many clients behind one router share an address."
        => run |s, v| s.proxy.limits.client_connection_count_max = Some(count(v)?)),
    row!("limits.client_requests", "", Count, "1 to 10000000", Prose("no limit"), Reload, "50",
        "Highest number of requests of one client address that are being answered at the same time; for IPv6, of one \
         /64 network. Further requests get 429 with Retry-After. The address is the one in the access log, so clients \
         behind trusted proxies count separately. Hits from memory and open tunnels do not count."
        => run |s, v| s.proxy.limits.client_request_count_max = Some(count(v)?)),
    row!("limits.waiting", "",
        Count, "1 to 10000000", Prose("a quarter of the machine's memory at 64 KiB each, at least 1024"), Reload, "1000",
        "Highest number of requests that may wait for a response at the same time. Further requests get 503 with \
         Retry-After. The default follows from the memory of the machine, or of its container if that has less. The \
         start lines and `/metrics` show the default."
        => run |s, v| s.proxy.limits.waiting_count_max = count(v)?),
    row!("limits.lag", "", Duration, "", Toml("\"50ms\""), Reload, "\"200ms\"",
        "How long a ready request may wait for the processor. If, for half a second, every request waits longer, a \
         share of the requests gets 503 with Retry-After. The share grows until the wait is shorter. If refusing does \
         not help within a second, nothing is refused for ten seconds, because a refusal costs half as much as a short \
         response. Hits from memory are never refused. With `0s`, no request is refused."
        => run |s, v| s.proxy.limits.lag = duration(v)?),
    row!("limits.streams", "", Count, "1 to 65535", Toml("128"), Reload, "64",
        "Highest number of concurrent requests on one HTTP/2 connection."
        => run |s, v| s.proxy.limits.stream_count_max = small_count(v)?),
    row!("limits.abandoned", "", Count, "1 to 65535", Toml("500"), Reload, "100",
        "Highest number of requests that a client may cancel within ten seconds on one HTTP/2 connection. Beyond this \
         number, Larder closes the connection."
        => run |s, v| s.proxy.limits.abandoned_count_max = small_count(v)?),
    row!("limits.control_frames", "", Count, "1 to 65535", Toml("2000"), Reload, "1000",
        "Highest number of frames without a request (SETTINGS, PING, PRIORITY, WINDOW_UPDATE and the like) that a \
         client may send within ten seconds on one HTTP/2 connection. Each request permits 16 more frames, and each 64 \
         bytes received permit one more frame. Beyond the limit, Larder closes the connection."
        => run |s, v| s.proxy.limits.control_count_max = small_count(v)?),
    row!("limits.idle_timeout", "", Duration, "", Toml("\"60s\""), Reload, "\"2m\"",
        "How long a client connection may be idle between two requests."
        => run |s, v| s.proxy.limits.idle = duration(v)?),
    row!("limits.header_timeout", "", Duration, "", Toml("\"30s\""), Reload, "\"10s\"",
        "How long a client may take to send a request head."
        => run |s, v| s.proxy.limits.header = duration(v)?),
    row!("limits.stall_timeout", "", Duration, "", Toml("\"180s\""), Reload, "\"90s\"",
        "How long a message or tunnel may make no progress before Larder closes its connection. See [Slow \
         clients](#slow-clients)."
        => site |p, v| p.limits.stall = duration(v)?),
    row!("limits.body_rate", "", Rate, "", Toml("500"), Reload, "\"1KiB\"",
        "Lowest rate of a request's body, in bytes per second, until the origin begins to respond. Slower requests \
         get 408. A higher rate drops clients that hold connections by sending slowly, but also clients on slow \
         links; 0 turns the limit off. Does not apply to tunnels, WebSocket, or requests without a body."
        => site |p, v| p.limits.body_rate = bytes(v)?),
    row!("limits.body_grace", "", Duration, "", Toml("\"60s\""), Reload, "\"30s\"",
        "How long, in total, a client may be slower than `limits.body_rate`. A client that sends faster earns time \
         back, up to this value. A client may pause for at most this time."
        => site |p, v| p.limits.body_grace = duration(v)?),
    row!("limits.store_timeout", "", Duration, "", Toml("\"3s\""), Reload, "\"2s\"",
        "How long Larder waits for a response of the store before it contacts the origin instead. Larder tries a slow \
         store again less and less often, but at least once a minute."
        => run |s, v| s.proxy.limits.store = duration(v)?),
    row!("limits.origin_connect_timeout", "", Duration, "", Toml("\"10s\""), Reload, "\"5s\"",
        "How long connecting to an origin may take."
        => site |p, v| p.limits.origin_connect = duration(v)?),
    row!("limits.origin_response_timeout", "", Duration, "", Toml("\"60s\""), Reload, "\"30s\"",
        "How long an origin may be silent before Larder gives the request up."
        => site |p, v| p.limits.origin_response = duration(v)?),
    row!("limits.origin_idle_timeout", "", Duration, "", Toml("\"60s\""), Reload, "\"45s\"",
        "How long Larder keeps an unused connection to an origin."
        => site |p, v| p.limits.origin_idle = duration(v)?),
    row!("limits.origin_connections", "",
        Count, "1 to 10000000", Prose("half of the open-file limit, from 1000 to 16384, and at most `waiting`"), Reload, "500",
        "Highest number of connections to one origin, without tunnels. Further requests wait; see [Waiting for an \
         origin](#waiting-for-an-origin)."
        => site |p, v| p.limits.origin_connection_count_max = count(v)?),
    row!("limits.origin_idle_connections", "", Count, "1 to 10000000", Toml("64"), Reload, "32",
        "Highest number of unused connections that each worker keeps to one origin."
        => site |p, v| p.limits.origin_idle_count_max = count(v)?),
    row!("tier.folder", "", Text, "", Prose("none"), Restart, "\"/mnt/slow/larder\"",
        "Folder for entries that the store evicts, such as one on a slower disk or a network file system. On a miss, \
         Larder looks in this folder before it contacts the origin. See [A second tier](../how-to/tier.md)."
        => run |s, v| s.proxy.tier.folder = Some(path(v)?)),
    row!("tier.bucket", "", Text, "", Prose("none"), Restart, "\"larder-packs\"",
        "Bucket of an object store with the interface of S3, for entries that the store evicts. The credentials come \
         from the environment, as for AWS' own tools. Needs a larder that is built with the feature `tier-s3`. See \
         [Evicted entries in S3](../how-to/tier.md#keep-evicted-entries-in-s3)."
        => run |s, v| s.proxy.tier.bucket.name = Some(v.parsed("the name of a bucket", value::bucket)?)),
    row!("tier.endpoint", "", Text, "", Prose("AWS, in the region"), Restart, "\"https://s3.example\"",
        "URL of the object store."
        => run |s, v| s.proxy.tier.bucket.endpoint = Some(v.parsed("a URL", value::endpoint)?)),
    row!("tier.region", "", Text, "", Prose("`AWS_REGION`, or `us-east-1`"), Restart, "\"eu-central-1\"",
        "Region of the bucket."
        => run |s, v| s.proxy.tier.bucket.region = Some(v.parsed("a region", value::object_prefix)?)),
    row!("tier.prefix", "", Text, "", Toml("\"\""), Restart, "\"caches/office\"",
        "Prefix of all names in the bucket. Larder adds a name of its own, so several Larders may have the same prefix."
        => run |s, v| s.proxy.tier.bucket.prefix = v.parsed("a prefix", value::object_prefix)?),
    row!("tier.secret", "", Text, "", Prose("a secret of the store"), Restart, "\"/etc/larder/tier-secret\"",
        "A file with the secret that signs the entries in the tier, readable by Larder's user only and of at least 16 \
         characters. Entries that are not signed with this secret are misses."
        => run |s, v| s.proxy.tier.secret = Some(path(v)?)),
    row!("tier.size", "", Size, "", Toml("\"100GB\""), Restart, "\"2TB\"",
        "Highest number of bytes in the tier. Beyond this size, Larder removes the oldest packs. The index takes about \
         50 bytes of memory for each entry."
        => run |s, v| s.proxy.tier.bytes_max = bytes(v)?),
    row!("tier.admit", "", Text, "hit, all", Toml("\"hit\""), Restart, "\"all\"",
        "Which evicted entries Larder writes to the tier. `hit` writes entries that were requested again, and entries \
         of at least `tier.large`. `all` writes every evicted entry."
        => run |s, v| s.proxy.tier.admits_all = v.parsed("hit or all", value::tier_admission)?),
    row!("tier.large", "", Size, "", Toml("\"256KiB\""), Restart, "\"1MiB\"",
        "Length from which Larder writes an evicted entry to the tier even if it was not requested again. Bodies over \
         1 MiB consist of entries of 1 MiB."
        => run |s, v| s.proxy.tier.large_bytes = bytes(v)?),
    row!("tier.read_timeout", "", Duration, "", Toml("\"1s\""), Restart, "\"200ms\"",
        "Longest time that a request waits for the tier before Larder contacts the origin."
        => run |s, v| s.proxy.tier.timeout = duration(v)?),
    row!("tier.pack_age", "", Duration, "", Toml("\"1m\""), Restart, "\"10m\"",
        "Longest time that an entry waits until its pack of 16 MiB is full. While the entry waits, lookups do not find \
         it. With a longer time, Larder stores fewer and longer packs."
        => run |s, v| s.proxy.tier.pack_age = duration(v)?),
    row!("tier.writes_per_day", "", Size, "", Prose("no limit"), Restart, "\"200GB\"",
        "Highest number of bytes that Larder writes to the tier per day. At most a 24th of this number is written at \
         once. Entries beyond this limit are evicted without going to the tier."
        => run |s, v| s.proxy.tier.write_bytes_per_day = Some(bytes(v)?)),
    row!("tier.puts_per_day", "", Count, "1 or more", Prose("no limit"), Restart, "5000",
        "Highest number of packs that Larder stores per day. At most a 24th of this number is stored at once."
        => run |s, v| s.proxy.tier.puts_per_day = Some(count(v)? as u64)),
];
