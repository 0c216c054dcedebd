#!/usr/bin/env bash
# Machines that have less than usual: Larder starts, or does not, with one line about what it does instead.
#
#   tests/real/platform.sh
#
# Needs root, for mounts and for a filter of system calls.
. "$(dirname "$0")/stage.sh"

need python3:python3 unshare:util-linux
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 2; }
export XDG_CACHE_HOME=$stage/cache HOME=$stage
mounts=()
at_exit() { for place in "${mounts[@]}"; do umount "$place"; done; }
trap 'at_exit; clean_up' EXIT

# A program that starts another one without io_uring: refused by the container, or unknown to the kernel.
cat > "$stage/without_uring.py" <<'P'
import ctypes, os, struct, sys
error, command = int(sys.argv[1]), sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
step = lambda code, jt, jf, k: struct.pack("HBBI", code, jt, jf, k)
# Loads the number of the system call. 425 to 427 are io_uring's.
code = step(0x20, 0, 0, 0) + step(0x35, 0, 2, 425) + step(0x25, 1, 0, 427) + step(6, 0, 0, 0x50000 | error) + step(6, 0, 0, 0x7FFF0000)
held = ctypes.create_string_buffer(code)
class Filter(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(Filter(5, ctypes.addressof(held))), 0, 0) == 0
os.execvp(command[0], command)
P

# start NAME COMMAND...: starts a proxy, waits for its start lines or its end, stops it; $stage/NAME.log has its messages
start() {
  local log=$stage/$1.log
  shift
  : > "$log"
  "$@" --listen 127.0.0.1:0 > /dev/null 2> "$log" &
  local process=$!
  for _ in $(seq 100); do
    grep -q '^  try ' "$log" && break
    kill -0 "$process" 2> /dev/null || break
    sleep 0.1
  done
  kill "$process" 2> /dev/null
  wait "$process"
  sed "s/^/    /" "$log" | grep -E 'WARN|warning|instead|×|help:|store  '
}
says() { grep -q "$2" "$stage/$1.log"; }
lines() { [ "$(grep -cE 'instead' "$stage/$1.log")" = "$2" ]; }
mounted() { mkdir "$stage/$1" && mount -t "$2" -o "$3" none "$stage/$1" && mounts+=("$stage/$1"); }

store=(--disk "$stage/store.larder" --size 64MiB)
start plain "$LARDER_BIN" run "${store[@]}"
verdict "a usual machine: nothing is done instead" lines plain 0
start forbidden python3 "$stage/without_uring.py" 1 "$LARDER_BIN" run "${store[@]}"
verdict "a container that forbids io_uring: threads, with the reason" says forbidden 'using threads instead.*not permitted'
verdict "in one line" lines forbidden 1
start old python3 "$stage/without_uring.py" 38 "$LARDER_BIN" run "${store[@]}"
verdict "a kernel without io_uring: threads, with the reason" says old 'using threads instead.*not implemented'
start descriptors bash -c 'ulimit -n 256 && exec "$0" "$@"' "$LARDER_BIN" run "${store[@]}"
verdict "256 open files: fewer clients" says descriptors '78 clients may connect instead of 16384'
verdict "in one line" lines descriptors 1
if mounted ram ramfs size=1g; then
  start indirect "$LARDER_BIN" run --disk "$stage/ram/store.larder" --size 64MiB
  verdict "a file system without direct I/O: the page cache" says indirect 'using the page cache instead'
  verdict "in one line" lines indirect 1
fi
mounted small tmpfs size=500m
start small "$LARDER_BIN" run --disk "$stage/small"
verdict "a small disk: the store takes what is there" says small 'the new store takes 41. MB instead of the default 1 GB'
start again "$LARDER_BIN" run --disk "$stage/small"
verdict "the next start uses that store, and says nothing" lines again 0
mounted full tmpfs size=500m
start full "$LARDER_BIN" run --disk "$stage/full" --size 1GB
verdict "a small disk and a size: a refusal with the remedy" says full 'give --size 4[0-9]*MB or less'
mkdir "$stage/frozen"
start readonly unshare -m bash -c 'mount -o remount,ro,bind / && exec "$0" "$@"' "$LARDER_BIN" run --disk "$stage/frozen/store.larder"
verdict "a read-only root: a refusal with the remedy" says readonly 'or use --disk none'
start memory unshare -m bash -c 'mount -o remount,ro,bind / && exec "$0" "$@"' "$LARDER_BIN" run --disk none
verdict "a read-only root and no disk: it starts" says memory '^  try '
summary
