//! The rows of the table of settings. Columns: name, flag, type, range, default, reload, example, meaning; then, for
//! most keys, the form of the flag and the reader.
//!
//! A key without a reader is read together with the other keys of its section, because they depend on each other.

mod responses;

use super::{
    table::{
        DefaultValue::{Prose, Required, Toml},
        Reader,
        ReloadBehavior::{Reload, Restart},
        Setting,
        ValueKind::{Boolean, Count, Duration, List, Size, Tables, Text},
        once, repeated,
    },
    values::{bytes, duration, origin, path},
};
use crate::{
    ground::{size, value},
    settings::{DiskSettings, memory_plan::TotalMemory, mirrors::InterceptedHosts, tuning},
};

macro_rules! row {
    ($name:literal, $flag:literal, $kind:expr, $range:literal, $default:expr, $reload:expr, $example:literal,
     $about:literal $(, flag $form:expr)? $(=> $into:ident |$target:ident, $value:ident| $read:expr)?) => {
        Setting {
            name: $name,
            flag: $flag,
            kind: $kind,
            range: $range,
            default: $default,
            reload: $reload,
            example: $example,
            about: $about,
            form: row!(form $($form)?),
            reader: row!(reader $($into |$target, $value| $read)?),
        }
    };
    (form) => { None };
    (form $form:expr) => { Some($form) };
    (reader) => { Reader::Section };
    (reader run |$target:ident, $value:ident| $read:expr) => {
        Reader::Run(|$target, $value| {
            $read;
            Ok(())
        })
    };
    (reader site |$target:ident, $value:ident| $read:expr) => {
        Reader::Site(|$target, $value| {
            $read;
            Ok(())
        })
    };
}
pub(super) use row;

/// Returns all keys of the configuration file except `store.tuning`, whose constants the engine lists.
pub(super) fn settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().chain(responses::SETTINGS)
}

pub(crate) const LISTENERS: &str = "Listeners and clients";
pub(crate) const STORE: &str = "Store and memory";
pub(crate) const ORIGINS: &str = "Origins and mirrors";
const FORWARD: &str = "Forward proxy";

