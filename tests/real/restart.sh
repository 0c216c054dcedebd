#!/usr/bin/env bash
# What a restart costs: a clean stop and start, and kill -9 under load and start. Afterwards 10,000 sampled bodies are
# compared byte by byte with what the origin would say, and the share of hits and the time to the first hit are printed.
#
#   tests/real/restart.sh                     20,000 entries
#   ENTRIES=200000 tests/real/restart.sh      more
#
# The time to the first hit is from before the program is started to the end of the first answer from the cache.
#
# Passes if no byte is wrong and at least 99% of what was complete a second before the end is a hit.
. "$(dirname "$0")/stage.sh"
need python3:python3
entries=${ENTRIES:-20000}
sample=10000

tool() { python3 "$here/synthetic.py" "$@"; }

origin_port=$(free_port)
python3 "$here/synthetic.py" serve --port "$origin_port" &
pids+=("$!")
await 10 answers "$origin_port" || { echo "the origin did not start" >&2; exit 1; }
flags=(--disk "$stage/store.larder" --size 1GiB --mean-object-size 4KiB --memory-cache 8MB --origin "http://127.0.0.1:$origin_port")

LISTEN_PORT=$(free_port) launch restart "${flags[@]}"
echo "filling with $entries entries"
filled=$(tool fetch --port "$larder_port" --first 0 --count "$entries")
echo "  $filled"
verdict "fill: every body is right" [ "$(field "$filled" wrong) $(field "$filled" failed)" = "0 0" ]
sleep 1.1 # everything is to be older than a second

# start_again NAME: starts larder while a client is already asking, and tells how long the first hit took
start_again() {
  local since prober first
  python3 "$here/synthetic.py" first-hit --port "$larder_port" --first 0 --of "$entries" --timeout 30 > "$stage/$1.first" &
  prober=$!
  pids+=("$prober")
  sleep 0.5 # until the client is up
  since=$(date +%s.%N)
  LISTEN_PORT=$larder_port launch "$1" "${flags[@]}"
  wait "$prober"
  first=$(cat "$stage/$1.first")
  verdict "$1: the first hit is right" [ "$(field "$first" right)" = True ]
  echo "  time to first hit: $(python3 -c 'import sys; print(round(float(sys.argv[1]) - float(sys.argv[2]), 3))' "$(field "$first" at)" "$since") s"
}

# check_sample NAME SAMPLE-ARGUMENTS...: bodies byte by byte, and the share of hits
check_sample() {
  local name=$1 result; shift
  result=$(tool sample --port "$larder_port" --count "$sample" "$@")
  echo "  $result"
  verdict "$name: no wrong byte in $(field "$result" requests) bodies" [ "$(field "$result" wrong) $(field "$result" failed)" = "0 0" ]
  verdict "$name: at least 99% are hits" at_least "$(field "$result" hit_percent)" 99
}

echo "clean stop and start"
end TERM "$larder_pid"
verdict "clean stop: code 0" [ $? -eq 0 ]
start_again clean-stop
check_sample "clean stop" --seed 1 --first 0 --of "$entries"

echo "kill -9 under load and start"
python3 "$here/synthetic.py" fetch --port "$larder_port" --first 1000000 --count 1000000 --log "$stage/load.log" > "$stage/load.result" &
load=$!
pids+=("$load")
enough() { [ -f "$stage/load.log" ] && [ "$(wc -l < "$stage/load.log")" -ge 16000 ]; }
await 120 enough || fail "the load never reached 16,000 entries"
killed=$(date +%s.%N)
end KILL "$larder_pid"
end TERM "$load"
older=$(python3 -c 'import sys; print(float(sys.argv[1]) - 1)' "$killed")
start_again kill-9
check_sample "kill -9, entries from before" --seed 2 --first 0 --of "$entries"
check_sample "kill -9, entries from under load, older than a second" --seed 3 --log "$stage/load.log" --before "$older"
summary
