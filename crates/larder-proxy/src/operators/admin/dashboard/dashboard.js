"use strict";
// Draws what /overview.json says. Whatever comes from outside (URLs above all) becomes text of the page and never markup of it.

const REFRESH_MS = 2000;
const $ = (id) => document.getElementById(id);
let shown = "by_minute";
let period = "by_day";
let last = null;

// An element with attributes and children; strings become text.
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "style") Object.assign(element.style, value);
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function draw(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// --- numbers for people

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function amount(value, units, step) {
  let at = 0;
  while (value >= step && at < units.length - 1) { value /= step; at += 1; }
  const digits = at === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return [value.toFixed(digits), units[at]];
}
const bytes = (value) => amount(value, ["B", "kB", "MB", "GB", "TB", "PB"], 1000).join(" ");
const count = (value) => grouped.format(value);
function time(ms) {
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
}
const rate = (value) => (value === 0 ? "0" : value < 10 ? value.toFixed(1) : count(value));
const asked = (counted) => counted.hits + counted.misses;
function share(counted) {
  const all = asked(counted);
  if (all === 0) return "–";
  const percent = (100 * counted.hits) / all;
  return `${percent.toFixed((percent >= 10 && percent < 99.5) || percent >= 99.95 || percent < 0.05 ? 0 : 1)}%`;
}
const clockTime = (ms) => new Date(ms).toLocaleTimeString("en-GB");
const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

// --- words

// Why a body came from an origin, what to do about it, and the setting that does it.
const RULE = (line) => `[[rule]]\nhosts = ["example.com"]\n${line}`;
const VALIDATED = ["A validation is short: the body comes from the cache unless it changed. To serve without asking, give a longer lifetime.", RULE('fresh = "1h"')];
const RELOADED = ["Browsers send this when a user reloads. To answer from the cache all the same, ignore it.", RULE('ignore = ["client no-cache"]')];
const FORBIDDEN = (what) => ["Correct the origin if it says so by mistake. Ignore it only for responses that are the same for everyone.", RULE(`ignore = ["${what}"]`)];
const REASONS = {
  "uri-miss": ["Not stored: requested for the first time, or evicted since", "First requests always miss. If disks evict, give more space. If URLs differ only in a tracking parameter, strip it.", '[key]\nstrip = ["utm_*"]'],
  "vary-miss": ["Only other variants were stored", "The origin varies the response by a request field. Ignore fields that do not change the body.", RULE('ignore = ["vary: user-agent"]')],
  "miss": ["The stored response could not be used", "Explain one of these URLs below to see why."],
  "request": ["The client's conditions were for the origin", "Nothing to change: the client asked whether its own copy is current."],
  "stale": ["The stored response was stale", ...VALIDATED],
  "partial": ["Only a part was stored", "The rest is fetched once. Nothing to change."],
  "bypass": ["It cannot be cached", "The request has no key, such as an unusual method or a body. Nothing to change."],
  "method": ["Its method is always forwarded (POST, PUT ...)", "Nothing to change: such requests act at the origin."],
  "expired": ["The stored response was stale, and the origin had a newer one", ...VALIDATED],
  "must-revalidate": ["The stored response was stale, and the origin requires validation", ...FORBIDDEN("must-revalidate")],
  "request-no-cache": ["The client asked for a new copy (reload)", ...RELOADED],
  "request-max-age": ["Too old for the client (max-age)", ...RELOADED],
  "request-min-fresh": ["Not fresh for long enough for the client (min-fresh)", ...VALIDATED],
  "request-pragma": ["The client asked for a new copy (reload)", ...RELOADED],
  "request-no-store": ["The client forbids storing it", "Nothing to change, unless you control the client."],
  "no-store": ["The origin forbids storing it", ...FORBIDDEN("no-store")],
  "no-cache": ["The origin requires validation each time", "A validation is short: the body comes from the cache unless it changed. If that is too often, change the origin's Cache-Control."],
  "private": ["The origin marks it as private", ...FORBIDDEN("private")],
  "set-cookie": ["It sets a cookie", ...FORBIDDEN("set-cookie")],
  "authorization": ["The request had a password or token", "Only the origin may decide who reads it. It can allow caching with Cache-Control: public."],
  "nothing-to-reuse": ["The origin gives no lifetime", "Give one, if the content may be this old.", RULE('fresh = "1h"')],
  "vary-star": ["The origin says that every response differs (Vary: *)", "Correct the origin."],
  "status": ["Responses with its status are not stored", "Errors are not stored, so that they end when the origin recovers. Nothing to change."],
  "store-behind": ["The disk could not keep up", "The disk is slower than the traffic. Add a disk, or use a faster one."],
};
const reason = (name) => (REASONS[name] || [name])[0];
const TIMES = { hit: "From the cache", miss: "From origins", origin: "Origin responses", disk: "Disk reads" };
const PARTS = {
  index: "Index", dirty: "Waiting to be written", hot: "Memory cache", windows: "Bodies in transfer",
  connections: "Connections", popular: "Request statistics", other: "Program and other",
};

// --- pieces of the page

// A URL, which breaks after its separators where a line is too short for it.
const breakable = (url) => url.split(/(?<=[^/:][/?&=])/).flatMap((part, at) => (at ? [make("wbr"), part] : [part]));
function put(id, ...children) { $(id).replaceChildren(...children); }
function text(id, value) { if ($(id).textContent !== value) $(id).textContent = value; }
const none = (words) => make("p", { class: "none" }, words);

function big(id, parts) {
  const [value, unit] = parts;
  put(id, value, make("small", {}, unit));
}

function bar(words, value, part, kind, tick, below) {
  const track = make("div", { class: "track" }, make("div", { class: `fill ${kind}`, style: { width: `${part > 0 ? Math.max(part * 100, 0.7) : 0}%` } }));
  if (tick !== undefined) track.append(make("div", { class: "tick", style: { left: `calc(${tick * 100}% - 1px)` } }));
  const whole = make("div", {}, make("div", { class: "line" }, make("span", {}, words), make("span", {}, value)), track);
  if (below) whole.append(make("p", { class: "quiet" }, below));
  return whole;
}

function heroes(now) {
  for (const span of ["minute", "today", "ever"]) {
    if (span === "today") {
      const value = share(now.today);
      if (value === "–") put("ratio-today", value); else big("ratio-today", [value.slice(0, -1), "%"]);
      big("saved-today", amount(now.today.saved_bytes, ["B", "kB", "MB", "GB", "TB", "PB"], 1000));
    } else {
      text(`ratio-${span}`, share(now[span]));
      text(`saved-${span}`, bytes(now[span].saved_bytes));
    }
  }
  text("ratio-today-of", `today, ${count(now.today.hits)} of ${plural(asked(now.today), "request", "requests")}`);
  text("saved-today-of", `today, of ${bytes(now.today.client_bytes)} sent to clients`);
  const since = new Date(now.since_s * 1000).toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" });
  for (const label of ["ratio-ever-label", "saved-ever-label"]) text(label, `since ${since}`);
  // The second that is being counted is not over.
  const seconds = now.by_second.slice(0, -1).map((second) => asked(second) + second.others);
  const recent = seconds.slice(-5);
  text("rate", rate(recent.reduce((sum, each) => sum + each, 0) / Math.max(recent.length, 1)));
  text("rate-about", `${plural(now.metrics.larder_connections_open, "connection", "connections")} open, ${plural(now.metrics.larder_waiting_requests, "request", "requests")} waiting`);
  sparkline(seconds);
}

function sparkline(values) {
  const [wide, high, most] = [300, 44, Math.max(...values, 1)];
  const points = values.map((value, at) => `${((at / (values.length - 1)) * wide).toFixed(1)},${(high - 2 - (value / most) * (high - 4)).toFixed(1)}`);
  put("spark", draw("svg", { viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", role: "img", "aria-label": `requests in each second of the last minute, ${rate(most)} at most` },
    draw("polygon", { class: "s-area", points: `0,${high} ${points.join(" ")} ${wide},${high}` }),
    draw("polyline", { class: "s-hit", points: points.join(" ") })));
}

const SPANS = {
  by_second: { each: "second", ago: ["1 minute ago", "30 seconds ago", "now"] },
  by_minute: { each: "minute", ago: ["1 hour ago", "30 minutes ago", "now"] },
  by_quarter: { each: "quarter of an hour", ago: ["1 day ago", "12 hours ago", "now"] },
};

// The least of 1, 2, 4, 6, 8, 10, 20, 40 ... that is not below a value. All but 1 have a whole half.
function above(value) {
  for (let step = 1; ; step *= 10) for (const of of [1, 2, 4, 6, 8]) if (of * step >= value) return of * step;
}

function traffic(now) {
  const points = now[shown], span = SPANS[shown];
  const box = $("traffic").getBoundingClientRect();
  const [wide, high, left, bottom] = [Math.max(box.width, 260), Math.max(box.height, 120), 40, 22];
  const top = above(Math.max(...points.map((point) => asked(point) + point.others), 1));
  const [room, step] = [high - bottom - 8, (wide - left) / points.length];
  const y = (value) => 8 + room - (value / top) * room;
  const total = points.reduce((sum, point) => sum + asked(point) + point.others, 0);
  const svg = draw("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `requests in each ${span.each}: ${count(total)} in total, ${count(points.reduce((sum, point) => sum + point.hits, 0))} from the cache` });
  for (const value of top > 1 ? [0, top / 2, top] : [0, top]) {
    svg.append(draw("line", { class: "axis", x1: left, x2: wide, y1: y(value), y2: y(value) }));
    svg.append(draw("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, value >= 1e5 ? amount(value, ["", " k", " M", " G"], 1000).join("") : count(value)));
  }
  points.forEach((point, at) => {
    let from = 0;
    for (const kind of ["hits", "misses", "others"]) {
      if (point[kind] === 0) continue;
      const [upper, lower] = [y(from + point[kind]), y(from)];
      from += point[kind];
      svg.append(draw("rect", { class: { hits: "f-hit", misses: "f-miss", others: "f-other" }[kind], x: left + at * step + step * 0.1, y: upper, width: step * 0.8, height: Math.max(lower - upper, 1) }));
    }
    const words = `${plural(point.hits, "response", "responses")} from the cache, ${count(point.misses)} from origins${point.others ? `, ${count(point.others)} others` : ""}; ${bytes(point.client_bytes)}`;
    svg.append(draw("rect", { x: left + at * step, y: 8, width: step, height: room, fill: "transparent" }, draw("title", {}, words)));
  });
  [[left, "start"], [(left + wide) / 2, "middle"], [wide, "end"]].forEach(([x, anchor], at) => svg.append(draw("text", { x, y: high - 4, "text-anchor": anchor }, span.ago[at])));
  put("traffic", svg);
}

// The place of a time on a logarithmic scale from 50 microseconds to 60 seconds.
const far = (ms) => Math.min(Math.max(Math.log10(Math.max(ms, 0.05) / 0.05) / Math.log10(60000 / 0.05), 0.001), 1);

function times(now) {
  const rows = now.latencies.filter((each) => each.count > 0).map((each) =>
    bar(TIMES[each.name] || each.name, time(each.half_ms), far(each.half_ms), each.name === "hit" || each.name === "disk" ? "hit" : "miss", far(each.p99_ms), `99th percentile: ${time(each.p99_ms)}`));
  $("times-about").hidden = rows.length === 0;
  put("times", rows.length ? make("div", { class: "bars" }, ...rows) : none("No responses in the last minute."));
}

function why(now) {
  const all = now.misses_today.reduce((sum, each) => sum + each.count, 0);
  const open = new Set([...document.querySelectorAll("#why details[open]")].map((each) => each.dataset.why));
  if ($("why").contains(document.activeElement)) return;
  const rows = now.misses_today.slice(0, 7).map((each) => {
    const [is, remedy, setting] = REASONS[each.name] || [each.name];
    const list = make("button", { type: "button", class: "quiet-button" }, "Show these requests");
    list.addEventListener("click", () => showReason(each.name));
    const below = make("div", { class: "remedy" }, remedy || "", ...(setting ? [make("code", {}, setting)] : [make("br")]), list);
    const line = bar(is, count(each.count), each.count / all, "miss");
    line.querySelector("span").className = "opens";
    const details = make("details", { "data-why": each.name }, make("summary", {}, line), below);
    details.open = open.has(each.name);
    return details;
  });
  $("why-about").hidden = rows.length === 0;
  put("why", rows.length ? make("div", { class: "bars" }, ...rows) : none("No origin was contacted today."));
}

// The days or months up to the latest, with those that had no requests.
function periods(list) {
  if (list.length === 0) return [];
  const known = new Map(list.map((each) => [each.period, each]));
  const isDay = period === "by_day";
  const [year, month, day] = list[0].period.split("-").map(Number);
  return Array.from({ length: isDay ? 31 : 13 }, (_, ago) => {
    const date = new Date(Date.UTC(year, month - 1 - (isDay ? 0 : ago), isDay ? day - ago : 1));
    const name = date.toISOString().slice(0, isDay ? 10 : 7);
    return { name, date, ...(known.get(name) || { saved_bytes: 0, origin_bytes: 0 }) };
  }).reverse();
}

function savings(now) {
  const list = periods(now[period]);
  if (list.length === 0) {
    text("savings-about", "");
    return put("savings", none("Nothing has been counted yet."));
  }
  const named = (date) => date.toLocaleDateString("en", { timeZone: "UTC", month: "short", ...(period === "by_day" ? { day: "numeric" } : { year: "numeric" }) });
  const [wide, high, bottom] = [Math.max($("savings").getBoundingClientRect().width, 240), 150, 20];
  const top = Math.max(...list.map((each) => each.saved_bytes + each.origin_bytes), 1);
  const [room, step] = [high - bottom - 14, wide / list.length];
  const sum = list.reduce((total, each) => total + each.saved_bytes, 0);
  text("savings-about", `${bytes(sum)} in the last ${list.length} ${period === "by_day" ? "days" : "months"}`);
  const svg = draw("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `bytes saved by ${period === "by_day" ? "day" : "month"}: ${list.filter((each) => each.saved_bytes > 0).slice(-5).map((each) => `${named(each.date)} ${bytes(each.saved_bytes)}`).join(", ") || "none"}` });
  svg.append(draw("line", { class: "axis", x1: 0, x2: wide, y1: high - bottom, y2: high - bottom }));
  svg.append(draw("line", { class: "axis", x1: 0, x2: wide, y1: 14, y2: 14 }));
  svg.append(draw("text", { x: 0, y: 10 }, bytes(top)));
  list.forEach((each, at) => {
    let base = high - bottom;
    for (const [value, kind] of [[each.saved_bytes, "f-hit"], [each.origin_bytes, "f-miss"]]) {
      if (value === 0) continue;
      const height = Math.max((value / top) * room, 1);
      base -= height;
      svg.append(draw("rect", { class: kind, x: at * step + step * 0.12, y: base, width: step * 0.76, height }));
    }
    svg.append(draw("rect", { x: at * step, y: 14, width: step, height: room, fill: "transparent" }, draw("title", {}, `${named(each.date)}: ${bytes(each.saved_bytes)} saved, ${bytes(each.origin_bytes)} from origins`)));
  });
  const last = list.length - 1;
  [[0, "start", 0], [wide / 2, "middle", Math.floor(last / 2)], [wide, "end", last]].forEach(([x, anchor, at]) => svg.append(draw("text", { x, y: high - 4, "text-anchor": anchor }, named(list[at].date))));
  put("savings", svg);
}

function registries(now) {
  if (now.registries.length === 0) return put("registries", none("No package registry is mirrored. Start Larder with --mirror pypi,npm to serve packages to your network."));
  table("registries", now.registries, "since Larder started");
}

function table(id, list, first) {
  if (list.length === 0) return put(id, none("No requests in the last half hour."));
  const head = make("tr", {}, make("th", { scope: "col" }, first), make("th", { scope: "col" }, "requests"), make("th", { scope: "col" }, "from cache"), make("th", { scope: "col", class: "wide" }, "saved"));
  const rows = list.slice(0, 8).map((each) => make("tr", {}, make("td", {}, ...breakable(each.name)), make("td", {}, count(asked(each) + each.others)),
    make("td", {}, asked(each) || each.others === 0 ? share(each) : each.failed === 0 ? "tunnel" : each.failed === each.others ? "failed" : "tunnel, some failed"), make("td", { class: "wide" }, bytes(each.saved_bytes))));
  put(id, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

function health(volume) {
  if (volume.out) return ["bad", "failed, left out", "Larder serves without it. Check the disk and its cable, then restart Larder."];
  if (!volume.loaded) return ["warn", "loading", "Entries that are not loaded yet are misses."];
  if (volume.io_errors > 0) return ["warn", plural(volume.io_errors, "failed read or write", "failed reads and writes"), "Check the disk, for example with smartctl. Larder's log names each error."];
  if (volume.corrupt > 0) return ["warn", plural(volume.corrupt, "corrupt entry", "corrupt entries"), "They were served as misses. Check the disk, for example with smartctl."];
  return ["good", "healthy", ""];
}

function disks(now) {
  const rows = now.volumes.map((volume) => {
    const [kind, words, remedy] = health(volume);
    const head = make("div", { class: "line" }, make("code", {}, volume.path), make("span", { class: `badge ${kind}` }, words));
    const room = bar(`${count(volume.entries)} of about ${plural(volume.entries_room, "entry", "entries")}`, bytes(volume.size_bytes), volume.entries / Math.max(volume.entries_room, 1), "hit");
    const about = make("p", { class: "quiet" }, `${count(volume.evicted)} evicted since the start. Policy: ${volume.policy}.`);
    return make("div", { class: "disk" }, head, ...(remedy ? [make("p", { class: "quiet" }, remedy)] : []), make("div", { class: "bars" }, room), about);
  });
  put("disks", ...(rows.length ? rows : [none("None: the cache is in memory only, and is lost when Larder stops.")]));
}

function memoryParts(now) {
  const all = now.memory.reduce((sum, part) => sum + part.count, 0) || 1;
  const color = (at) => ({ background: `var(--p${(at % 7) + 1})` });
  const stack = make("div", { class: "stack", role: "img", "aria-label": `memory, ${bytes(all)} in total` }, ...now.memory.map((part, at) => make("div", { style: { ...color(at), width: `${(100 * part.count) / all}%` } })));
  const parts = now.memory.map((part, at) => make("li", {}, make("span", { class: "key", style: color(at) }), PARTS[part.name] || part.name, make("b", {}, bytes(part.count))));
  put("memory", make("p", { class: "quiet" }, `${bytes(all)} in total, ${plural(now.metrics.larder_memory_cache_entries, "entry", "entries")} in the memory cache`), stack, make("ul", { class: "parts" }, ...parts));
}

function origins(now) {
  const ends = now.certificates.map((each) => {
    const days = Math.floor((each.expires_s - now.now_s) / 86400);
    return make("tr", {}, make("td", {}, each.name), make("td", {}, make("span", { class: `badge ${days < 14 ? "bad" : "good"}` }, days < 0 ? "certificate has expired" : `certificate expires in ${plural(days, "day", "days")}`)));
  });
  const rows = now.origins.map((each) => make("tr", {}, make("td", {}, each.name), make("td", {}, make("span", { class: `badge ${each.up ? "good" : "bad"}` }, each.up ? "up" : "left out after failures"))));
  $("origins-card").hidden = rows.length + ends.length === 0;
  put("origins", make("table", {}, make("tbody", {}, ...rows, ...ends)));
}

function state(now) {
  const out = now.volumes.filter((volume) => volume.out).length;
  let [kind, words] = ["good", "working"];
  if (out) [kind, words] = ["bad", `${plural(out, "disk", "disks")} failed`];
  else if (now.line.offline) [kind, words] = ["warn", "offline: no origin is contacted"];
  else if (now.volumes.some((volume) => !volume.loaded)) [kind, words] = ["warn", "loading the index"];
  else if (now.origins.some((origin) => !origin.up)) [kind, words] = ["warn", "a failed origin is left out"];
  $("state").className = `badge ${kind}`;
  text("state", words);
  const missing = now.line.missing ? `; ${plural(now.line.missing, "URL", "URLs")} requested while offline and missing` : "";
  text("about", `version ${now.version}, updated ${clockTime(now.now_s * 1000)}${missing}`);
  const mode = $("mode");
  if (document.activeElement !== mode && !mode.dataset.touched) mode.value = now.line.mode;
}

function show(now) {
  // A Larder that has just begun shows its last minute.
  if (!last && now.by_minute.filter((minute) => asked(minute) + minute.others > 0).length < 3) choose("by_second");
  last = now;
  const isEmpty = asked(now.ever) + now.ever.others === 0;
  $("empty").hidden = !isEmpty;
  text("try", now.try_with);
  for (const part of [state, heroes, traffic, times, why, savings, registries, disks, memoryParts, origins]) part(now);
  table("sites", now.sites, "site");
  table("objects", now.objects, "URL");
}

function choose(span) {
  shown = span;
  document.querySelectorAll("[data-span]").forEach((each) => each.setAttribute("aria-pressed", String(each.dataset.span === span)));
}

// --- asking

async function refresh() {
  try {
    const response = await fetch("/overview.json", { cache: "no-store" });
    if (!response.ok) throw new Error(`status ${response.status}`);
    show(await response.json());
    $("lost").hidden = true;
  } catch (error) {
    $("lost").hidden = false;
    text("lost", `Larder does not respond (${error.message}). These statistics are old; the page retries.`);
    $("state").className = "badge bad";
    text("state", "no response");
  }
  setTimeout(refresh, document.hidden ? 5 * REFRESH_MS : REFRESH_MS);
}

// Sends a command. Returns its words if it succeeds; they or the failure are shown in `place`.
async function operate(form, place, path, options) {
  const buttons = form.querySelectorAll("button");
  let done;
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const response = await fetch(path, { ...options, headers: { "Larder-Operator": "dashboard", ...options.headers } });
    const words = (await response.text()).trim();
    text(place, response.ok ? words : `Failed: ${words}`);
    if (response.ok) done = words;
  } catch (error) {
    text(place, `Failed: ${error.message}`);
  }
  buttons.forEach((button) => { button.disabled = false; });
  return done;
}

$("offline").addEventListener("submit", (event) => {
  event.preventDefault();
  delete $("mode").dataset.touched;
  operate(event.target, "mode-done", `/${encodeURIComponent($("mode").value)}`, { method: "OFFLINE" });
});
$("mode").addEventListener("change", () => { $("mode").dataset.touched = "1"; });
for (const button of document.querySelectorAll("[data-span]")) {
  button.addEventListener("click", () => {
    choose(button.dataset.span);
    if (last) traffic(last);
  });
}
for (const button of document.querySelectorAll("[data-period]")) {
  button.addEventListener("click", () => {
    period = button.dataset.period;
    document.querySelectorAll("[data-period]").forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
    if (last) savings(last);
  });
}
addEventListener("resize", () => { if (last) { traffic(last); savings(last); } });
refresh();
