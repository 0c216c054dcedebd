# The floor of the side-by-side benchmark: `limit` answers from a hash table and a flat file, and does nothing else that
# a cache has to do. The harness has its source; run.sh builds it with the other tools. Found through PEERS_PLUGINS.
LIMIT_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
LIMIT_BIN=${LIMIT_BIN:-${CARGO_TARGET_DIR:-$LIMIT_ROOT/target}/peers/release/limit}

srv_version() { echo "limit, of the harness"; }

# It keeps each object where it was first put, so it cannot evict, start again on its file, or keep what is long.
srv_unsupported() {
  case "$1" in
    hot1k | hot10k | zipf-ram | disk-hit | fill) ;;
    *) echo "has no eviction and no restart" ;;
  esac
}

srv_configure() { mkdir -p "$WORK_DIR" "$CACHE_DIR"; }

# With a disk it keeps nothing in memory, so that every hit is a read.
srv_start() {
  local kept=(--ram-mb "$RAM_MB")
  [ "$PROFILE" = disk ] && kept=(--ram-mb 0 --file "$CACHE_DIR/objects" --file-mb "$DISK_MB")
  setsid "$LIMIT_BIN" --listen "127.0.0.1:$PORT" --origin "127.0.0.1:$ORIGIN_PORT" "${kept[@]}" >>"$WORK_DIR/log" 2>&1 </dev/null &
  echo $! > "$WORK_DIR/pid"
}

srv_pids() { [ -s "$WORK_DIR/pid" ] && pid_tree "$(cat "$WORK_DIR/pid")"; }
srv_stop() { local pids; pids=$(srv_pids); [ -n "$pids" ] || return 0; kill -TERM $pids; wait_gone $pids; }
