# Larder as a server of the side-by-side benchmark of caching reverse proxies (found through PEERS_PLUGINS; see run.sh).
# Parameters come in the environment, as for every plug-in: PORT ORIGIN_PORT RAM_MB DISK_MB CACHE_DIR WORK_DIR AVG_OBJ
# MAX_OBJECTS. One worker; Via, Cache-Status and the access log off, as with the other servers.
LARDER_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
LARDER_BIN=${LARDER_BIN:-${CARGO_TARGET_DIR:-$LARDER_ROOT/target}/release/larder}

srv_version() { "$LARDER_BIN" --version; }

# The index has room for size / mean entries (its slots are 1/0.95 of that). The harness asks for room for 1.1 times the
# objects it will send, so room for MAX_OBJECTS / 1.1 entries holds them all. A disk that cannot hold that many objects of
# AVG_OBJ bytes gets room for what it can hold. Prints the mean in bytes, within the program's range.
larder_mean_size() {
  local disk=$(( DISK_MB * 1048576 )) entries=$(( MAX_OBJECTS * 10 / 11 + 64 )) held mean
  held=$(( disk / AVG_OBJ ))
  [ "$held" -lt "$entries" ] && entries=$held
  mean=$(( disk / entries ))
  [ "$mean" -lt 512 ] && mean=512
  [ "$mean" -gt 1048576 ] && mean=1048576
  echo "$mean"
}

srv_configure() {
  mkdir -p "$WORK_DIR" "$CACHE_DIR"
  local store='path = "none"'
  [ "$DISK_MB" -gt 0 ] && store="path = \"$CACHE_DIR/store.larder\"
size = \"${DISK_MB}MiB\"
mean_object_size = $(larder_mean_size)"
  cat > "$WORK_DIR/larder.toml" <<C
listen = ["127.0.0.1:$PORT"]
workers = 1
origin = "http://127.0.0.1:$ORIGIN_PORT"
drain = "1s"
[store]
$store
[memory]
hot = "${RAM_MB}MiB"
[response]
via = false
cache_status = false
[limits]
idle = "5m"
origin_idle = "5m"
origin_idle_connections = 128
C
}

srv_start() { setsid "$LARDER_BIN" run --config "$WORK_DIR/larder.toml" >>"$WORK_DIR/log" 2>&1 </dev/null & echo $! > "$WORK_DIR/pid"; }
srv_pids() { [ -s "$WORK_DIR/pid" ] && pid_tree "$(cat "$WORK_DIR/pid")"; }
srv_stop() { local p; p=$(srv_pids); [ -n "$p" ] || return 0; kill -TERM $(echo "$p" | head -1); wait_gone $p; }
