#!/usr/bin/env bash
# Upgrades under load: while `larder bench` asks and verifies every byte, the program is replaced again and again, once by one that does not
# start. Meanwhile a download and a CONNECT tunnel that have begun go on to their ends.
#
#   tests/real/upgrade.sh                          2,000 requests a second of Zipf's law for 40 s
#   RATE=5000 TIME=20s tests/real/upgrade.sh       another load; more than the machine gives fails by itself
#   RATE=1000 TIME=420s UPGRADES=100 tests/real/upgrade.sh
#
# PAUSE is the seconds after each upgrade. Passes if no request failed, no byte was wrong, and 99.9% of the requests took less than
# 200 ms, in all of it.
. "$(dirname "$0")/stage.sh"
need python3:python3 curl:curl
rate=${RATE:-2000}
time=${TIME:-40s}
upgrades=${UPGRADES:-5}
pause=${PAUSE:-3}
export HOME=$stage XDG_RUNTIME_DIR=$stage/run
mkdir -p -m 0700 "$XDG_RUNTIME_DIR"

# A server of one long file, a little at a time, and the same bytes for a tunnel.
slow_port=$(free_port)
python3 - "$slow_port" <<'P' &
import socketserver, sys, time
class Slow(socketserver.StreamRequestHandler):
    def handle(self):
        if not self.rfile.readline():
            return # somebody looked whether we listen
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\nConnection: close\r\n\r\n")
        for part in range(300):
            self.wfile.write(bytes([part % 256]) * 1000)
            self.wfile.flush()
            time.sleep(0.1)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
Server(("127.0.0.1", int(sys.argv[1])), Slow).serve_forever()
P
pids+=("$!")
await 10 answers "$slow_port" || { echo "the slow server did not start" >&2; exit 1; }

listen=$(free_port); origin=$(free_port)
launched() { LISTEN_PORT=$listen launch larder --disk "$stage/store.larder" --size 2GiB --memory-cache 64MB --allow-target 127.0.0.0/8 --config "$stage/larder.toml"; }
cat > "$stage/larder.toml" <<T
[forward]
enabled = true
connect_ports = [$slow_port]
T
launched
program=$larder_pid

"$LARDER_BIN" bench --proxy "http://127.0.0.1:$listen" --origin-listen "127.0.0.1:$origin" --workload zipf --rate "$rate" --time "$time" \
  --json "$stage/bench.json" > "$stage/bench.log" 2>&1 &
bench=$!
pids+=("$bench")
curl -sS -x "http://127.0.0.1:$listen" -o "$stage/download" "http://127.0.0.1:$slow_port/file" &
download=$!
curl -sS -p -x "http://127.0.0.1:$listen" -o "$stage/tunneled" "http://127.0.0.1:$slow_port/file" &
tunneled=$!
sleep 5

printf '#!/bin/sh\nexit 3\n' > "$stage/broken"; chmod +x "$stage/broken"
verdict "a program that does not start is refused" eval '! "$LARDER_BIN" upgrade --program "$stage/broken" 2> "$stage/refused"'
verdict "and the proxy goes on" kill -0 "$program"
verdict "upgrade --check: it would start" "$LARDER_BIN" upgrade --check
for number in $(seq "$upgrades"); do
  verdict "upgrade $number" eval '"$LARDER_BIN" upgrade > "$stage/told"'
  echo "  $(cat "$stage/told")"
  program=$(sed -n 's/^process \([0-9]*\) .*/\1/p' "$stage/told")
  sleep "$pause"
done

wait "$bench"; code=$?
sed 's/^/  /' "$stage/bench.log" | tail -40
verdict "load: no byte was wrong (code 0)" [ "$code" -eq 0 ]
# Too high a rate fails by itself: the log says what failed.
verdict "load: no request failed" grep -q ' requests, 0 failed, 0 wrong' "$stage/bench.log"
# The line of the run ends with the median, 99%, 99.9% and the most, in ms.
slow=$(awk '$1 == "run" { print $(NF - 1) }' "$stage/bench.log")
verdict "load: 99.9% took less than 200 ms: $slow ms" awk -v "slow=$slow" 'BEGIN { exit !(slow != "" && slow + 0 < 200) }'
wait "$download"; code=$?
verdict "the download that began before goes on to its end" [ "$code $(stat -c %s "$stage/download")" = "0 300000" ]
wait "$tunneled"; code=$?
verdict "the tunnel that began before goes on to its end" [ "$code $(stat -c %s "$stage/tunneled")" = "0 300000" ]
kill -TERM "$program"
gone() { ! kill -0 "$program" 2>/dev/null || grep -q '^State:.Z' "/proc/$program/status"; }
verdict "the last one stops in order" await 20 gone
"$LARDER_BIN" store check "$stage/store.larder" > "$stage/check"
verdict "its store is sound" [ $? -eq 0 ]
summary
