#!/usr/bin/env bash
# A slow disk slows nobody down: long downloads are whole, at about the speed that they have without a disk.
#
#   tests/real/slow_disk.sh          as root, for a loop device and a blkio control group; about 3 minutes
#
# A body that is stored while the disk takes WRITE bytes a second (3 MB), and bodies that are stored and read while it gives
# READ bytes a second (300 KB). Other sizes: BODY_BYTES (512 MB), BODIES (3). Passes if every answer is whole and right, larder counts
# no broken answer, misses have half the speed that they have without a disk or take a second more, and the hits, all of them together, take at most
# SLOWER_S (10) seconds more each than from the origin: so long it may take to learn what such a disk is good for.
. "$(dirname "$0")/stage.sh"
[ "$(id -u)" -eq 0 ] || { echo "skipped: loop devices and control groups are for root" >&2; exit 0; }
need curl:curl python3:python3 losetup:mount
body_bytes=${BODY_BYTES:-512000000} bodies=${BODIES:-3} slower_s=${SLOWER_S:-10}
group=/sys/fs/cgroup/blkio/larder-slow-$$
mkdir "$group" || { echo "skipped: no blkio control group here" >&2; exit 0; }
disk=
give_back() {
  local pid
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null; done
  [ -n "$disk" ] && losetup --detach "$disk"
  rmdir "$group" 2>/dev/null
  clean_up
}
trap give_back EXIT

get() { python3 "$here/long_bodies.py" get --port "$larder_port" --numbers "$1" --bytes "$body_bytes"; }
# limit read|write BYTES_A_SECOND: 0 for none
limit() { echo "$number $2" > "$group/blkio.throttle.$1_bps_device"; }
start() {
  admin_port=$(free_port)
  launch "$1" --origin "http://127.0.0.1:$origin_port" --allow-target 127.0.0.0/8 --admin "127.0.0.1:$admin_port" "${@:2}"
}

origin_port=$(free_port)
python3 "$here/long_bodies.py" serve --port "$origin_port" --validators >"$stage/origin.log" 2>&1 </dev/null &
pids+=("$!")
await 30 answers "$origin_port"

echo "without a disk"
admin_port=$(free_port)
launch none --disk none --origin "http://127.0.0.1:$origin_port" --allow-target 127.0.0.0/8
get "$(seq -s, 1 "$bodies")" > "$stage/none.json"
end TERM "$larder_pid"

truncate -s 4G "$stage/disk"
disk=$(losetup --find --show --direct-io=on "$stage/disk")
number=$(stat -c '%t %T' "$disk" | { read -r major minor; echo "$((16#$major)):$((16#$minor))"; })
start slow --disk "$disk"
echo "stored while nothing is slow"
get "$(seq -s, 11 $((10 + bodies)))" > "$stage/stored.json"

echo "stored while the disk takes ${WRITE:-3000000} bytes a second"
echo "$larder_pid" > "$group/cgroup.procs"
limit write "${WRITE:-3000000}"
get "$(seq -s, 21 $((20 + bodies)))" > "$stage/writes.json"
limit write 0
echo "storing was given up $(figure larder_store_aborts_total) times"

echo "read while the disk gives ${READ:-300000} bytes a second"
limit read "${READ:-300000}"
get "$(seq -s, 11 $((10 + bodies)))" > "$stage/reads.json"
limit read 0

echo "read while the disk becomes slow in the middle of a hit"
all_are_hits() { get "$(seq -s, 11 $((10 + bodies)))" > "$stage/fast.json" 2>/dev/null; [ "$(saved fast hits)" -eq "$bodies" ]; }
await 90 all_are_hits
sent=$(figure larder_hits_total)
is_sending() { [ "$(figure larder_hits_total)" -gt "$sent" ]; }
get "$(seq -s, 11 $((10 + bodies)))" > "$stage/turns.json" &
asking=$!
until is_sending; do :; done
limit read "${READ:-300000}"
wait "$asking"
limit read 0
echo "went on from the origin $(figure larder_range_fills_total) times"

verdict "slow disk: misses are whole" [ "$(saved writes broken)$(saved stored broken)" = 00 ]
verdict "slow disk: misses take at most twice the time without a disk, and a second each" at_most "$(saved writes seconds)" "$(python3 -c "print(2 * $(saved none seconds) + $bodies)")"
verdict "slow disk: what is stored is whole" [ "$(saved reads broken)" -eq 0 ]
verdict "slow disk: and takes at most $slower_s s longer each than without a disk" \
  at_most "$(saved reads seconds)" "$(python3 -c "print($(saved none seconds) + $slower_s * $bodies)")"
verdict "slow disk: a hit whose disk becomes slow is whole" [ "$(saved turns broken)" -eq 0 ]
verdict "slow disk: and went on from the origin" [ "$(figure larder_range_fills_total)" -gt 0 ]
verdict "slow disk: larder counts no broken answer" [ "$(figure larder_broken_responses_total)" -eq 0 ]
summary
