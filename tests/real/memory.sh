#!/usr/bin/env bash
# Whether the process keeps to --memory under loads that hold much: idle connections, slow readers, shut windows, and misses.
#
#   tests/real/memory.sh [MEMORY...]     with LOADS="idle misses hit streams mixed" and STORES="disk none", or some of them
#
# Needs the release build (or LARDER_BIN), and 25,000 open files (ulimit -Hn). Prints one line for each memory, store and load.
. "$(dirname "$0")/stage.sh"

need python3:python3
[ $# -gt 0 ] || set -- 32MB 64MB 256MB 1GB
ulimit -n "$(ulimit -Hn)"
for memory in "$@"; do
  for store in ${STORES:-disk none}; do
    for load in ${LOADS:-idle misses hit streams mixed}; do
      origin=$(free_port)
      disk=(--disk none)
      [ "$store" = disk ] && disk=(--disk "$stage/store" --size 2GB)
      rm -f "$stage"/store*
      launch proxy --memory "$memory" "${disk[@]}" --origin "http://127.0.0.1:$origin"
      timeout 300 python3 "$here/memory.py" "$origin" "$larder_port" "$larder_pid" "$load" "${SECONDS_PER_LOAD:-15}" > "$stage/figures"
      end TERM "$larder_pid"
      figures=$(grep '^KiB' "$stage/figures")
      most=$(sed 's/.* \([0-9]*\) at most.*/\1/' <<< "$figures")
      limit=$(numfmt --from=si "${memory%B}")
      verdict "$memory $store $load: $figures" at_most "$((${most:-999999999} * 1024))" "$((limit * 115 / 100))"
    done
  done
done
summary
