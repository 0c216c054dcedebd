# Larder as a server of the side-by-side benchmark of caching reverse proxies (found through PEERS_PLUGINS; see run.sh).
# Parameters come in the environment, as for every plug-in: PORT ORIGIN_PORT RAM_MB DISK_MB CACHE_DIR WORK_DIR AVG_OBJ
# MAX_OBJECTS. One worker; Via, Cache-Status and the access log off, as with the other servers.
LARDER_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
LARDER_BIN=${LARDER_BIN:-${CARGO_TARGET_DIR:-$LARDER_ROOT/target}/release/larder}

srv_version() { "$LARDER_BIN" --version; }

# Larder's index has room for size / mean entries (with 5% more slots than that), so the mean is chosen to give room for
# MAX_OBJECTS, or for as many objects of AVG_OBJ bytes as the disk can hold if those are fewer. MAX_OBJECTS is a tenth
# more than the harness fills in, which is the room that the load of its restart scenario needs. Prints bytes.
larder_mean_size() {
  local disk=$(( DISK_MB * 1048576 )) entries=$MAX_OBJECTS mean
  [ $(( disk / AVG_OBJ )) -lt "$entries" ] && entries=$(( disk / AVG_OBJ ))
  mean=$(( disk / entries ))
  [ "$mean" -lt 512 ] && mean=512
  [ "$mean" -gt 1048576 ] && mean=1048576
  echo "$mean"
}

# LARDER_HOT_MB overrides the size of the memory cache: 0 leaves the index alone in what the index scenario measures.
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
drain_timeout = "1s"
[store]
$store
[memory]
cache = "${LARDER_HOT_MB:-$RAM_MB}MiB"
[response]
via = false
cache_status = false
[limits]
idle_timeout = "5m"
origin_idle_timeout = "5m"
origin_idle_connections = 128
C
}

srv_start() { setsid "$LARDER_BIN" run --config "$WORK_DIR/larder.toml" >>"$WORK_DIR/log" 2>&1 </dev/null & echo $! > "$WORK_DIR/pid"; }
srv_pids() { [ -s "$WORK_DIR/pid" ] && pid_tree "$(cat "$WORK_DIR/pid")"; }
srv_stop() { local p; p=$(srv_pids); [ -n "$p" ] || return 0; kill -TERM $(echo "$p" | head -1); wait_gone $p; }