/// The keys about clients, origins, the store and forward requests.
#[rustfmt::skip]
const SETTINGS: &[Setting] = &[
    row!("listen", "--listen", List, "", Toml("[\"127.0.0.1:3128\"]"), Reload, "[\"127.0.0.1:3128\", \"[::1]:3128\"]",
        "Addresses where clients connect. An address other than loopback requires `allow_clients`."),
    row!("listen_tls", "--listen-tls", List, "", Prose("none"), Reload, "[\"192.168.0.1:443\"]",
        "Addresses where clients connect with TLS 1.2 or 1.3. Requires a certificate. If `listen` or `listen_tls` \
         is set, the default address is not used."),
    row!("allow_clients", "--allow-client", List, "", Prose("none"), Reload, "[\"192.168.0.0/16\"]",
        "Networks whose clients may use the proxy. Programs on this machine always may. `0.0.0.0/0` and `::/0` admit \
         everybody.",
        flag repeated("NETWORK", LISTENERS, "Network that may use the proxy, in addition to this machine (repeatable)")
        => run |s, v| s.proxy.clients = v.each("a network", value::network)?),
    row!("name", "", Text, "", Prose("`larder-` and eight random digits"), Reload, "\"cache-1.example\"",
        "Name of this proxy in `Via` and `CDN-Loop`, used to detect loops. Proxies that may forward to each other \
         need different names."
        => run |s, v| s.proxy.pseudonym = Some(v.parsed("a name", value::pseudonym)?)),
    row!("workers", "--workers", Count, "1 to 1024", Prose("one per processor"), Restart, "2",
        "Number of serving threads, 1 to 1024.",
        flag once("COUNT", "", "Threads that serve requests [default: one per processor]")
        => run |s, v| s.proxy.worker_count = v.parsed("a count", value::workers)?),
    row!("drain_timeout", "--drain-timeout", Duration, "", Toml("\"10s\""), Reload, "\"20s\"",
        "Time that running exchanges have to finish after SIGTERM or SIGINT; see \
         [Signals](#signals).",
        flag once("DURATION", "", "Time for running exchanges after SIGTERM or SIGINT [default: 10s]")
        => run |s, v| s.drain = duration(v)?),
    row!("trusted_proxies", "", List, "", Prose("none"), Reload, "[\"10.2.0.0/24\"]",
        "Networks of balancers and proxies in front of Larder. These proxies name the client in the field \
         `client_field`, or in a PROXY header (version 1 or 2) at the start of a connection. Access rules, rate \
         limits, the log and forwarded fields then use the client's address. From other networks, Larder ignores the \
         field and refuses a PROXY header. See [Behind a balancer](#behind-a-balancer)."),
    row!("client_field", "", Text, "x-forwarded-for, forwarded", Toml("\"x-forwarded-for\""), Reload, "\"forwarded\"",
        "The field in which trusted proxies name the client. Choose the field that your proxies write. Most proxies \
         pass the other field on as the client sent it, so a client could forge it."),
    row!("ready_path", "", Text, "", Prose("none"), Reload, "\"/-/ready\"",
        "Path on the client port for health checks of balancers. A request for it gets 200, or 503 while the store is \
         being loaded and during `drain_notice`. This path takes precedence over every site, so clients cannot reach a \
         resource of a site at this path. Larder neither logs nor counts these health checks."),
    row!("node", "", Text, "", Prose("the host's name, in metrics and JSON log lines only"), Reload, "\"cache-a\"",
        "Name of this node in `larder_node_info` of the metrics and in JSON log lines. If you set this key, the name \
         also appears in `Cache-Status`, and in `Via` and `CDN-Loop` unless `name` is set. Nodes with this key need \
         different names."),
    row!("drain_notice", "", Duration, "", Toml("\"0s\""), Reload, "\"5s\"",
        "Time after SIGTERM or SIGINT during which health checks fail while Larder serves all requests as before. \
         Balancers thus send requests elsewhere before connections are refused. Set a little more than the time after \
         which your balancer notices that health checks fail."),
    row!("origin", "--origin", Text, "", Prose("none"), Reload, "\"http://127.0.0.1:9000\"",
        "The origin of a reverse proxy, for every host that no `[[site]]` names. Schemes are `http://`, `https://`, \
         and `h2c://` for HTTP/2 without TLS. The URL may have a base path.",
        flag once("URL", ORIGINS, "Reverse proxy: origin for every host, such as http://127.0.0.1:8080")
        => run |s, v| s.proxy.default_origin = Some(origin(v)?)),
    row!("preserve_host", "", Text, "true, false, or a host", Prose("`false` for an https origin, otherwise `true`"), Reload, "true",
        "The Host (and `:authority`) that Larder sends to the origin. `true` sends the host that the client \
         requested. `false` sends the host in the origin's URL, which most public servers need. A name such as \
         `\"www.example.com\"` sends that host. Cache keys always use the host that the client requested."),
    row!("proxy_protocol", "", Text, "v2, off", Toml("\"off\""), Reload, "\"v2\"",
        "Names the client to `origin` by a header of the PROXY protocol, version 2, at the start of each connection. \
         Each connection then serves only one request. See [Name the \
         client](../how-to/reverse-proxy.md#name-the-client-to-the-server)."),
    row!("origin_http2", "", Boolean, "", Toml("true"), Reload, "false",
        "Uses HTTP/2 for `https://` origins that offer it."
        => run |s, v| s.proxy.origin_http2 = v.boolean()?),
    row!("origin_ca_file", "", Text, "", Prose("none"), Reload, "\"/etc/larder/origins.pem\"",
        "A PEM file of CA certificates to trust for `https://` origins, in addition to the system's."
        => run |s, v| s.proxy.origin_ca_file = Some(path(v)?)),
    row!("offline", "--offline", Text, "off, auto, on, on-even-forbidden", Toml("\"off\""), Reload, "\"auto\"",
        "When to contact origins: `off` (always), `auto` (unless the uplink is down), `on` (never), \
         `on-even-forbidden` (never, and serve stale responses that forbid it). See \
         [Keep working offline](../how-to/offline.md).",
        flag once("WHEN", ORIGINS, "When to contact no origins: off, auto, on or on-even-forbidden [default: off]")
        => run |s, v| s.proxy.offline = v.parsed("an offline mode", value::offline)?),
    row!("parent", "--parent", List, "", Prose("none"), Reload, "\"http://user:password@proxy.example:3128\"",
        "A proxy, or a list of proxies, through which to reach the origins of forward requests and mirrors: \
         `http://[user:password@]host[:port]`. See [Parent proxies](#parent-proxies).",
        flag repeated("URL", ORIGINS, "Proxy that reaches origins, such as http://user:password@proxy.example:3128 (repeatable)")
        => run |s, v| s.proxy.parents.members = v.each("a URL", value::parent)?.into_iter().map(|url| (url, 1)).collect()),
    row!("no_parent", "--no-parent", List, "", Prose("none"), Reload, "[\"*.intranet.example\", \"10.0.0.0/8\"]",
        "Hosts to contact directly, without a parent: names such as `*.company.example`, addresses, and networks such \
         as `10.0.0.0/8`. A network applies only to hosts that clients give as an address.",
        flag repeated("HOST", ORIGINS, "Host to contact without the parent: a name, *.NAME or a network (repeatable)")
        => run |s, v| s.proxy.parents.except = v.each("a host or a network", value::direct)?),
    row!("listener.address", "", Text, "", Required, Reload, "\"10.0.0.1:8443\"",
        "Address of this listener. Use one `[[listener]]` table for each address, instead of `listen` and \
         `listen_tls`."),
    row!("listener.tls", "", Boolean, "", Toml("false"), Reload, "true",
        "Whether clients of this listener connect with TLS."),
    row!("listener.proxy_protocol_from", "", List, "", Prose("none"), Reload, "[\"10.2.0.0/24\"]",
        "Networks of load balancers that send the client's address by the PROXY protocol, version 1 or 2. Connections \
         from these networks must begin with a PROXY header; connections from other networks must not. Access rules, \
         the log and forwarded fields use the address from the header."),
    row!("listener.origin_form", "", Boolean, "", Toml("false"), Reload, "true",
        "Treats requests that name their target by the Host field alone as forward requests. nginx and Envoy send \
         such requests. Requires `forward.enabled`. Mirrors and `/proxy.pac` are not available on this listener."),
    row!("certificate.file", "--certificate FILE,KEY", Text, "", Required, Reload, "\"/etc/larder/example.pem\"",
        "A certificate chain in PEM. Larder picks the certificate by the server name that the client sends. If no \
         certificate matches, it picks the first one. Larder reloads the files within seconds of a change; if a new \
         file is invalid, it logs an error and keeps the old one."),
    row!("certificate.key", "", Text, "", Required, Reload, "\"/etc/larder/example.key\"",
        "The private key of the chain in PEM."),
    row!("site.preserve_host", "",
        Text, "true, false, or a host", Prose("`false` for an https origin, otherwise `true`"), Reload, "\"inner.example.com\"",
        "The Host (and `:authority`) that Larder sends to the origin. `true` sends the host that the client \
         requested. `false` sends the host in the origin's URL, which most public servers need. A name such as \
         `\"www.example.com\"` sends that host. Cache keys always use the host that the client requested."),
    row!("site.proxy_protocol", "", Text, "v2, off", Toml("\"off\""), Reload, "\"v2\"",
        "Names the client to the origins by a header of the PROXY protocol, version 2, at the start of each \
         connection. Each connection then serves only one request. Excludes `parent`. See [Name the \
         client](../how-to/reverse-proxy.md#name-the-client-to-the-server)."),
    row!("site.hosts", "", List, "", Prose("all"), Reload, "[\"example.com\", \"www.example.com\"]",
        "Hosts that the site matches, as clients request them, or `*.NAME` for everything below a name. Give at \
         least one of `hosts`, `paths` and `listeners`. See [Sites](#sites)."),
    row!("site.paths", "", List, "", Prose("all"), Reload, "[\"/pub\"]",
        "Path prefixes that the site matches, in whole segments: `/pub` matches `/pub` and `/pub/x`, but not \
         `/public`."),
    row!("site.listeners", "", List, "", Prose("all"), Reload, "[\"127.0.0.1:3128\"]",
        "Listeners whose requests the site matches: addresses of `listen`, `listen_tls` or `[[listener]]`."),
    row!("site.name", "", Text, "", Prose("its first host and path"), Reload, "\"downloads\"",
        "Name of the site in the output of `larder explain`."),
    row!("site.origin", "", Text, "", Prose("none"), Reload, "\"http://10.0.0.5:8080\"",
        "The origin of a reverse proxy, for the requests that the site matches. The origin receives the whole path. \
         Not allowed together with `listeners`."),
    row!("site.origins", "", Tables, "", Prose("none"), Reload, "[{ url = \"http://10.0.0.6:8080\", weight = 2 }]",
        "Several origins with the same content, each with `url` and `weight` (1 to 100, default 1). If a request fails \
         at one origin, Larder sends it to another, provided that the first one did not process the request, or that \
         repeating it is safe."),
    row!("site.balance", "",
        Text, "round_robin, consistent_hash", Toml("\"round_robin\""), Reload, "\"consistent_hash\"",
        "How to choose among several origins. `round_robin` takes them in turn, by weight. `consistent_hash` sends \
         each request to the [owner](owner.md) of its key after the `[[key]]` rules, so that each origin always gets \
         requests for the same resources."),
    row!("site.max_fails", "", Count, "1 to 65535", Toml("3"), Reload, "5",
        "Number of consecutive failures after which Larder stops using an origin for `site.fail_timeout`."),
    row!("site.fail_timeout", "", Duration, "", Toml("\"10s\""), Reload, "\"30s\"",
        "Time for which Larder does not use an origin after `site.max_fails` failures."),
    row!("site.check_path", "", Text, "", Prose("none"), Reload, "\"/health\"",
        "A path that Larder requests from each origin periodically. Larder stops using an origin that does not \
         respond, or responds with a status of 400 or more, until a check succeeds."),
    row!("site.check_interval", "", Duration, "at least 100ms", Toml("\"10s\""), Reload, "\"7s\"",
        "Time between two health checks of an origin."),
    row!("site.parent", "", Text, "", Prose("none"), Reload, "\"http://10.0.0.9:3128\"",
        "A proxy through which to reach the site's origins. By default Larder contacts these origins directly."),
    row!("store.path", "--disk",
        List, "", Prose("`larder/store.larder` in the user's cache directory"), Restart, "[\"/var/cache/larder\", \"/dev/sdb\"]",
        "Place of the store: a file, an existing directory that will contain `store.larder`, a block device, or \
         `none` for memory only. Policies that keep one file per entry take a directory. A list makes a store of \
         several volumes.",
        flag repeated("PATH", STORE, "Store file, directory or block device, or `none` for memory only (repeatable) [default: in your cache directory]")
        => run |s, v| s.store.disks = v.each("a path", DiskSettings::parse)?),
    row!("store.size", "--size",
        Size, "64MiB to 16TiB, or auto", Prose("the size of the existing store or block device; `1GB` for a new file, or less on a full disk"), Restart, "[\"100GB\", \"2TB\"]",
        "Hard limit on the size of a volume, 64 MiB to 16 TiB. Give one value for all disks, or a list with one for \
         each. A store keeps the size it was created with. `auto` creates a store of 10 GB. With `auto` or without a \
         size, a new store takes at most four fifths of the free space of its file system. If a size that you give \
         does not fit, Larder does not start.",
        flag repeated("SIZE", STORE, "Hard limit on the store, one for all disks or one each; auto takes up to 10GB [default: the existing size, or 1GB]")
        => run |s, v| s.store.sizes = v.each("a size, or auto", size::parse_of_store_or_auto)?),
    row!("store.policy", "--policy",
        Text, "", Prose("the policy of the existing store; `log` for a new one"), Restart, "\"log\"",
        "How entries are found, placed and evicted. `larder help tuning` lists the policies. `auto` takes the policy \
         that [`larder plan`](../how-to/planning.md) recommends; with `auto`, the memory size includes the index. A \
         store keeps the policy it was created with.",
        flag once("POLICY", STORE, "Storage policy, or auto; `larder help tuning` lists them [default: the existing one, or log]")
        => run |s, v| s.store.policy = Some(v.parsed("a policy", tuning::parse_choice)?)),
    row!("store.mean_object_size", "--mean-object-size",
        Size, "512B to 1MiB", Prose("`8KiB`; between 128 GiB and 256 GiB of store it rises to `16KiB`"), Restart, "\"32KiB\"",
        "Expected mean size of stored objects, 512 B to 1 MiB; with `tiny` from 64 B. With the HashCache policies and \
         `tiny`, the index has room for the store's size divided by this value. A smaller value takes more memory. If \
         the value is larger than the real mean, entries are lost early (`larder_store_displaced_total` grows). The \
         index of `log` grows with its entries, so with `log` the value only decides how much room a new store \
         reserves for checkpoints.",
        flag once("SIZE", STORE, "Expected mean size of stored objects [default: 8KiB; 16KiB from 256GiB of store]")
        => run |s, v| s.store.mean_object_size_bytes = Some(bytes(v)?)),
    row!("store.io", "--io", Text, "auto, uring, threads", Toml("\"auto\""), Restart, "\"threads\"",
        "How the store reads and writes: `uring`, `threads`, or `auto`, which takes io_uring where the kernel allows \
         it, and otherwise threads.",
        flag once("HOW", STORE, "I/O interface of the store: auto, uring or threads [default: auto]")
        => run |s, v| s.store.io = v.parsed("auto, uring or threads", value::io)?),
    row!("memory.total", "--memory", Size, "a size, or auto", Toml("\"auto\""), Reload, "\"1GB\"",
        "Memory of the whole process: program, index, entries to be written, read buffers, bodies in transfer, \
         connections and memory cache. Larder prints the parts at start and refuses a size that is too small for them. \
         While Larder runs, the memory cache shrinks when other parts grow beyond their share, and grows again later. \
         Connections and requests for which no memory is left get 503 with Retry-After. `auto` takes half of the free \
         memory of the machine, or of the tightest control group (`memory.high`, `memory.max`). With `auto`, Larder \
         takes at most the store's size, or 256 MiB if that is more, and gives memory back while other programs need \
         it; see [Memory](#memory-of-the-process). A size is at most the machine's memory.",
        flag once("SIZE", STORE, "Memory for the whole process, such as 256MB; auto takes half of what is free and gives it back [default: auto]")
        => run |s, v| s.memory = v.parsed("a size, or auto", TotalMemory::parse)?),
    row!("memory.cache", "--memory-cache", Size, "0, or at least 64 KiB", Prose("the rest of `memory.total`"), Reload, "\"1GB\"",
        "Memory for whole responses in front of the store. A change from 0 to a size needs a restart.",
        flag once("SIZE", STORE, "Size of the memory cache [default: the rest of --memory]")
        => run |s, v| s.memory_cache = Some(v.parsed("a size", size::parse_of_memory)?)),
    row!("memory.windows", "",
        Size, "0, or at least 64 KiB", Prose("an eighth of `memory.total`, at least 2 MiB"), Reload, "\"128MB\"",
        "Memory for all bodies in transfer to clients: data that fetches have read ahead of their clients, chunks that \
         were read from disk, and data that waits for a client's connection. With more memory, a fetch from an origin \
         ends sooner when its clients are slow. When this memory is used up, each body gets 16 KiB. \
         `larder_window_bytes` in `/metrics` shows the current use."
        => run |s, v| s.proxy.window_bytes = Some(v.parsed("a size", size::parse_of_memory)?)),
    row!("forward.enabled", "", Boolean, "", Prose("on if there is neither an origin nor a site"), Reload, "true",
        "Makes Larder a forward proxy: it accepts CONNECT and requests with a whole URL, for any allowed target."
        => run |s, v| s.forward = Some(v.boolean()?)),
    row!("forward.allow_targets", "--allow-target", List, "", Prose("none"), Reload, "[\"10.1.0.0/16\"]",
        "Loopback, link-local and private networks that clients may request. Configured origins need no \
         permission.",
        flag repeated("NETWORK", FORWARD, "Loopback, link-local or private network that clients may request (repeatable)")
        => run |s, v| s.proxy.targets.allow = v.each("a network", value::network)?),
    row!("forward.deny_targets", "", List, "", Prose("none"), Reload, "[\"10.1.9.0/24\"]",
        "Networks that clients may never request, even if another setting permits them."
        => run |s, v| s.proxy.targets.deny = v.each("a network", value::network)?),
    row!("forward.connect_ports", "", List, "1 to 65535", Toml("[443, 8443]"), Reload, "[443]",
        "Ports to which CONNECT may open a tunnel."
        => run |s, v| s.proxy.connect_ports = v.each("a port", value::port)?),
    row!("forward.block_lists", "--block-list", List, "", Prose("none"), Reload, "\"/etc/larder/hosts\"",
        "Files that list hosts to refuse with 403, in forward requests and in tunnels, intercepted or not. See \
         [Host lists](#host-lists).",
        flag repeated("FILE", FORWARD, "List of hosts to refuse: a hosts file, or one name per line (repeatable)")
        => run |s, v| s.proxy.lists.block = v.each("a path", value::path)?),
    row!("forward.allow_lists", "--allow-list",
        List, "", Prose("none"), Reload, "[\"/etc/larder/allowed\", \"/etc/larder/school\"]",
        "Files that list hosts to serve even if a file in `forward.block_lists` names them.",
        flag repeated("FILE", FORWARD, "List of hosts to serve even if a block list names them (repeatable)")
        => run |s, v| s.proxy.lists.allow = v.each("a path", value::path)?),
    row!("forward.default_deny", "", Boolean, "", Toml("false"), Reload, "true",
        "Refuses every host that no list in `forward.allow_lists` names."
        => run |s, v| s.proxy.lists.default_deny = v.boolean()?),
    row!("forward.passwords", "--passwords", Text, "", Prose("none"), Reload, "\"/etc/larder/passwords\"",
        "A password file as `htpasswd -B` writes it (bcrypt or SHA-crypt). Forward requests and tunnels without a \
         valid user and password get 407. Larder reloads the file when it changes. A verified password stays \
         accepted for one minute.",
        flag once("FILE", LISTENERS, "Require a user and password from this `htpasswd -B` file")
        => run |s, v| s.proxy.passwords = Some(path(v)?)),
    row!("intercept.hosts", "--intercept", List, "", Prose("none"), Reload, "[\"pypi.org\", \"*.debian.org\"]",
        "Hosts whose `https://` is decrypted and cached instead of tunneled: a name, an address, `*.NAME` for \
         everything below a name, or a package registry such as `npm` (`larder mirror list`). Clients must trust \
         your CA; see [Cache HTTPS](../how-to/interception.md).",
        flag repeated("HOST", FORWARD, "Host whose https:// is decrypted and cached: a name, *.NAME, all, or a registry such as npm (repeatable)")
        => run |s, v| s.intercept.set_hosts(&v.each("a host", InterceptedHosts::parse)?)),
    row!("intercept.except", "", List, "", Prose("none"), Reload, "[\"private.debian.org\"]",
        "Hosts to tunnel unread, although `intercept.hosts` matches them."
        => run |s, v| s.intercept.set_except(&v.each("a host", InterceptedHosts::parse)?)),
    row!("intercept.ca_dir", "",
        Text, "", Prose("`larder/ca` in the user's data directory"), Reload, "\"/var/lib/larder/ca\"",
        "Directory of the CA that `larder ca init` created."
        => run |s, v| s.intercept.authority = Some(path(v)?)),
    row!("pac.hosts", "",
        List, "", Prose("all hosts"), Reload, "[\"*.example.com\"]",
        "Hosts that the PAC script at `/proxy.pac` and `/wpad.dat` sends to this proxy. See [Browsers and \
         PAC](#browsers-and-pac)."
        => run |s, v| s.proxy.pac.hosts = v.each("a host", value::host_pattern)?),
    row!("pac.except", "", List, "", Prose("none"), Reload, "[\"intranet.example.com\"]",
        "Hosts that browsers contact directly, although `pac.hosts` matches them."
        => run |s, v| s.proxy.pac.except = v.each("a host", value::host_pattern)?),
    row!("site.origins.url", "", Text, "", Required, Reload, "\"http://10.0.0.6:8080\"",
        "URL of one of several origins."),
    row!("site.origins.weight", "", Count, "1 to 100", Toml("1"), Reload, "2",
        "Share of the requests that this origin gets, in relation to the others."),
    row!("parents.members", "", Tables, "", Prose("none"), Reload, "[{ url = \"http://10.0.0.9:3128\", weight = 2 }]",
        "Several parent proxies, each with `url` and `weight`. Use `members` instead of `parent`."),
    row!("parents.balance", "",
        Text, "round_robin, consistent_hash", Toml("\"round_robin\""), Reload, "\"consistent_hash\"",
        "How to choose among several parents. `round_robin` takes them in turn, by weight. `consistent_hash` sends \
         each request to the [owner](owner.md) of its key, so that each parent stores its own share."),
    row!("parents.max_fails", "", Count, "1 to 65535", Toml("3"), Reload, "5",
        "Number of consecutive failures after which Larder stops using a parent for `parents.fail_timeout`."),
    row!("parents.fail_timeout", "", Duration, "", Toml("\"10s\""), Reload, "\"30s\"",
        "Time for which Larder does not use a parent after `parents.max_fails` failures."),
    row!("parents.check_path", "", Text, "", Prose("none"), Reload, "\"/-/ready\"",
        "A path that Larder requests from each parent periodically. Larder stops using a parent that does not respond, \
         or responds with a status of 400 or more, until a check succeeds."),
    row!("parents.check_interval", "", Duration, "at least 100ms", Toml("\"10s\""), Reload, "\"7s\"",
        "Time between two health checks of a parent."),
    row!("parents.direct", "", Text, "never, on-failure", Toml("\"never\""), Reload, "\"on-failure\"",
        "With `on-failure`, Larder contacts origins directly while it cannot reach any parent. Larder never bypasses a \
         parent that responds with a refusal."),
    row!("parents.members.url", "", Text, "", Required, Reload, "\"http://10.0.0.9:3128\"",
        "URL of one of several parents."),
    row!("parents.members.weight", "", Count, "1 to 100", Toml("1"), Reload, "2",
        "Share of the requests that this parent gets, in relation to the others."),
];
