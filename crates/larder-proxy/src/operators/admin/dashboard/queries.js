"use strict";
// The last requests with their filters, and the form that explains or purges a URL.

const FIRST_SHOWN = 25;
const MORE_SHOWN = 100;
const queries = { all: [], on: true, shown: FIRST_SHOWN, isLive: true };

const OUTCOMES = {
  TCP_MEM_HIT: "from memory", TCP_HIT: "from disk", TCP_IMS_HIT: "the client's copy is current",
  TCP_STALE_HIT: "stale", TCP_REFRESH_UNMODIFIED: "validated", TCP_REFRESH_FAIL_OLD: "stale, the origin failed",
  TCP_REFRESH_MODIFIED: "replaced",
};
const RESULTS = {
  hit: "hit", miss: "miss", tunnel: "tunnel", denied: "refused", failed: "failed", open: "in progress",
  abandoned: "client left",
};

function matches(query) {
  const filter = (id) => $(id).value;
  const words = filter("f-url").trim().toLowerCase();
  return (!words || query.url.toLowerCase().includes(words))
    && (!filter("f-client") || query.client === filter("f-client"))
    && (!filter("f-result") || query.result === filter("f-result"))
    && (!filter("f-status") || String(query.status || "").startsWith(filter("f-status")))
    && (!filter("f-why") || query.why === filter("f-why"));
}

// Offers the values that occur, and keeps the chosen one.
function offer(id, values, name) {
  const select = $(id), chosen = select.value;
  if (document.activeElement === select) return;
  const all = [...new Set([...values, ...(chosen ? [chosen] : [])])].sort();
  if (select.options.length === all.length + 1 && all.every((value, at) => select.options[at + 1].value === value)) return;
  select.replaceChildren(make("option", { value: "" }, "all"), ...all.map((value) => make("option", { value }, name(value))));
  select.value = chosen;
}

function queryRow(query) {
  const kind = make("span", { class: `result ${query.result}` }, RESULTS[query.result] || query.result);
  const detail = query.why ? reason(query.why) : OUTCOMES[query.outcome];
  // The log keeps no query, and without it the URL is another one.
  const isWhole = !query.url.endsWith("?");
  const words = breakable(isWhole ? query.url : `${query.url}...`);
  const url = query.method === "CONNECT" || !isWhole ? make("span", { class: "link" }, ...words) : make("button", { type: "button", class: "link", title: "Explain this URL" }, ...words);
  if (url.localName === "button") url.addEventListener("click", () => look("explain", query.url));
  const result = make("td", { class: "q-text" }, kind);
  if (detail) result.append(make("span", { class: query.why ? "q-why" : "q-why short" }, detail));
  return make("tr", {},
    make("td", { class: "q-time" }, clockTime(query.at_ms)),
    make("td", { class: "q-url" }, make("span", { class: "verb" }, query.method), " ", url),
    result,
    make("td", { class: query.status >= 400 ? "q-status bad-status" : "q-status" }, query.status ? String(query.status) : "–"),
    make("td", { class: "q-size" }, query.status ? bytes(query.sent_bytes) : "–"),
    make("td", { class: "q-took" }, query.status ? time(query.took_ms) : "–"),
    make("td", { class: "q-client" }, query.client));
}

function showQueries() {
  $("filters").hidden = $("live").hidden = !queries.on;
  $("more").hidden = true;
  if (!queries.on) {
    text("queries-about", "");
    return put("queries", none("The query log is off. To turn it on, set recent = true in the [log] section of the configuration."));
  }
  offer("f-client", queries.all.map((query) => query.client), (value) => value);
  offer("f-result", queries.all.map((query) => query.result), (value) => RESULTS[value] || value);
  offer("f-why", queries.all.flatMap((query) => query.why || []), (value) => reason(value));
  const found = queries.all.filter(matches);
  text("queries-about", queries.all.length === 0 ? "" : found.length === queries.all.length ? plural(found.length, "request", "requests") : `${count(found.length)} of ${plural(queries.all.length, "request", "requests")}`);
  // A control that has the focus stays.
  if ($("queries").contains(document.activeElement)) return;
  if (found.length === 0) return put("queries", none(queries.all.length ? "No request matches." : "No requests yet."));
  const head = (words, kind) => make("th", { scope: "col", class: kind }, words);
  const heads = make("tr", {}, head("time", ""), head("URL", "q-url"), head("result", "q-text"), head("status", ""), head("size", ""), head("duration", ""), head("client", ""));
  put("queries", make("table", { class: "queries" }, make("thead", {}, heads), make("tbody", {}, ...found.slice(0, queries.shown).map(queryRow))));
  $("more").hidden = found.length <= queries.shown;
}

async function refreshQueries() {
  try {
    if (queries.isLive && !document.hidden) {
      const response = await fetch("/queries.json", { cache: "no-store" });
      if (!response.ok) throw new Error(`status ${response.status}`);
      const told = await response.json();
      [queries.all, queries.on] = [told.queries, told.on];
      showQueries();
    }
  } catch {
    // The head of the page says that Larder does not respond.
  }
  setTimeout(refreshQueries, REFRESH_MS);
}

// Shows the requests of one reason.
function showReason(why) {
  $("filters").reset();
  offer("f-why", [why], reason);
  $("f-why").value = why;
  showQueries();
  $("queries-card").scrollIntoView();
  $("f-why").focus({ preventScroll: true });
}

// --- one URL

function showSteps(told) {
  const steps = told.split("\n").filter((line) => line.trim()).flatMap((line) => {
    const [label, words] = [line.slice(0, 9).trim(), line.slice(9).trim()];
    return [make("dt", {}, label), make("dd", label === "outcome" ? { class: "main" } : {}, words)];
  });
  put("explained", ...steps);
  $("explained").hidden = steps.length === 0;
}

async function look(action, given) {
  if (given !== undefined) $("url").value = given;
  let url;
  try { url = new URL($("url").value.trim()); } catch { return text("done", "Enter a whole URL, such as http://example.com/style.css."); }
  url.hash = "";
  if (action === "site" && !confirm(`Remove all stored responses of ${url.host}?`)) return undefined;
  $("explained").hidden = true;
  if (action !== "explain") return operate($("look"), "done", "/purge", { method: "POST", headers: { "Operator-Url": url.href, "Purge-Scope": action } });
  const told = await operate($("look"), "done", "/explain", { method: "POST", headers: { "Operator-Url": url.href } });
  if (told === undefined) return undefined;
  text("done", "");
  showSteps(told);
  if (given !== undefined) $("look-card").scrollIntoView();
  return undefined;
}

$("look").addEventListener("submit", (event) => {
  event.preventDefault();
  look(event.submitter ? event.submitter.value : "explain");
});
$("live").addEventListener("click", () => {
  queries.isLive = !queries.isLive;
  $("live").setAttribute("aria-pressed", String(queries.isLive));
  text("live", queries.isLive ? "Live" : "Paused");
});
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("filters").addEventListener("input", () => { queries.shown = FIRST_SHOWN; showQueries(); });
$("filters").addEventListener("reset", () => setTimeout(showQueries));
$("more").addEventListener("click", () => { queries.shown += MORE_SHOWN; showQueries(); });
refreshQueries();
