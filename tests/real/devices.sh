#!/usr/bin/env bash
# What becomes of the proxy's traffic when its disks are not what they should be: raw block devices, one that holds
# something else, one of two that vanishes, read-only, full, slow, and a system that refuses io_uring. Every body that
# comes out is compared byte by byte with what the origin would say; a request that fails is a failure of the test.
#
#   tests/real/devices.sh          as root, for loop devices and mounts
#   ENTRIES=10000 tests/real/devices.sh
#
# Passes if no byte is wrong and no request fails, whatever the disk does.
. "$(dirname "$0")/stage.sh"
[ "$(id -u)" -eq 0 ] || { echo "skipped: loop devices and mounts are for root" >&2; exit 0; }
need python3:python3 losetup:mount mkfs.ext4:e2fsprogs blockdev:util-linux
entries=${ENTRIES:-3000}

loops=()
mounts=()
slow_group=
give_back() {
  clean_up_processes
  local thing
  for thing in "${mounts[@]}"; do umount "$thing" 2>/dev/null; done
  for thing in "${loops[@]}"; do blockdev --setrw "$thing" 2>/dev/null; losetup --detach "$thing" 2>/dev/null; done
  [ -n "$slow_group" ] && rmdir "$slow_group" 2>/dev/null
  clean_up
}
clean_up_processes() {
  local pid
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null; done
}
trap give_back EXIT

