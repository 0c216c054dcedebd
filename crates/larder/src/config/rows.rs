//! The rows of the table of settings. Columns: name, flag, type, range, default, reload, example, meaning.

use super::table::{
    DefaultValue::{Prose, Required, Toml},
    ReloadBehavior::{Reload, Restart},
    Setting,
    ValueKind::{Boolean, Count, Duration, List, Rate, Share, Size, Tables, Text},
};

macro_rules! row {
    ($name:literal, $flag:literal, $kind:expr, $range:literal, $default:expr, $reload:expr, $example:literal, $about:literal) => {
        Setting {
            name: $name,
            flag: $flag,
            kind: $kind,
            range: $range,
            default: $default,
            reload: $reload,
            example: $example,
            about: $about,
        }
    };
}

/// Every key of the configuration file, but for the constants of policies (`store.tuning`), which the engine lists.
#[rustfmt::skip]
pub(super) const SETTINGS: &[Setting] = &[
    row!("listen", "--listen", List, "", Toml("[\"127.0.0.1:3128\"]"), Reload, "[\"127.0.0.1:3128\", \"[::1]:3128\"]",
        "Addresses where clients connect. An address other than loopback requires `allow_clients`."),
    row!("listen_tls", "--listen-tls", List, "", Prose("none"), Reload, "[\"192.168.0.1:443\"]",
        "Addresses where clients connect with TLS 1.2 or 1.3. Requires a certificate. If `listen` or `listen_tls` \
         is set, the default address is not used."),
    row!("allow_clients", "--allow-client", List, "", Prose("none"), Reload, "[\"192.168.0.0/16\"]",
        "Networks that may use the proxy. This machine always may. `0.0.0.0/0` and `::/0` admit everybody."),
    row!("name", "", Text, "", Prose("`larder-` and eight random digits"), Reload, "\"cache-1.example\"",
        "Name of this proxy in `Via` and `CDN-Loop`, used to detect loops. Proxies that may forward to each other \
         need different names."),
    row!("workers", "--workers", Count, "1 to 1024", Prose("one per processor"), Restart, "2",
        "Number of serving threads, 1 to 1024."),
    row!("drain_timeout", "--drain-timeout", Duration, "", Toml("\"10s\""), Reload, "\"20s\"",
        "Time that running exchanges have to finish after SIGTERM or SIGINT; see \
         [Signals](../configuration.md#signals)."),
    row!("trusted_proxies", "", List, "", Prose("none"), Reload, "[\"10.2.0.0/24\"]",
        "Networks of balancers and proxies in front whose statements about their client are believed: the field \
         `client_field`, and a PROXY header (version 1 or 2) at the start of a connection. Access rules, delays, the log \
         and forwarded fields then use that client. From elsewhere the field is ignored and a PROXY header is refused. \
         See [Behind a balancer](../configuration.md#behind-a-balancer)."),
    row!("client_field", "", Text, "x-forwarded-for, forwarded", Toml("\"x-forwarded-for\""), Reload, "\"forwarded\"",
        "The field in which trusted proxies name the client. Choose the one that yours write: most pass on the other \
         one as the client sent it."),
    row!("ready_path", "", Text, "", Toml("\"/-/ready\""), Reload, "\"/healthy\"",
        "Path on the client port for health checks of balancers: 200, or 503 while the store is being loaded and during \
         `drain_notice`. `none` turns it off. Such requests are neither logged nor counted."),
    row!("node", "", Text, "", Prose("the host's name, in metrics and JSON log lines only"), Reload, "\"cache-a\"",
        "Name of this node in `larder_node_info` of the metrics and in JSON log lines. If set, also in `Cache-Status`, \
         and in `Via` and `CDN-Loop` unless `name` is set; nodes then need different names."),
    row!("drain_notice", "", Duration, "", Toml("\"0s\""), Reload, "\"5s\"",
        "Time after SIGTERM or SIGINT during which health checks fail while everything is served as before, so that \
         balancers send requests elsewhere before connections are refused. Use a little more than the time that your \
         balancer takes to notice."),
    row!("origin", "--origin", Text, "", Prose("none"), Reload, "\"http://127.0.0.1:9000\"",
        "Reverse proxy: the origin for every host that no `[[site]]` names. Schemes are `http://`, `https://`, \
         and `h2c://` for HTTP/2 without TLS. The URL may have a base path."),
    row!("preserve_host", "", Text, "", Prose("`false` for an https origin, otherwise `true`"), Reload, "true",
        "The Host (and `:authority`) sent to the origin. `true`: the host that the client requested. `false`: the \
         host in the origin's URL, which most public servers need. Or a fixed host, such as \
         `\"www.example.com\"`. Cache keys always use the host that the client requested."),
    row!("origin_http2", "", Boolean, "", Toml("true"), Reload, "false",
        "Uses HTTP/2 with TLS origins that offer it. Their interim responses (103) are lost."),
    row!("origin_ca_file", "", Text, "", Prose("none"), Reload, "\"/etc/larder/origins.pem\"",
        "A PEM file of CA certificates to trust for `https://` origins, in addition to the system's."),
    row!("offline", "--offline", Text, "off, auto, on, on-even-forbidden", Toml("\"off\""), Reload, "\"auto\"",
        "When to contact origins: `off` (always), `auto` (unless the uplink is down), `on` (never), \
         `on-even-forbidden` (never, and serve stale responses that forbid it). See \
         [Keep working offline](../how-to/offline.md)."),
    row!("parent", "--parent", Text, "", Prose("none"), Reload, "\"http://user:password@proxy.example:3128\"",
        "A proxy, or a list of proxies, through which to reach the origins of forward requests and mirrors: \
         `http://[user:password@]host[:port]`. See [Parent proxies](../configuration.md#parent-proxies)."),
    row!("no_parent", "--no-parent", List, "", Prose("none"), Reload, "[\"*.intranet.example\", \"10.0.0.0/8\"]",
        "Hosts to contact directly: names such as `*.company.example`, addresses, and networks such as \
         `10.0.0.0/8` for hosts that are given by address."),
    row!("listener.address", "", Text, "", Required, Reload, "\"10.0.0.1:8443\"",
        "Address of this listener; one table per address, as an alternative to `listen` and `listen_tls`."),
    row!("listener.tls", "", Boolean, "", Toml("false"), Reload, "true",
        "Whether clients of this listener connect with TLS."),
    row!("listener.proxy_protocol_from", "", List, "", Prose("none"), Reload, "[\"10.2.0.0/24\"]",
        "Networks of load balancers that send the client's address by the PROXY protocol, version 1 or 2. \
         Connections from these networks must begin with a PROXY header; others must not. Access rules, the log \
         and forwarded fields use the address from the header."),
    row!("listener.origin_form", "", Boolean, "", Toml("false"), Reload, "true",
        "Takes requests that name their target by Host alone as forward requests, as nginx and Envoy send them. Requires \
         forward mode. Mirrors and `/proxy.pac` are not available on this listener."),
    row!("certificate.file", "--certificate FILE,KEY", Text, "", Required, Reload, "\"/etc/larder/example.pem\"",
        "A certificate chain in PEM. Larder picks the certificate by the server name that the client sends, and \
         the first one if none matches. It reloads the files within seconds of a change; if a new file is \
         invalid, it logs an error and keeps the old one."),
    row!("certificate.key", "", Text, "", Required, Reload, "\"/etc/larder/example.key\"",
        "The private key of the chain in PEM."),
    row!("site.preserve_host", "",
        Text, "", Prose("`false` for an https origin, otherwise `true`"), Reload, "\"inner.example.com\"",
        "The Host (and `:authority`) sent to the origin. `true`: the host that the client requested. `false`: the \
         host in the origin's URL, which most public servers need. Or a fixed host, such as \
         `\"www.example.com\"`. Cache keys always use the host that the client requested."),
    row!("site.hosts", "", List, "", Prose("all"), Reload, "[\"example.com\", \"www.example.com\"]",
        "Hosts that the site matches, as clients request them, or `*.NAME` for everything below a name. Give at \
         least one of `hosts`, `paths` and `listeners`. See [Sites](../configuration.md#sites)."),
    row!("site.paths", "", List, "", Prose("all"), Reload, "[\"/pub\"]",
        "Path prefixes that the site matches, in whole segments."),
    row!("site.listeners", "", List, "", Prose("all"), Reload, "[\"127.0.0.1:3128\"]",
        "Listeners that the site matches: addresses of `listen`, `listen_tls` or `[[listener]]`."),
    row!("site.name", "", Text, "", Prose("its first host and path"), Reload, "\"downloads\"",
        "Name that `larder explain` shows."),
    row!("site.origin", "", Text, "", Prose("none"), Reload, "\"http://10.0.0.5:8080\"",
        "Reverse proxy: the origin for these requests. It receives the whole path. Not allowed together with \
         `listeners`."),
    row!("site.origins", "", Tables, "", Prose("none"), Reload, "[{ url = \"http://10.0.0.6:8080\", weight = 2 }]",
        "Several origins with the same content, each with `url` and `weight` (1 to 100, default 1). Larder \
         retries on another origin if a request failed before it was processed or is safe to repeat."),
    row!("site.balance", "",
        Text, "round_robin, consistent_hash", Toml("\"round_robin\""), Reload, "\"consistent_hash\"",
        "`round_robin`: in turn, by weight. `consistent_hash`: each request goes to the [owner](owner.md) of its key \
         after the `[[key]]` rules, so that each origin sees the same resources again."),
    row!("site.max_fails", "", Count, "1 to 65535", Toml("3"), Reload, "5",
        "Consecutive failures after which an origin is left out."),
    row!("site.fail_timeout", "", Duration, "", Toml("\"10s\""), Reload, "\"30s\"",
        "How long such an origin is left out."),
    row!("site.check_path", "", Text, "", Prose("none"), Reload, "\"/health\"",
        "A path to request periodically. An origin whose response has a status of 400 or more, or that does not \
         respond, is left out until it recovers."),
    row!("site.check_interval", "", Duration, "at least 100ms", Toml("\"10s\""), Reload, "\"7s\"",
        "Time between two such requests."),
    row!("site.parent", "", Text, "", Prose("none"), Reload, "\"http://10.0.0.9:3128\"",
        "A proxy through which to reach the site's origins. Without it they are contacted directly."),
    row!("store.path", "--disk",
        List, "", Prose("`larder/store.larder` in the user's cache directory"), Restart, "[\"/var/cache/larder\", \"/dev/sdb\"]",
        "The store: a file, an existing directory that will contain `store.larder`, a block device, or `none` for \
         memory only. Policies that keep one file per entry take a directory. A list makes a store of several \
         volumes."),
    row!("store.size", "--size",
        Size, "64MiB to 16TiB", Prose("the size of the existing store or block device; `1GB` for a new file"), Restart, "[\"100GB\", \"2TB\"]",
        "Hard limit on the size of the volume, 64 MiB to 16 TiB. One value for all disks, or a list with one for \
         each. A store keeps the size it was created with."),
    row!("store.policy", "--policy",
        Text, "", Prose("the policy of the existing store; `log` for a new one"), Restart, "\"log\"",
        "How entries are found, placed and evicted. `larder help tuning` lists the policies. `auto` takes the one \
         that [`larder plan`](../how-to/planning.md) recommends; the memory size then covers the index too. A store \
         keeps its policy."),
    row!("store.mean_object_size", "--mean-object-size",
        Size, "512B to 1MiB", Prose("`8KiB`; between 128 GiB and 256 GiB of store it rises to `16KiB`"), Restart, "\"32KiB\"",
        "Expected mean size of stored objects, 512 B to 1 MiB. For the HashCache policies and `tiny`, the index \
         has room for the store's size divided by this: smaller takes more memory, larger loses entries early if \
         the real mean is smaller (`larder_store_displaced_total` grows). The index of `log` grows with its \
         entries; there it only sets how much room a new store gets for checkpoints."),
    row!("store.io", "--io", Text, "auto, uring, threads", Toml("\"auto\""), Restart, "\"threads\"",
        "`uring`, `threads`, or `auto`: io_uring where the kernel allows it, otherwise threads."),
    row!("memory.total", "--memory", Size, "a size, or auto", Toml("\"auto\""), Reload, "\"1GB\"",
        "Memory of the whole process: program, index, entries to be written, read buffers, bodies in transfer, \
         connections and memory cache. Larder prints the parts at start and refuses a size that is too small \
         for them. While it runs, the memory cache shrinks when other parts grow beyond their share, and grows \
         again later. `auto` takes half of the free memory of the machine, or of the tightest control group (`memory.high`, \
         `memory.max`). It takes at most the store's size, or 256 MiB if that is more. It gives memory back while \
         others need it; see [Memory](../configuration.md#memory-of-the-process). A size is at most the machine's \
         memory."),
    row!("memory.cache", "--memory-cache", Size, "", Prose("the rest of `memory.total`"), Reload, "\"1GB\"",
        "Memory for whole responses in front of the store. Growing from 0 needs a restart."),
    row!("memory.windows", "",
        Size, "", Prose("an eighth of `memory.total`, at least 2 MiB"), Reload, "\"128MB\"",
        "Memory for all bodies in transfer to clients: data that fetches hold ahead of their readers, chunks \
         read from disk, and data that waits for a client's connection. More lets slow clients release origins \
         sooner. Beyond it, each body has 16 KiB. `larder_window_bytes` in `/metrics` shows the current use."),
    row!("forward.enabled", "", Boolean, "", Prose("on if there is neither an origin nor a site"), Reload, "true",
        "Accepts requests in absolute form and CONNECT, for any allowed target."),
    row!("forward.allow_targets", "--allow-target", List, "", Prose("none"), Reload, "[\"10.1.0.0/16\"]",
        "Loopback, link-local and private networks that clients may request. Configured origins need no \
         permission."),
    row!("forward.deny_targets", "", List, "", Prose("none"), Reload, "[\"10.1.9.0/24\"]",
        "Networks that are always refused."),
    row!("forward.connect_ports", "", List, "1 to 65535", Toml("[443, 8443]"), Reload, "[443]",
        "Ports to which CONNECT may open a tunnel."),
    row!("forward.block_lists", "--block-list", Text, "", Prose("none"), Reload, "\"/etc/larder/hosts\"",
        "Files that list hosts to refuse with 403, in forward requests and in tunnels, intercepted or not. See \
         [Host lists](../configuration.md#host-lists)."),
    row!("forward.allow_lists", "--allow-list",
        List, "", Prose("none"), Reload, "[\"/etc/larder/allowed\", \"/etc/larder/school\"]",
        "Files that list hosts to serve even if a block list names them."),
    row!("forward.default_deny", "", Boolean, "", Toml("false"), Reload, "true",
        "Refuses every host that no allow list names."),
    row!("forward.passwords", "--passwords", Text, "", Prose("none"), Reload, "\"/etc/larder/passwords\"",
        "A password file as `htpasswd -B` writes it (bcrypt or SHA-crypt). Forward requests and tunnels without a \
         valid user and password get 407. Larder reloads the file when it changes. A verified password stays \
         accepted for one minute."),
    row!("intercept.hosts", "--intercept HOST", List, "", Prose("none"), Reload, "[\"pypi.org\", \"*.debian.org\"]",
        "Hosts whose `https://` is decrypted and cached instead of tunnelled: a name, an address, `*.NAME` for \
         everything below a name, or a package registry such as `npm` (`larder mirror list`). Clients must trust \
         your CA; see [Cache HTTPS](../how-to/interception.md)."),
    row!("intercept.except", "", List, "", Prose("none"), Reload, "[\"private.debian.org\"]",
        "Hosts among these that are tunnelled anyway."),
    row!("intercept.ca_dir", "",
        Text, "", Prose("`larder/ca` in the user's data directory"), Reload, "\"/var/lib/larder/ca\"",
        "Directory where `larder ca init` put the CA."),
    row!("pac.hosts", "",
        List, "", Prose("those of `[intercept]`; without any, all hosts"), Reload, "[\"*.example.com\"]",
        "Hosts that the PAC script at `/proxy.pac` and `/wpad.dat` sends to this proxy. See [Browsers and \
         PAC](../configuration.md#browsers-and-pac)."),
    row!("pac.except", "", List, "", Prose("none"), Reload, "[\"intranet.example.com\"]",
        "Hosts among these that go direct."),
    row!("site.origins.url", "", Text, "", Required, Reload, "\"http://10.0.0.6:8080\"",
        "URL of one of several origins."),
    row!("site.origins.weight", "", Count, "1 to 100", Toml("1"), Reload, "2",
        "Share of the requests that this origin gets, in relation to the others."),
    row!("parents.members", "", Tables, "", Prose("none"), Reload, "[{ url = \"http://10.0.0.9:3128\", weight = 2 }]",
        "Parents with weights, each with `url` and `weight`. Either this or `parent`."),
    row!("parents.balance", "",
        Text, "round_robin, consistent_hash", Toml("\"round_robin\""), Reload, "\"consistent_hash\"",
        "`round_robin`: in turn, by weight. `consistent_hash`: each request goes to the [owner](owner.md) of its key, \
         so that each parent stores its own share."),
    row!("parents.max_fails", "", Count, "1 to 65535", Toml("3"), Reload, "5",
        "Consecutive failures after which a parent is left out."),
    row!("parents.fail_timeout", "", Duration, "", Toml("\"10s\""), Reload, "\"30s\"",
        "How long such a parent is left out."),
    row!("parents.check_path", "", Text, "", Prose("none"), Reload, "\"/-/ready\"",
        "A path to request from each parent periodically. A parent whose response has a status of 400 or more, or that \
         does not respond, is left out until it recovers."),
    row!("parents.check_interval", "", Duration, "at least 100ms", Toml("\"10s\""), Reload, "\"7s\"",
        "Time between two such requests."),
    row!("parents.direct", "", Text, "never, on-failure", Toml("\"never\""), Reload, "\"on-failure\"",
        "`on-failure`: while no parent can be reached, origins are contacted directly. A parent that responds and \
         refuses is never bypassed."),
    row!("parents.members.url", "", Text, "", Required, Reload, "\"http://10.0.0.9:3128\"",
        "URL of one of several parents."),
    row!("parents.members.weight", "", Count, "1 to 100", Toml("1"), Reload, "2",
        "Share of the requests that this parent gets, in relation to the others."),
    row!("cache.object_size_max", "", Size, "", Toml("\"4GiB\""), Reload, "\"8GB\"",
        "Longest body that is stored. Longer ones pass through."),
    row!("cache.heuristic_fraction", "", Share, "0 to 1", Toml("0.1"), Reload, "0.2",
        "A response without an explicit lifetime is fresh for this share of the time since its Last-Modified (RFC \
         9111 4.2.2). 0 turns this off."),
    row!("cache.heuristic_max", "", Duration, "", Toml("\"24h\""), Reload, "\"12h\"",
        "Longest such lifetime."),
    row!("cache.heuristic_with_cookies", "", Boolean, "", Toml("false"), Reload, "true",
        "Gives a heuristic lifetime also to responses that set a cookie, and to responses to requests with a \
         cookie that neither say `public` nor vary by `Cookie`. Off: the origin validates such a response each \
         time, and it is never served stale. On: a page made for one client that does not say so is shown to \
         others."),
    row!("cache.stale_on_error_max", "", Duration, "", Toml("\"24h\""), Reload, "\"2d\"",
        "How long past its lifetime a response may be served when the origin fails, if nothing forbids it (RFC \
         9111 4.2.4)."),
    row!("cache.negative", "", List, "400=.. to 599=..", Prose("none"), Reload, "[\"404=10s\", \"410=5m\"]",
        "Lifetimes, by status, for errors that state none, such as `[\"404=10s\"]`. Allowed where RFC 9111 4.2.2 \
         allows a heuristic: 404, 405, 410, 414, 451, 501, and any error that says `public`. Longer saves \
         requests to the origin, but hides a resource that has appeared since."),
    row!("cache.honour_request_directives", "", Boolean, "", Toml("true"), Reload, "false",
        "Obeys a client's Cache-Control and Pragma."),
    row!("cache.normalise_vary", "", Boolean, "", Toml("true"), Reload, "false",
        "Ignores, when it selects a variant, white space around commas and how a request field is split over \
         lines."),
    row!("cache.normalise_language", "", Boolean, "", Toml("false"), Reload, "true",
        "Compares `Accept-Language` without case and white space. A client that prefers one language gets a \
         stored variant in that language, even if it accepts others too. More hits, but the origin is not asked \
         even if it would choose otherwise."),
    row!("cache.store_set_cookie", "", Boolean, "", Toml("false"), Reload, "true",
        "Stores responses with `Set-Cookie` like any other. Off: only those that say `public` or give a lifetime \
         for shared caches (`s-maxage`, or `max-age` in a targeted field). On: one client's session can be given \
         to others."),
    row!("cache.targeted_fields", "",
        List, "", Toml("[\"CDN-Cache-Control\"]"), Reload, "[\"Example-Cache-Control\", \"CDN-Cache-Control\"]",
        "Response fields that replace Cache-Control and Expires; the first valid one counts (RFC 9213). `[]` for \
         none."),
    row!("cache.group_window", "", Duration, "0s to 60s", Toml("\"2s\""), Reload, "\"5s\"",
        "Requests by one client with the same Referer within this time of the page's head are stored next to the \
         page, if the policy supports it. Longer keeps slow pages together but may include the next click. At \
         most 60 s; `0s` turns this off."),
    row!("cache.compress", "", List, "zstd, br, gzip", Prose("none"), Reload, "[\"br\", \"gzip\"]",
        "Content codings to apply, best first, for clients that accept them: `\"zstd\"`, `\"br\"`, `\"gzip\"`. \
         See [Compression](../configuration.md#compression)."),
    row!("cache.compress_types", "",
        List, "", Prose("`text/*`, JSON, JavaScript, XML, XHTML, SVG, WebAssembly"), Reload, "[\"text/html\", \"image/svg+xml\"]",
        "Media types to compress, such as `text/html` or `text/*`."),
    row!("cache.compress_size_min", "", Size, "", Toml("\"1KiB\""), Reload, "\"2KiB\"",
        "Shortest body to compress, if its length is known."),
    row!("rule.name", "", Text, "", Prose("`rule 1` and so on"), Reload, "\"jars\"",
        "Name that `larder explain` shows."),
    row!("rule.hosts", "", List, "", Prose("all"), Reload, "[\"repo.example\", \"*.repo.example\"]",
        "Hosts that the rule matches. A host without a port matches every port; `*.NAME` is allowed. The first \
         matching rule applies, alone. See [Rules](../configuration.md#rules)."),
    row!("rule.paths", "", List, "", Prose("all"), Reload, "[\"/**/*.jar\"]",
        "Patterns of the whole path without query: `*` matches anything but a slash, `**` anything."),
    row!("rule.methods", "", List, "", Prose("GET and HEAD"), Reload, "[\"GET\", \"HEAD\"]",
        "Methods that the rule matches."),
    row!("rule.statuses", "", List, "", Prose("all"), Reload, "[\"200\"]",
        "Statuses that the rule matches, such as `404` or `5xx`."),
    row!("rule.types", "", List, "", Prose("all"), Reload, "[\"text/html\"]",
        "Media types that the rule matches, such as `image/*`."),
    row!("rule.fresh", "", Duration, "", Prose("as the origin says"), Reload, "\"1d\"",
        "How long the response is fresh after it was received. Overrides its lifetime and `no-cache`."),
    row!("rule.immutable", "", Boolean, "", Toml("false"), Reload, "true",
        "The response never changes: it is fresh for a year unless `fresh` says otherwise, and clients cannot \
         force a validation."),
    row!("rule.stale_while_revalidate", "", Duration, "", Prose("as the origin says"), Reload, "\"1m\"",
        "How long past its lifetime the response is served while it is validated. `must-revalidate` still \
         applies, unless `ignore` lists it."),
    row!("rule.stale_on_error", "", Duration, "", Prose("as the origin says"), Reload, "\"30d\"",
        "How long past its lifetime the response is served when the origin fails."),
    row!("rule.ignore", "", List, "", Prose("nothing"), Reload, "[\"client no-cache\", \"vary: user-agent\"]",
        "Directives to ignore; see [Rules](../configuration.md#rules)."),
    row!("rule.store", "", Boolean, "", Toml("true"), Reload, "false",
        "`false`: do not store the response."),
    row!("rule.vary", "", List, "", Prose("none"), Reload, "[\"X-Tenant\"]",
        "Request fields that the response varies on, added to its Vary."),
    row!("rule.object_size_max", "", Size, "", Prose("that of `cache.object_size_max`"), Reload, "\"1GB\"",
        "Longest body to store."),
    row!("rule.finish_abandoned", "", Boolean, "", Prose("if the body is small, or half received"), Reload, "true",
        "Completes a fetch that all its clients have abandoned."),
    row!("rule.follow_redirects", "", Boolean, "", Toml("false"), Reload, "true",
        "Follows redirects and caches the final response; see [Redirects](../configuration.md#redirects)."),
    row!("rule.follow_to_http", "", Boolean, "", Toml("false"), Reload, "true",
        "Also follows redirects from `https://` to `http://`."),
    row!("rule.authorization", "", Text, "share, check", Prose("as RFC 9111 says"), Reload, "\"check\"",
        "How to share responses to requests with credentials. `share`: with everybody, like `ignore = \
         [\"authorization\"]`. `check`: see [Credentials](../configuration.md#credentials)."),
    row!("rule.check_digest", "", Boolean, "", Toml("false"), Reload, "true",
        "Verifies the body against the digest at the end of its path (`sha256:HEX` or `SHA256/HEX`; SHA-512 too). \
         A body that does not match is not stored, and its client's response is cut off before the end."),
    row!("rule.git", "", Boolean, "", Toml("false"), Reload, "true",
        "Answers git's POST requests from the cache; see [Git](../configuration.md#git)."),
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
        "Follows redirects of that server; see [Redirects](../configuration.md#redirects)."),
    row!("mirror.documents", "", List, "", Prose("none"), Reload, "[\"text/html\"]",
        "Media types of documents in which links to the origin's URL are rewritten to the mirror."),
    row!("delay.rate", "", Rate, "at least 1KiB", Required, Reload, "\"1MB\"",
        "Bytes per second that clients receive. See [Rate limits](../configuration.md#rate-limits)."),
    row!("delay.for", "", Text, "all, each network, each client", Toml("\"all\""), Reload, "\"each client\"",
        "The clients that share the rate: `\"all\"`, `\"each network\"` of those listed, or `\"each client\"` for \
         a rate per client (for IPv6, per /64 network)."),
    row!("delay.clients", "", List, "", Prose("all"), Reload, "[\"10.0.1.0/24\"]",
        "Networks of the clients to limit."),
    row!("delay.hosts", "", List, "", Prose("all"), Reload, "[\"*.video.example\"]",
        "Hosts to limit, as clients name them, such as `*.video.example`."),
    row!("delay.burst", "", Size, "", Prose("one second's worth"), Reload, "\"20MB\"",
        "Bytes sent at full speed after a pause. More: short pages are not slowed. Less: the uplink is shared \
         more evenly."),
    row!("delay.name", "", Text, "", Prose("its position"), Reload, "\"video\"",
        "Name that `larder explain` shows."),
    row!("log.access", "--access-log", Text, "", Prose("none"), Reload, "\"/var/log/larder/access.log\"",
        "Access log file; `-` is standard output. To rotate it, move the file and send SIGUSR1."),
    row!("log.format", "--log-format",
        Text, "squid, common, combined, json, or a format", Toml("\"squid\""), Reload, "\"combined\"",
        "`squid` (native), `common`, `combined`, `json` (one object per line), or a format of your own; see \
         [Access log](../configuration.md#access-log)."),
    row!("log.queries", "", Boolean, "", Toml("false"), Reload, "true",
        "Logs the query part of URLs, which may be private. Off: a query is logged as `?`, in Referer too."),
    row!("admin.listen", "--admin", Text, "", Prose("none"), Restart, "\"127.0.0.1:3180\"",
        "Address of the admin listener. Loopback only, unless `tokens` is set."),
    row!("admin.tokens", "", Text, "", Prose("none"), Reload, "\"/etc/larder/tokens\"",
        "A file of access tokens. Every request except `/healthz` must present one. See [Remote \
         administration](../configuration.md#remote-administration)."),
    row!("admin.tls", "", Boolean, "", Toml("false"), Reload, "true",
        "Uses TLS with the certificates of `[[certificate]]`."),
    row!("request.x_forwarded", "", Boolean, "", Toml("false"), Reload, "true",
        "Sends the client's address, scheme and host to origins in X-Forwarded-For, X-Forwarded-Proto and \
         X-Forwarded-Host."),
    row!("request.forwarded", "", Boolean, "", Toml("false"), Reload, "true",
        "Sends the same in Forwarded (RFC 7239)."),
    row!("response.via", "", Boolean, "", Toml("true"), Reload, "false",
        "Adds Via (RFC 9110 7.6.3). Without it, loops are detected by CDN-Loop alone."),
    row!("response.cache_status", "", Boolean, "", Toml("true"), Reload, "false",
        "Adds [Cache-Status](cache-status.md) (RFC 9211): the proxy's `name` (default `Larder`), \
         `detail=memory` or `disk` for a hit, `stored` if the store had room."),
    row!("fleet.nodes", "", List, "", Prose("none"), Reload, "[\"a=10.0.0.1:8080\", \"b=10.0.0.2:8080\"]",
        "All nodes of a fleet, also this one, each with its name and the address where it serves clients: \
         `NAME=HOST:PORT`. This one is found by `node`. A purge on any of them takes effect on all. See \
         [Purges](../how-to/fleet.md#purge-on-all-nodes)."),
    row!("fleet.secret_file", "", Text, "", Prose("none"), Reload, "\"/etc/larder/fleet.secret\"",
        "A file with the secret by which the nodes recognize each other, at least 16 characters, readable by Larder's \
         user only. Required with `nodes`, and the same on all of them."),
    row!("fleet.node_timeout", "", Duration, "at least 1s", Toml("\"1m\""), Reload, "\"5m\"",
        "Time that another node may be silent. While one is silent for longer, stored responses are validated at the \
         origin before use, at least once per this time, because the other may have purged them. With more, a node may \
         take longer to restart; with less, purges on a node that cannot be reached take effect sooner."),
    row!("limits.header_size", "", Size, "8KiB to 1MiB", Toml("\"64KiB\""), Reload, "\"32KiB\"",
        "Longest message head, 8 KiB to 1 MiB."),
    row!("limits.header_fields", "", Count, "1 to 10000000", Toml("100"), Reload, "200",
        "Most fields in a message."),
    row!("limits.connections", "", Count, "1 to 10000000", Toml("16384"), Reload, "4096",
        "Most client connections at once. Further ones get 503 with Retry-After; on TLS listeners they are closed \
         before the handshake."),
    row!("limits.waiting", "",
        Count, "1 to 10000000", Prose("a quarter of the machine's memory at 64 KiB each, at least 1024"), Reload, "1000",
        "Most requests that may wait for a response at once. Others get 503 with Retry-After. A container's \
         memory limit counts if it is lower than the machine's. Printed at start and in `/metrics`."),
    row!("limits.streams", "", Count, "1 to 65535", Toml("128"), Reload, "64",
        "Most concurrent requests on one HTTP/2 connection."),
    row!("limits.abandoned", "", Count, "1 to 65535", Toml("500"), Reload, "100",
        "Most requests a client may cancel within ten seconds on one HTTP/2 connection. Exceeding it closes the \
         connection."),
    row!("limits.control_frames", "", Count, "1 to 65535", Toml("2000"), Reload, "1000",
        "Most frames without a request (SETTINGS, PING, PRIORITY, WINDOW_UPDATE and the like) that a client may \
         send within ten seconds on one HTTP/2 connection. Each request adds 16 and each 64 bytes received add \
         one. Exceeding it closes the connection."),
    row!("limits.idle_timeout", "", Duration, "", Toml("\"60s\""), Reload, "\"2m\"",
        "How long a client connection may be idle between requests."),
    row!("limits.header_timeout", "", Duration, "", Toml("\"30s\""), Reload, "\"10s\"",
        "How long a client may take to send a request head."),
    row!("limits.stall_timeout", "", Duration, "", Toml("\"180s\""), Reload, "\"90s\"",
        "How long a message or tunnel may make no progress. See [Slow clients](../configuration.md#slow-clients)."),
    row!("limits.body_rate", "", Rate, "", Toml("500"), Reload, "\"1KiB\"",
        "Minimum bytes per second of a request body until the origin starts to respond; slower ones get 408. \
         Higher drops clients that hold connections by sending slowly, and also clients on slow links; 0 turns it \
         off. Does not apply to tunnels, WebSocket, or requests without a body."),
    row!("limits.body_grace", "", Duration, "", Toml("\"60s\""), Reload, "\"30s\"",
        "How long, in total, a client may lag behind that rate. Sending faster earns time back, up to this limit. \
         It is therefore also the longest pause allowed."),
    row!("limits.store_timeout", "", Duration, "", Toml("\"3s\""), Reload, "\"2s\"",
        "How long the store may take to respond. Larder then uses the origin, and retries a slow store less and \
         less often, at least once a minute."),
    row!("limits.origin_connect_timeout", "", Duration, "", Toml("\"10s\""), Reload, "\"5s\"",
        "How long connecting to an origin may take."),
    row!("limits.origin_response_timeout", "", Duration, "", Toml("\"60s\""), Reload, "\"30s\"",
        "How long an origin may be silent."),
    row!("limits.origin_idle_timeout", "", Duration, "", Toml("\"60s\""), Reload, "\"45s\"",
        "How long an unused connection to an origin is kept."),
    row!("limits.origin_connections", "",
        Count, "1 to 10000000", Prose("half of the open-file limit, from 1000 to 16384, and at most `waiting`"), Reload, "500",
        "Most connections to one origin at once, not counting tunnels. See [Waiting for an \
         origin](../configuration.md#waiting-for-an-origin)."),
    row!("limits.origin_idle_connections", "", Count, "1 to 10000000", Toml("64"), Reload, "32",
        "Most unused connections kept per origin and worker."),
];
