#!/usr/bin/env bash
# A disk that fails for a while and works again: a loop device over a sparse file on a tmpfs that another file fills up, so
# that the kernel answers writes to it with an I/O error. (`dmsetup` with `flakey` does the same where there is a device-mapper.)
#
#   tests/real/flakey_disk.sh      as root, for a loop device and a tmpfs; about a minute
#
# Passes if every body is right, the proxy never stops, what was stored before is served from the disk within 10 s of the disk's
# working again and after a restart, new responses are stored again, and the stop exits with 0.
. "$(dirname "$0")/stage.sh"
[ "$(id -u)" -eq 0 ] || { echo "skipped: loop devices are for root" >&2; exit 0; }
need python3:python3 losetup:mount
loop=
give_back() {
  clean_up
  [ -n "$loop" ] && losetup --detach "$loop"
  umount "$small" 2>/dev/null
}
small=$(mktemp -d)
trap give_back EXIT
mount -t tmpfs -o size=64M tmpfs "$small" || { echo "skipped: no tmpfs here" >&2; exit 0; }

tool() { python3 "$here/synthetic.py" "$@"; }
right() { echo "  $2"; verdict "$1: every body is right" [ "$(field "$2" wrong) $(field "$2" failed)" = "0 0" ]; }
fail() { dd if=/dev/zero of="$small/filler" bs=1M 2>/dev/null; }
work_again() { rm -f "$small/filler"; }
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

truncate -s 256M "$small/disk"
loop=$(losetup --find --show --direct-io=off "$small/disk") || { echo "skipped: no loop devices here" >&2; exit 0; }
origin_port=$(free_port)
python3 "$here/synthetic.py" serve --port "$origin_port" &
pids+=("$!")
await 10 answers "$origin_port" || { echo "the origin did not start" >&2; exit 1; }
flags=(--disk "$loop" --size 256MiB --memory 8MB --origin "http://127.0.0.1:$origin_port")

echo "a disk that works"
start first
right fill "$(tool fetch --port "$larder_port" --first 0 --count 1000)"
sleep 7
echo "a disk that fails"
fail
right failing "$(tool fetch --port "$larder_port" --first 10000 --count 1000)"
sleep 3
right failing-still "$(tool fetch --port "$larder_port" --first 20000 --count 500)"
echo "  $(figure larder_store_io_errors_total) errors, $(figure larder_store_removals_waiting) removals wait"
verdict "the disk failed" [ "$(figure larder_store_io_errors_total)" -gt 0 ]
echo "and works again"
work_again
sleep 10
verdict "no volume is out" [ "$(figure larder_store_volumes_out)" -eq 0 ]
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