tool() { python3 "$here/synthetic.py" "$@"; }
metric() { python3 -c '
import sys, urllib.request
text = urllib.request.urlopen("http://127.0.0.1:%s/metrics" % sys.argv[1], timeout=10).read().decode()
print(next(line.split()[1] for line in text.splitlines() if line.startswith("larder_" + sys.argv[2] + " ") or line.startswith("larder_" + sys.argv[2] + "_total ")))' "$admin_port" "$1"; }
is_metric() { [ "$(metric "$1")" = "$2" ]; }

# loop_device NAME SIZE: a block device on a sparse file; its path in $loop
loop_device() {
  truncate -s "$2" "$stage/$1"
  loop=$(losetup --find --show "$stage/$1") || { echo "skipped: no loop devices here" >&2; exit 0; }
  loops+=("$loop")
  blockdev --setrw "$loop"
}

# traffic NAME FIRST: fetches all bodies and checks them
traffic() {
  local result
  result=$(tool fetch --port "$larder_port" --first "$2" --count "$entries")
  echo "  $result"
  verdict "$1: every body is right and none is missing" [ "$(field "$result" wrong) $(field "$result" failed)" = "0 0" ]
}

# hits NAME FIRST LEAST MOST: asks again for some, and how many percent are hits
hits() {
  local result
  result=$(tool sample --port "$larder_port" --count $((entries / 2)) --seed 1 --first "$2" --of "$entries")
  echo "  $result"
  verdict "$1: every body is right" [ "$(field "$result" wrong) $(field "$result" failed)" = "0 0" ]
  verdict "$1: hits are from $3 to $4 percent" at_least "$(field "$result" hit_percent)" "$3"
  verdict "$1: hits are from $3 to $4 percent, not more" at_most "$(field "$result" hit_percent)" "$4"
}

origin_port=$(free_port)
python3 "$here/synthetic.py" serve --port "$origin_port" &
pids+=("$!")
await 10 answers "$origin_port" || { echo "the origin did not start" >&2; exit 1; }
admin_port=$(free_port)
flags=(--memory-cache 100kB --mean-object-size 4KiB --origin "http://127.0.0.1:$origin_port" --admin "$admin_port")
first=0

echo "a block device that holds a file system"
loop_device foreign 96M
mkfs.ext4 -q -F "$loop"
before=$(sha256sum < "$stage/foreign")
"$LARDER_BIN" run --listen 127.0.0.1:0 --disk "$loop" "${flags[@]}" >"$stage/foreign.log" 2>&1
verdict "foreign: run refuses it" [ $? -eq 1 ]
"$LARDER_BIN" store format "$loop" >>"$stage/foreign.log" 2>&1
verdict "foreign: format refuses it without --force" [ $? -eq 1 ]
verdict "foreign: it is told what it is" grep -q "ext2, ext3 or ext4" "$stage/foreign.log"
verdict "foreign: nothing is changed" [ "$before" = "$(sha256sum < "$stage/foreign")" ]
"$LARDER_BIN" store format "$loop" --force >>"$stage/foreign.log" 2>&1
verdict "foreign: format --force makes a store of it" [ $? -eq 0 ]
verdict "foreign: nobody else finds his own there any more" [ -z "$(blkid -p -o value -s TYPE "$loop" 2>/dev/null)" ]

echo "two block devices of different sizes"
loop_device small 96M; small=$loop
loop_device large 192M; large=$loop
launch raw --disk "$small" --disk "$large" "${flags[@]}"
traffic raw 0
hits raw 0 97 100
end TERM "$larder_pid"
for device in "$small" "$large"; do
  "$LARDER_BIN" store check "$device" > "$stage/check.log" 2>&1
  verdict "raw: check of $device finds nothing damaged" [ $? -eq 0 ]
  sed 's/^/  /' "$stage/check.log"
done
launch again --disk "$small" --disk "$large" "${flags[@]}"
hits "raw, after a restart" 0 97 100

echo "one of the two vanishes under load"
(sleep 1; truncate -s 0 "$stage/large"; losetup --set-capacity "$large") &
vanishing=$!
traffic vanishing "$entries"
wait "$vanishing"
traffic vanished 0
# Reads that fail take it out. If all that was on it was found damaged before, there are only writes left, and those
# find it full.
verdict "vanished: the metrics say so" await 20 at_least "$(metric store_io_errors)" 1
verdict "vanished: the log says so" grep -q "a volume fails and is taken out\|cannot write to the store" "$stage/again.log"
traffic "vanished, once more" 0
hits vanished 0 15 55
end TERM "$larder_pid"
truncate -s 192M "$stage/large"; losetup --set-capacity "$large"
launch back --disk "$small" --disk "$large" "${flags[@]}"
verdict "back again, empty: the proxy starts with a fresh volume" is_metric store_volumes 2
traffic "back again" 0
hits "back again" 0 97 100

echo "the disks become read-only"
blockdev --setro "$small"; blockdev --setro "$large"
traffic read-only $((2 * entries))
hits read-only 0 0 100
blockdev --setrw "$small"; blockdev --setrw "$large"
end TERM "$larder_pid"
launch writable --disk "$small" --disk "$large" "${flags[@]}"
traffic "writable again" 0
end TERM "$larder_pid"

echo "every policy that keeps no files, on a block device"
loop_device rows 192M; rows_device=$loop
policies=$(COLUMNS=200 "$LARDER_BIN" store format --help | sed -n '/--policy/,/--size/s/^ \{12\}\([a-z][a-z-]*\)  .*/\1/p')
verdict "policies: there are more than ten" at_least "$(wc -w <<< "$policies")" 10
for policy in $policies; do
  "$LARDER_BIN" store format "$rows_device" --policy "$policy" --mean-object-size 4KiB --force >"$stage/format.log" 2>&1 || {
    verdict "$policy: only policies that keep files refuse a device" grep -q "directory" "$stage/format.log"
    continue
  }
  launch "rows-$policy" --disk "$rows_device" "${flags[@]}"
  traffic "$policy" 0
  hits "$policy" 0 50 100
  end TERM "$larder_pid"
  launch "rows-$policy-again" --disk "$rows_device" "${flags[@]}"
  hits "$policy, after a restart" 0 50 100
  end KILL "$larder_pid"
  launch "rows-$policy-killed" --disk "$rows_device" "${flags[@]}"
  traffic "$policy, after a kill" 0
  end TERM "$larder_pid"
  "$LARDER_BIN" store check "$rows_device" > "$stage/check.log" 2>&1
  verdict "$policy: check finds nothing damaged" [ $? -eq 0 ]
done

echo "the disk's own disk is full"
loop_device full 64M
mkfs.ext4 -q "$loop"
mkdir "$stage/mounted"; mount "$loop" "$stage/mounted"; mounts+=("$stage/mounted")
"$LARDER_BIN" store format "$stage/sparse" --size 256MiB >/dev/null
cp --sparse=always "$stage/sparse" "$stage/mounted/store"
launch full --disk "$stage/mounted/store" "${flags[@]}"
dd if=/dev/zero of="$stage/mounted/rest" bs=1M 2>/dev/null
verdict "full: nothing is left" [ "$(df --output=avail "$stage/mounted" | tail -1)" -lt 2048 ]
traffic full 0
traffic "full, once more" 0
verdict "full: it is counted" at_least "$(metric store_io_errors)" 1
end TERM "$larder_pid"

echo "a slow disk"
loop_device slow 96M; slow=$loop
group=/sys/fs/cgroup/blkio/larder-devices-$$
if mkdir "$group" 2>/dev/null; then
  slow_group=$group
  launch slow --disk "$slow" "${flags[@]}"
  traffic slow 0
  echo "$(stat -c '0x%t:0x%T' "$slow" | python3 -c 'print(":".join(str(int(n, 16)) for n in input().split(":")))') 50" > "$group/blkio.throttle.read_iops_device"
  echo "$larder_pid" > "$group/cgroup.procs"
  began=$(date +%s)
  result=$(tool sample --port "$larder_port" --count 500 --seed 1 --first 0 --of "$entries")
  echo "  $result, in $(($(date +%s) - began)) s"
  verdict "slow: every body is right and none is missing" [ "$(field "$result" wrong) $(field "$result" failed)" = "0 0" ]
  verdict "slow: the disk was slow" at_least "$(($(date +%s) - began))" 5
  end TERM "$larder_pid"
else
  echo "  skipped: no blkio control group here"
fi

echo "no io_uring, as in many containers"
cat > "$stage/no-uring" <<P
#!/usr/bin/env python3
# Refuses io_uring_setup (system call 425) with EPERM, as the default profile of container engines does.
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in code))
program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv("$LARDER_BIN", ["$LARDER_BIN"] + sys.argv[1:])
P
chmod +x "$stage/no-uring"
real_bin=$LARDER_BIN
LARDER_BIN=$stage/no-uring
launch no-uring --disk "$stage/threads" --size 256MiB "${flags[@]}"
LARDER_BIN=$real_bin
verdict "no io_uring: it says so, once" [ "$(grep -c 'io_uring is refused, using threads instead' "$stage/no-uring.log")" = 1 ]
verdict "no io_uring: threads are used" grep -q "on threads" "$stage/no-uring.log"
traffic "no io_uring" 0
hits "no io_uring" 0 97 100
end TERM "$larder_pid"

echo "doing nothing"
launch idle --disk "$stage/idle" --size 256MiB "${flags[@]}"
sleep 3
ticks() { awk '{print $14 + $15}' "/proc/$larder_pid/stat"; }
before=$(ticks); sleep 20; after=$(ticks)
share=$(python3 -c 'import os, sys; print((int(sys.argv[2]) - int(sys.argv[1])) / os.sysconf("SC_CLK_TCK") / 20 * 100)' "$before" "$after")
echo "  $share percent of a processor over 20 s"
verdict "idle: less than 0.1 percent of a processor" at_most "$share" 0.1
end TERM "$larder_pid"

summary
