# The stage of the tests with real clients: a scratch folder, servers on loopback, and PASS / FAIL lines.
# Sourced by run.sh, restart.sh, rows.sh and big.sh. Ends only processes that it started; leaves nothing behind unless KEEP=1.

set -uo pipefail
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY no_proxy NO_PROXY ALL_PROXY all_proxy
unset REQUESTS_CA_BUNDLE CURL_CA_BUNDLE SSL_CERT_FILE
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
LARDER_BIN=${LARDER_BIN:-${CARGO_TARGET_DIR:-$root/target}/release/larder}
stage=$(mktemp -d "${TMPDIR:-/tmp}/larder-real.XXXXXX")
pids=()
passed=0
failed=0

# --- verdicts

pass() { passed=$((passed + 1)); echo "PASS  $*"; }
fail() { failed=$((failed + 1)); echo "FAIL  $*"; }

# verdict NAME CONDITION...: the condition is a command, such as [ 1 -eq 1 ]
verdict() { local name=$1; shift; if "$@"; then pass "$name"; else fail "$name  (not so: $*)"; fi; }

summary() {
  echo
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

# --- tools

# need TOOL:PACKAGE...: ends the script if a tool is missing, and says how to get it
need() {
  local pair missing=()
  for pair in "$@"; do
    PATH=$PATH:/usr/sbin command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    echo "missing tools; on Debian: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 2
  fi
  if [ ! -x "$LARDER_BIN" ]; then
    echo "no program at $LARDER_BIN; build it with: cargo build --release, or set LARDER_BIN" >&2
    exit 2
  fi
}

# A port outside of those that outgoing connections get, so that it is still free for a second start.
free_port() { python3 - <<'P'
import random, socket
for port in random.sample(range(10000, 32000), 100):
    try:
        socket.socket().bind(("127.0.0.1", port))
    except OSError:
        continue
    print(port)
    break
P
}

# await SECONDS CONDITION...: until the condition holds
await() {
  local end=$(( $(date +%s%N) + $1 * 1000000000 )); shift
  until "$@"; do
    [ "$(date +%s%N)" -lt "$end" ] || return 1
    sleep 0.02
  done
}

at_least() { python3 -c 'import sys; sys.exit(not float(sys.argv[1]) >= float(sys.argv[2]))' "$1" "$2"; }
at_most() { at_least "$2" "$1"; }

# field JSON NAME; saved FILE NAME: of FILE.json on the stage
field() { python3 -c 'import json, sys; print(json.loads(sys.argv[1])[sys.argv[2]])' "$1" "$2"; }
saved() { field "$(cat "$stage/$1.json")" "$2"; }

# answers PORT: whether somebody takes connections there
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# figure NAME: what /metrics says at admin_port, over all labels
figure() { curl -sS "http://127.0.0.1:$admin_port/metrics" | awk -v name="$1" '$1 == name || index($1, name "{") == 1 { sum += $2 } END { print sum + 0 }'; }

# --- processes

# end SIGNAL PID: sends the signal and waits until the process is gone
end() {
  kill "-$1" "$2" 2>/dev/null
  wait "$2" 2>/dev/null
}

# launch NAME FLAG...: starts larder on a free port, or on LISTEN_PORT; sets larder_pid and larder_port
launch() {
  local name=$1; shift
  : > "$stage/$name.log" # an earlier start of the name may have said that it listens
  "$LARDER_BIN" run --listen "127.0.0.1:${LISTEN_PORT:-0}" "$@" >>"$stage/$name.out" 2>"$stage/$name.log" </dev/null &
  larder_pid=$!
  pids+=("$larder_pid")
  if ! await 30 listening "$name" "$larder_pid"; then
    echo "larder did not start:" >&2
    cat "$stage/$name.log" >&2
    exit 1
  fi
  larder_port=$(sed -n 's/.*listen[^0-9]*127\.0\.0\.1:\([0-9]*\).*/\1/p' "$stage/$name.log" | head -1)
}
listening() { grep -q 'listen.*127\.0\.0\.1:[0-9]' "$stage/$1.log" 2>/dev/null || ! kill -0 "$2" 2>/dev/null; }

clean_up() {
  local pid
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null; done
  if [ "${KEEP:-0}" = 1 ]; then echo "kept $stage"; else rm -rf "$stage"; fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM
