#!/usr/bin/env bash
# The dashboard in headless Chromium, with real traffic: empty, filled, light and dark, 390 to 1600 pixels wide; its query log and explanations; purging and going
# offline from it; figures over kill -9; what hostile URLs make of it; /metrics by promtool; the access log by goaccess; `larder top`.
#
#   tests/real/dashboard.sh [FOLDER]      with FOLDER, screenshots are left there
#
# Needs the release build (or LARDER_BIN), and a network or a cache of npm for puppeteer-core. Prints PASS / FAIL lines, then a summary.
. "$(dirname "$0")/stage.sh"
need chromium:chromium node:nodejs npm:npm curl:curl python3:python3 promtool:prometheus goaccess:goaccess
shots=${1:-$stage/shots}
mkdir -p "$shots"
(cd "$stage" && npm install --silent --no-audit --no-fund --prefix "$stage" puppeteer-core@23 >"$stage/npm.log" 2>&1) || { cat "$stage/npm.log" >&2; exit 2; }

origin_port=$(free_port)
admin_port=$(free_port)
python3 "$here/dashboard.py" origin "$origin_port" 2>"$stage/origin.log" &
pids+=($!)
await 10 answers "$origin_port"
LISTEN_PORT=$(free_port)
start() {
  launch larder --origin "http://127.0.0.1:$origin_port" --admin "127.0.0.1:$admin_port" --disk "$stage/store.larder" --size 256MiB \
    --access-log "$stage/access.log" --log-format combined
}
traffic() { python3 "$here/dashboard.py" clients "$larder_port" "$1"; }
overview() { curl -sS "http://127.0.0.1:$admin_port/overview.json" | python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }
page() { NODE_PATH=$stage/node_modules node "$here/dashboard.mjs" "http://127.0.0.1:$admin_port/" "$shots" "$@"; }
# Each line that the page's script prints is a verdict.
verdicts() {
  while read -r word rest; do
    case $word in PASS) pass "dashboard: $rest" ;; *) fail "dashboard: $word $rest" ;; esac
  done < <(page "$@" 2>&1)
}

start
verdicts empty
traffic 1500
verdicts filled
verdicts queries
verdicts controls
traffic 300

# --- kill -9 costs 5 seconds of figures at most
traffic 200
kept() { grep -q figures "$stage/store.larder.figures" 2>/dev/null; }
await 10 kept
before=$(overview "['ever']['hits']")
await 10 eval 'python3 -c "
import json, sys
ever = json.load(open(sys.argv[1]))[\"figures\"][\"ever\"]
hits = sum(count for name, count in ever.items() if name in (\"TCP_HIT\", \"TCP_MEM_HIT\", \"TCP_IMS_HIT\"))
sys.exit(hits < int(sys.argv[2]))" "$stage/store.larder.figures" "$before"'
end KILL "$larder_pid"
start
verdict "figures: kill -9 leaves them ($before hits before)" [ "$(overview "['ever']['hits']")" -ge "$before" ]
verdict "figures: today is kept too" [ "$(overview "['today']['hits']")" -ge "$before" ]
verdicts again
end TERM "$larder_pid"
printf 'damaged' > "$stage/store.larder.figures"
start
verdict "figures: a damaged file is told" grep -q 'cannot be read; they start from zero' "$stage/larder.log"
verdict "figures: and counting begins anew" [ "$(overview "['ever']['hits']")" -eq 0 ]
traffic 400

# --- other readers
curl -sS "http://127.0.0.1:$admin_port/metrics" > "$stage/metrics"
promtool check metrics < "$stage/metrics" > "$stage/promtool.log" 2>&1
verdict "metrics: promtool finds nothing ($(wc -l < "$stage/metrics") lines)" [ $? -eq 0 -a ! -s "$stage/promtool.log" ]
verdict "metrics: no series is there twice" [ -z "$(grep -v '^#' "$stage/metrics" | sed 's/ [^ ]*$//' | sort | uniq -d)" ]
verdict "metrics: promtool reads the alerts" promtool check rules "$root/packaging/prometheus-alerts.yml" >/dev/null
"$LARDER_BIN" top --once --admin "127.0.0.1:$admin_port" > "$stage/top"
verdict "top: it prints one frame without a terminal" grep -q 'Requests per second' "$stage/top"
verdict "top: with the sites" grep -q 'www.example.com' "$stage/top"
for key in q ctrl-c; do
  verdict "top: in a terminal, $key ends it and the screen is as it was" python3 "$here/dashboard.py" terminal "$LARDER_BIN" "$admin_port" $key
done
"$LARDER_BIN" top --once --admin 127.0.0.1:1 2> "$stage/none"
verdict "top: without a Larder it says what to do" grep -q 'start the proxy' "$stage/none"
end TERM "$larder_pid"
goaccess "$stage/access.log" --log-format=COMBINED --no-global-config -o "$stage/goaccess.json" > "$stage/goaccess.log" 2>&1
lines=$(wc -l < "$stage/access.log")
read_lines() { python3 -c "import json; print(json.load(open('$stage/goaccess.json'))['general']['valid_requests'])"; }
verdict "log: goaccess reads all $lines lines of combined" [ "$(read_lines)" -eq "$lines" ]
verdict "log: queries are not in it" [ "$(grep -c 'q=larder' "$stage/access.log")" -eq 0 ]
summary
