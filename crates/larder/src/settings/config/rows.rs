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
        "Networks that may use the proxy. This machine always may. `0.0.0.0/0` and `::/0` admit everybody.",
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
        "Networks of balancers and proxies in front whose statements about their client are believed: the field \
         `client_field`, and a PROXY header (version 1 or 2) at the start of a connection. Access rules, rate limits, the \
         log and forwarded fields then use that client. From elsewhere the field is ignored and a PROXY header is refused. \
         See [Behind a balancer](#behind-a-balancer)."),
    row!("client_field", "", Text, "x-forwarded-for, forwarded", Toml("\"x-forwarded-for\""), Reload, "\"forwarded\"",
        "The field in which trusted proxies name the client. Choose the one that yours write: most pass on the other \
         one as the client sent it."),
    row!("ready_path", "", Text, "", Prose("none"), Reload, "\"/-/ready\"",
        "Path on the client port for health checks of balancers: 200, or 503 while the store is being loaded and during \
         `drain_notice`. It takes precedence over every site, whose own resource at this path is then not reachable. \
         Such requests are neither logged nor counted."),
    row!("node", "", Text, "", Prose("the host's name, in metrics and JSON log lines only"), Reload, "\"cache-a\"",
        "Name of this node in `larder_node_info` of the metrics and in JSON log lines. If set, also in `Cache-Status`, \
         and in `Via` and `CDN-Loop` unless `name` is set; nodes then need different names."),
    row!("drain_notice", "", Duration, "", Toml("\"0s\""), Reload, "\"5s\"",
        "Time after SIGTERM or SIGINT during which health checks fail while everything is served as before, so that \
         balancers send requests elsewhere before connections are refused. Use a little more than the time that your \
         balancer takes to notice."),
    row!("origin", "--origin", Text, "", Prose("none"), Reload, "\"http://127.0.0.1:9000\"",
        "Reverse proxy: the origin for every host that no `[[site]]` names. Schemes are `http://`, `https://`, \
         and `h2c://` for HTTP/2 without TLS. The URL may have a base path.",
        flag once("URL", ORIGINS, "Reverse proxy: origin for every host, such as http://127.0.0.1:8080")
        => run |s, v| s.proxy.default_origin = Some(origin(v)?)),
    row!("preserve_host", "", Text, "true, false, or a host", Prose("`false` for an https origin, otherwise `true`"), Reload, "true",
        "The Host (and `:authority`) sent to the origin. `true`: the host that the client requested. `false`: the \
         host in the origin's URL, which most public servers need. Or a fixed host, such as \
         `\"www.example.com\"`. Cache keys always use the host that the client requested."),
    row!("proxy_protocol", "", Text, "v2, off", Toml("\"off\""), Reload, "\"v2\"",
        "Names the client to `origin` by a header of the PROXY protocol, version 2, at the start of each connection. \
         Each connection then serves one request. See \
         [Name the client](../how-to/reverse-proxy.md#name-the-client-to-the-server)."),
    row!("origin_http2", "", Boolean, "", Toml("true"), Reload, "false",
        "Uses HTTP/2 with TLS origins that offer it."
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
        "Hosts to contact directly: names such as `*.company.example`, addresses, and networks such as \
         `10.0.0.0/8` for hosts that are given by address.",
        flag repeated("HOST", ORIGINS, "Host to contact without the parent: a name, *.NAME or a network (repeatable)")
        => run |s, v| s.proxy.parents.except = v.each("a host or a network", value::direct)?),
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
        Text, "true, false, or a host", Prose("`false` for an https origin, otherwise `true`"), Reload, "\"inner.example.com\"",
        "The Host (and `:authority`) sent to the origin. `true`: the host that the client requested. `false`: the \
         host in the origin's URL, which most public servers need. Or a fixed host, such as \
         `\"www.example.com\"`. Cache keys always use the host that the client requested."),
    row!("site.proxy_protocol", "", Text, "v2, off", Toml("\"off\""), Reload, "\"v2\"",
        "Names the client to the origins by a header of the PROXY protocol, version 2, at the start of each \
         connection. Each connection then serves one request. Excludes `parent`. See \
         [Name the client](../how-to/reverse-proxy.md#name-the-client-to-the-server)."),
    row!("site.hosts", "", List, "", Prose("all"), Reload, "[\"example.com\", \"www.example.com\"]",
        "Hosts that the site matches, as clients request them, or `*.NAME` for everything below a name. Give at \
         least one of `hosts`, `paths` and `listeners`. See [Sites](#sites)."),
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
         volumes.",
        flag repeated("PATH", STORE, "Store file, directory or block device, or `none` for memory only (repeatable) [default: in your cache directory]")
        => run |s, v| s.store.disks = v.each("a path", DiskSettings::parse)?),
    row!("store.size", "--size",
        Size, "64MiB to 16TiB, or auto", Prose("the size of the existing store or block device; `1GB` for a new file, or less on a full disk"), Restart, "[\"100GB\", \"2TB\"]",
        "Hard limit on the size of the volume, 64 MiB to 16 TiB. One value for all disks, or a list with one for \
         each. A store keeps the size it was created with. `auto` makes a new store of 10 GB. With `auto` and without \
         a size, a new file takes at most four fifths of the free space of its file system. If a given size does not \
         fit, Larder does not start.",
        flag repeated("SIZE", STORE, "Hard limit on the store, one for all disks or one each; auto takes up to 10GB [default: the existing size, or 1GB]")
        => run |s, v| s.store.sizes = v.each("a size, or auto", size::parse_of_store_or_auto)?),
    row!("store.policy", "--policy",
        Text, "", Prose("the policy of the existing store; `log` for a new one"), Restart, "\"log\"",
        "How entries are found, placed and evicted. `larder help tuning` lists the policies. `auto` takes the one \
         that [`larder plan`](../how-to/planning.md) recommends; the memory size then covers the index too. A store \
         keeps its policy.",
        flag once("POLICY", STORE, "Storage policy, or auto; `larder help tuning` lists them [default: the existing one, or log]")
        => run |s, v| s.store.policy = Some(v.parsed("a policy", tuning::parse_choice)?)),
    row!("store.mean_object_size", "--mean-object-size",
        Size, "512B to 1MiB", Prose("`8KiB`; between 128 GiB and 256 GiB of store it rises to `16KiB`"), Restart, "\"32KiB\"",
        "Expected mean size of stored objects, 512 B to 1 MiB; with `tiny` from 64 B. For the HashCache policies and \
         `tiny`, the index has room for the store's size divided by this: smaller takes more memory, larger loses \
         entries early if the real mean is smaller (`larder_store_displaced_total` grows). The index of `log` grows \
         with its entries; there it only sets how much room a new store gets for checkpoints.",
        flag once("SIZE", STORE, "Expected mean size of stored objects [default: 8KiB; 16KiB from 256GiB of store]")
        => run |s, v| s.store.mean_object_size_bytes = Some(bytes(v)?)),
    row!("store.io", "--io", Text, "auto, uring, threads", Toml("\"auto\""), Restart, "\"threads\"",
        "`uring`, `threads`, or `auto`: io_uring where the kernel allows it, otherwise threads.",
        flag once("HOW", STORE, "I/O interface of the store: auto, uring or threads [default: auto]")
        => run |s, v| s.store.io = v.parsed("auto, uring or threads", value::io)?),
    row!("memory.total", "--memory", Size, "a size, or auto", Toml("\"auto\""), Reload, "\"1GB\"",
        "Memory of the whole process: program, index, entries to be written, read buffers, bodies in transfer, \
         connections and memory cache. Larder prints the parts at start and refuses a size that is too small \
         for them. While it runs, the memory cache shrinks when other parts grow beyond their share, and grows \
         again later. Connections and requests for which no memory is left get 503 with Retry-After. `auto` takes half of the free memory of the machine, or of the tightest control group (`memory.high`, \
         `memory.max`). It takes at most the store's size, or 256 MiB if that is more. It gives memory back while \
         others need it; see [Memory](#memory-of-the-process). A size is at most the machine's \
         memory.",
        flag once("SIZE", STORE, "Memory for the whole process, such as 256MB; auto takes half of what is free and gives it back [default: auto]")
        => run |s, v| s.memory = v.parsed("a size, or auto", TotalMemory::parse)?),
    row!("memory.cache", "--memory-cache", Size, "0, or at least 64 KiB", Prose("the rest of `memory.total`"), Reload, "\"1GB\"",
        "Memory for whole responses in front of the store. Growing from 0 needs a restart.",
        flag once("SIZE", STORE, "Size of the memory cache [default: the rest of --memory]")
        => run |s, v| s.memory_cache = Some(v.parsed("a size", size::parse_of_memory)?)),
    row!("memory.windows", "",
        Size, "0, or at least 64 KiB", Prose("an eighth of `memory.total`, at least 2 MiB"), Reload, "\"128MB\"",
        "Memory for all bodies in transfer to clients: data that fetches hold ahead of their readers, chunks \
         read from disk, and data that waits for a client's connection. More lets slow clients release origins \
         sooner. Beyond it, each body has 16 KiB. `larder_window_bytes` in `/metrics` shows the current use."
        => run |s, v| s.proxy.window_bytes = Some(v.parsed("a size", size::parse_of_memory)?)),
    row!("forward.enabled", "", Boolean, "", Prose("on if there is neither an origin nor a site"), Reload, "true",
        "Accepts requests in absolute form and CONNECT, for any allowed target."
        => run |s, v| s.forward = Some(v.boolean()?)),
    row!("forward.allow_targets", "--allow-target", List, "", Prose("none"), Reload, "[\"10.1.0.0/16\"]",
        "Loopback, link-local and private networks that clients may request. Configured origins need no \
         permission.",
        flag repeated("NETWORK", FORWARD, "Loopback, link-local or private network that clients may request (repeatable)")
        => run |s, v| s.proxy.targets.allow = v.each("a network", value::network)?),
    row!("forward.deny_targets", "", List, "", Prose("none"), Reload, "[\"10.1.9.0/24\"]",
        "Networks that are always refused."
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
        "Files that list hosts to serve even if a block list names them.",
        flag repeated("FILE", FORWARD, "List of hosts to serve even if a block list names them (repeatable)")
        => run |s, v| s.proxy.lists.allow = v.each("a path", value::path)?),
    row!("forward.default_deny", "", Boolean, "", Toml("false"), Reload, "true",
        "Refuses every host that no allow list names."
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
        "Hosts among these that are tunneled anyway."
        => run |s, v| s.intercept.set_except(&v.each("a host", InterceptedHosts::parse)?)),
    row!("intercept.ca_dir", "",
        Text, "", Prose("`larder/ca` in the user's data directory"), Reload, "\"/var/lib/larder/ca\"",
        "Directory where `larder ca init` put the CA."
        => run |s, v| s.intercept.authority = Some(path(v)?)),
    row!("pac.hosts", "",
        List, "", Prose("all hosts"), Reload, "[\"*.example.com\"]",
        "Hosts that the PAC script at `/proxy.pac` and `/wpad.dat` sends to this proxy. See [Browsers and \
         PAC](#browsers-and-pac)."
        => run |s, v| s.proxy.pac.hosts = v.each("a host", value::host_pattern)?),
    row!("pac.except", "", List, "", Prose("none"), Reload, "[\"intranet.example.com\"]",
        "Hosts among these that go direct."
        => run |s, v| s.proxy.pac.except = v.each("a host", value::host_pattern)?),
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
];
