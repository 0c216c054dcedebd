#!/usr/bin/env bash
# Values per second and MB per second of `larder store serve`, through the C client, with one process and with several.
#
#   bench/store_socket.sh            TIME=5 (seconds of each line)  PROCESSES="1 8"  LARDER_BIN=target/release/larder
#
# Hits from memory: all values fit in --memory. Hits from the disk: the server is started again with --memory 4MiB, and all values
# are 512 MiB. Needs a C compiler, and 1.5 GB below DIRECTORY (default: a temporary one in target, so that it is on a disk and not in
# memory).
set -euo pipefail
cd "$(dirname "$0")/.."

larder=${LARDER_BIN:-target/release/larder}
[ -x "$larder" ] || { echo "bench/store_socket.sh: no $larder: build it, or set LARDER_BIN" >&2; exit 2; }
mkdir -p target
directory=${DIRECTORY:-$(mktemp -d target/store-socket.XXXXXX)}
mkdir -p "$directory"
server=
finish() {
  [ -z "$server" ] || { kill "$server" 2> /dev/null && wait "$server" 2> /dev/null; } || true
  rm -rf "$directory"
}
trap finish EXIT
${CC:-cc} -std=c99 -O2 -Wall -Wextra -Iclients/c -o "$directory/load" bench/store_socket.c clients/c/larder.c

# A path of a socket may have 107 bytes.
socket=$(mktemp -u /tmp/larder-bench.XXXXXX)
serve() { # MEMORY
  "$larder" store serve "$directory/values" --size 1GiB --memory "$1" --socket "$socket" 2> "$directory/log" &
  server=$!
  for _ in $(seq 300); do grep -q '  socket ' "$directory/log" && return; sleep 0.1; done
  cat "$directory/log" >&2
  exit 1
}
stop() { kill "$server"; wait "$server" || true; server=; }

load() { # LABEL PROCESSES VALUES BYTES put|get
  local line processes rate megabytes missing
  line=$("$directory/load" "$socket" "$2" "$3" "$4" "${TIME:-5}" "$5")
  read -r processes rate megabytes missing <<< "$line"
  printf '| %s | %s | %s | %s | %s |\n' "$1" "$processes" "$rate" "$megabytes" "$missing"
}

echo "| values | processes | values/s | MB/s | not found |"
echo "| --- | --: | --: | --: | --: |"
for bytes in 4096 1048576; do
  size="$((bytes >> 10)) KiB"
  for place in memory disk; do
    case $place in
      memory) total=$((64 << 20)) ;;
      disk) total=$((512 << 20)) ;;
    esac
    count=$((total / bytes))
    rm -rf "$directory/values"
    serve 512MiB
    load "$size, written, $count values" 8 "$count" "$bytes" put
    if [ "$place" = disk ]; then
      stop
      serve 4MiB
    else
      # Brings values into memory that were pushed out while they were written.
      "$directory/load" "$socket" 1 "$count" "$bytes" 2 get > /dev/null
    fi
    for processes in ${PROCESSES:-1 8}; do load "$size, read from $place" "$processes" "$count" "$bytes" get; done
    stop
  done
done
