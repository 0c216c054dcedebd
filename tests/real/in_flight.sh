#!/usr/bin/env bash
# What requests cost in memory that wait for a slow origin, what responses cost that nobody reads, and what is given back.
#
#   tests/real/in_flight.sh [WAITING [UNREAD]]
#
# Needs the release build (or LARDER_BIN), and twice as many open files as requests wait (ulimit -Hn). Prints the figures and
# PASS / FAIL lines.
. "$(dirname "$0")/stage.sh"

need python3:python3
waiting=${1:-5000} unread=${2:-100}
# What an exchange that waits for its origin may take, both its connections together, in KiB; docs/explanation/semantics.md promises it.
kib_max=12
ulimit -n "$(ulimit -Hn)"

port=$(free_port)
printf '[limits]\norigin_connections = %d\n[memory]\nwindows = "48MiB"\n' "$waiting" > "$stage/larder.toml"
launch reverse --config "$stage/larder.toml" --disk none --memory-cache 16MB --origin "http://127.0.0.1:$port"
python3 "$here/in_flight.py" "$port" "$larder_port" "$larder_pid" "$waiting" "$unread" | tee "$stage/figures"
told() { sed -n "s/^KiB \(for \)\?$1: \(-\?[0-9.]*\).*/\2/p" "$stage/figures"; }
for round in first second; do
  for what in 'an exchange that has just begun to wait' 'an exchange that has waited for a second'; do
    kib=$(told "$what, $round time")
    verdict "$what takes at most $kib_max KiB, $round time" at_most "${kib:-999999}" "$kib_max"
  done
done
kib=$(told '[0-9]* long responses that nobody reads')
verdict "$unread responses that nobody reads take at most 64 MiB" [ "${kib:-999999}" -le 65536 ]
kib=$(told 'more than at first, 10 s after all that')
verdict "10 s later all but 32 MiB is given back" [ "${kib:-999999}" -le 32768 ]
verdict "all requests are answered" [ "$(grep -c "^answered: $waiting of $waiting" "$stage/figures")" -eq 2 ]
summary
