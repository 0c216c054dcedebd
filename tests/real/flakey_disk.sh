#!/usr/bin/env bash
# A disk that fails for a while and works again. The store is a file in an ext2 file system on a loop device. The device is
# shortened to a page, so that the kernel answers all reads and writes of the file with EIO, and then has its length again.
# (`dmsetup` with `flakey` does the same where there is a device-mapper.) With DISK=device the store is the loop device itself:
# then the kernel answers writes with ENOSPC.
#
#   tests/real/flakey_disk.sh      as root, for a loop device; about a minute
#
# Passes if every body is right, the proxy never stops, what was stored before is served from the disk within 10 s of the disk's
# working again and after a restart, new responses are stored again, and the stop exits with 0.
. "$(dirname "$0")/stage.sh"
[ "$(id -u)" -eq 0 ] || { echo "skipped: loop devices are for root" >&2; exit 0; }
need python3:python3 losetup:mount mkfs.ext2:e2fsprogs
loop=
give_back() {
  [ -n "$loop" ] && mend_disk
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; done
  mountpoint -q "$stage/mounted" && umount "$stage/mounted"
  clean_up
  [ -n "$loop" ] && losetup --detach "$loop"
}
trap give_back EXIT

tool() { python3 "$here/synthetic.py" "$@"; }
right() { echo "  $2"; verdict "$1: every body is right" [ "$(field "$2" wrong) $(field "$2" failed)" = "0 0" ]; }
# shorten BYTES: 0 gives the device its length again
shorten() {
  python3 - "$loop" "$1" <<'P'
import fcntl, struct, sys
GET_STATUS, SET_STATUS, SIZE_LIMIT_AT = 0x4C05, 0x4C04, 32
with open(sys.argv[1], "rb") as loop:
    status = bytearray(232)
    fcntl.ioctl(loop, GET_STATUS, status)
    struct.pack_into("<Q", status, SIZE_LIMIT_AT, int(sys.argv[2]))
    fcntl.ioctl(loop, SET_STATUS, status)
P
}
break_disk() { shorten 4096; }
mend_disk() { shorten 0; }
start() {
  admin_port=$(free_port)
  launch "$1" "${flags[@]}" --admin "127.0.0.1:$admin_port"
}
# keeps NAME: what was stored first is served without asking the origin
keeps() {
  local before
  before=$(figure larder_store_hits_total)
  right "$1" "$(tool sample --port "$larder_port" --count 500 --seed 1 --first 0 --of 1000)"
  local hits=$(($(figure larder_store_hits_total) - before))
  echo "  $hits hits in the store"
  verdict "$1: at least 450 of 500 from the disk" [ "$hits" -ge 450 ]
}

truncate -s 256M "$stage/disk"
loop=$(losetup --find --show "$stage/disk") || { echo "skipped: no loop devices here" >&2; exit 0; }
origin_port=$(free_port)
python3 "$here/synthetic.py" serve --port "$origin_port" &
pids+=("$!")
await 10 answers "$origin_port" || { echo "the origin did not start" >&2; exit 1; }
disk=$loop size=256MiB
if [ "${DISK:-file}" = file ]; then
  # Without a journal, and with all blocks of the file in place: the file system itself then has nothing to write.
  mkfs.ext2 -q "$loop" && mkdir "$stage/mounted" && mount -o errors=continue,noatime "$loop" "$stage/mounted" || exit 2
  "$LARDER_BIN" store format "$stage/empty" --size 128MiB >/dev/null || exit 2
  cp --sparse=never "$stage/empty" "$stage/mounted/store"
  sync -f "$stage/mounted"
  disk=$stage/mounted/store size=128MiB
fi
flags=(--disk "$disk" --size "$size" --memory-cache 8MB --origin "http://127.0.0.1:$origin_port")

echo "a disk that works"
start first
right fill "$(tool fetch --port "$larder_port" --first 0 --count 1000)"
sleep 7
echo "a disk that fails"
break_disk
right failing "$(tool fetch --port "$larder_port" --first 10000 --count 1000)"
sleep 3
right failing-still "$(tool fetch --port "$larder_port" --first 20000 --count 500)"
echo "  $(figure larder_store_io_errors_total) errors, $(figure larder_store_removals_waiting) removals wait"
verdict "the disk failed" [ "$(figure larder_store_io_errors_total)" -gt 0 ]
echo "and works again"
mend_disk
sleep 10
verdict "no volume is out" [ "$(figure larder_store_volumes_failed)" -eq 0 ]
keeps "after 10 s"
stored=$(figure larder_store_commits_total)
right again "$(tool fetch --port "$larder_port" --first 30000 --count 200)"
verdict "new responses are stored" [ $(($(figure larder_store_commits_total) - stored)) -ge 190 ]
end TERM "$larder_pid"
verdict "the stop exits with 0" [ $? -eq 0 ]
echo "after a restart"
start second
sleep 2
keeps "after a restart"
end TERM "$larder_pid"
verdict "the second stop exits with 0" [ $? -eq 0 ]
summary
