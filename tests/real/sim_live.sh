#!/usr/bin/env bash
# Hit ratios of the simulator beside those of the running proxy, on the same requests and with the defaults of both.
#
#   tests/real/sim_live.sh                          five traces of 200,000 requests
#   REQUESTS=50000 SIZE=64MB tests/real/sim_live.sh a first look
#
# MEMORY is the memory cache of both: a simulation has no other memory. Needs the release build (or LARDER_BIN). Passes
# if they differ by at most half a point on each trace, and by two points on those of PolyMix. The store lies in /dev/shm
# unless TMPDIR says otherwise. A simulated disk never fails to respond, while a proxy whose disk is busy goes without its
# store for some time: on a disk that others used, the traces were 0.9 to 5.3 points apart.
[ -d /dev/shm ] && export TMPDIR=${TMPDIR:-/dev/shm}
. "$(dirname "$0")/stage.sh"
need python3:python3
requests=${REQUESTS:-200000} size=${SIZE:-128MB} memory=${MEMORY:-32MB}

for workload in zipf-0.8 zipf-1.0 markatos polymix-3 polymix-4; do
  trace=$stage/$workload.trace
  case $workload in polymix-*) points=${POINTS:-2} ;; *) points=${POINTS:-0.5} ;; esac
  "$LARDER_BIN" sim convert --workload "$workload" --requests "$requests" "$trace" > /dev/null 2>&1
  "$LARDER_BIN" sim run --trace "$trace" --size "$size" --memory-cache "$memory" --output json > "$stage/sim.json" 2> /dev/null
  "$LARDER_BIN" bench --trace "$trace" --size "$size" --memory 128MB --larder=--memory-cache="$memory" --larder=--policy=log \
    --scratch "$stage" --json "$stage/live.json" > "$stage/live.txt"
  verdict "$workload: the load saw nothing wrong" [ $? -eq 0 ]
  line=$(python3 - "$stage" <<'P'
import json, sys
stage = sys.argv[1]
table = json.load(open(f"{stage}/sim.json"))["tables"][0]
simulated = table["rows"][0]
counts = [phase["counts"] for phase in json.load(open(f"{stage}/live.json"))["phases"]]
live = 100 * sum(one["hits"] for one in counts) / sum(one["requests"] for one in counts)
print(f"{live:.2f} {simulated['hits, %']:.2f} {abs(live - simulated['hits, %']):.2f}")
P
  )
  read -r live simulated apart <<< "$line"
  echo "  $workload: $live% hits live, $simulated% simulated"
  verdict "$workload: at most $points points apart: $apart" awk -v "apart=$apart" -v "points=$points" 'BEGIN { exit !(apart != "" && apart <= points) }'
done
summary
