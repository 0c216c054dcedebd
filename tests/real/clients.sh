#!/usr/bin/env bash
# The crates for other programs under a load with every body checked, and kill -9 in the middle: the examples of larder-reqwest (a client
# with the cache in its process) and of larder-pingora (a proxy).
#
#   tests/real/clients.sh                          60 s each
#   SECONDS_EACH=10 PARTS=reqwest tests/real/clients.sh
#
# Passes if no byte is wrong, and if after the kill what was stored before is a hit. It compiles both examples first: pingora needs
# cmake and takes minutes.
. "$(dirname "$0")/stage.sh"
secs=${SECONDS_EACH:-60}
half=$((secs / 2))
parts=${PARTS:-reqwest pingora}
target=${CARGO_TARGET_DIR:-$root/target}

# count FILE LABEL: the number before LABEL in the last line that has it
count() { grep -o "[0-9]* $2" "$stage/$1" | tail -1 | cut -d' ' -f1; }

reqwest_part() {
  cargo build --quiet --manifest-path "$root/Cargo.toml" -p larder-reqwest --example load || exit 1
  local load=$target/debug/examples/load pid
  "$load" "$secs" "$stage/reqwest" > "$stage/reqwest.first" 2>&1 &
  pid=$!
  pids+=("$pid")
  sleep "$half"
  verdict "reqwest: the load runs until it is killed" kill -9 "$pid"
  wait "$pid" 2>/dev/null
  echo "  killed: $(tail -1 "$stage/reqwest.first")"
  "$load" "$half" "$stage/reqwest" > "$stage/reqwest.second" 2>&1
  verdict "reqwest: every body is right after the kill" [ $? -eq 0 ]
  sed 's/^/  /' <(tail -2 "$stage/reqwest.second")
  verdict "reqwest: 100 responses at least are hits of the killed run" at_least "$(count reqwest.second 'of an earlier run')" 100
}

# start_proxy ORIGIN-PORT PROXY-PORT: sets proxy_pid
start_proxy() {
  "$target/pingora/debug/examples/proxy" "127.0.0.1:$2" "127.0.0.1:$1" "$stage/pingora" >> "$stage/proxy.log" 2>&1 &
  proxy_pid=$!
  pids+=("$proxy_pid")
  await 60 answers "$2" || { echo "the proxy did not start" >&2; cat "$stage/proxy.log" >&2; exit 1; }
}

pingora_part() {
  cargo build --quiet --manifest-path "$root/crates/larder-pingora/Cargo.toml" --target-dir "$target/pingora" --examples || exit 1
  local origin proxy load
  origin=$(free_port)
  proxy=$(free_port)
  start_proxy "$origin" "$proxy"
  "$target/pingora/debug/examples/load" "127.0.0.1:$origin" "127.0.0.1:$proxy" "$secs" > "$stage/pingora.load" 2>&1 &
  load=$!
  pids+=("$load")
  sleep "$half"
  verdict "pingora: the proxy runs until it is killed" kill -9 "$proxy_pid"
  wait "$proxy_pid" 2>/dev/null
  start_proxy "$origin" "$proxy"
  wait "$load"
  verdict "pingora: every body is right, before and after the kill" [ $? -eq 0 ]
  sed 's/^/  /' "$stage/pingora.load"
  # Without a store, the second proxy would request all 200 objects again.
  verdict "pingora: at most 250 requests to the origin for 200 objects" at_most "$(count pingora.load 'requests to the origin')" 250
}

for part in $parts; do "${part}_part"; done
summary
