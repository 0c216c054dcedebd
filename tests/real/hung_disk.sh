#!/usr/bin/env bash
# A disk that does not answer any more: a loop device whose reads and writes the kernel lets through at one byte a second, with
# responses that are not written yet. Requests are answered all the same, SIGTERM ends the proxy within its drain and 60 s, a second
# one at once, and what was synced before is there at the next start. (`dmsetup suspend` does the same where there is a device-mapper.)
#
#   tests/real/hung_disk.sh        as root, for a loop device and a cgroup (version 1, controller blkio)
#
# Passes if nothing waits longer than that, and no byte is wrong.
. "$(dirname "$0")/stage.sh"
[ "$(id -u)" -eq 0 ] || { echo "skipped: loop devices are for root" >&2; exit 0; }
need python3:python3 losetup:mount
groups=/sys/fs/cgroup/blkio
[ -e "$groups/cgroup.procs" ] || { echo "skipped: no cgroup of version 1 with blkio here" >&2; exit 0; }
group=$groups/larder-hung-$$
loop=
give_back() {
  [ -n "$loop" ] && answer_again
  clean_up
  [ -n "$loop" ] && losetup --detach "$loop"
  rmdir "$group" 2>/dev/null
}
trap give_back EXIT

tool() { python3 "$here/synthetic.py" "$@"; }
limit() { for way in read write; do echo "$number $1" > "$group/blkio.throttle.${way}_bps_device"; done; }
fall_silent() { limit 1; }
answer_again() { limit 0; }

# right NAME RESULT: all were answered, with the right bytes
right() { echo "  $2"; verdict "$1: every body is right" [ "$(field "$2" wrong) $(field "$2" failed)" = "0 0" ]; }

# ended NAME MOST SIGNALS: sends this many SIGTERM, 1.5 s apart (within 1 s they are one), and expects code 1 within so many seconds
ended() {
  local since=$SECONDS left=$3 code
  while [ "$left" -gt 0 ]; do kill -TERM "$larder_pid"; left=$((left - 1)); sleep 1.5; done
  wait "$larder_pid"
  code=$?
  echo "  $1: code $code after $((SECONDS - since)) s"
  verdict "$1: code 1" [ "$code" -eq 1 ]
  verdict "$1: within $2 s" [ $((SECONDS - since)) -le "$2" ]
}

mkdir "$group" || exit 2
truncate -s 256M "$stage/disk"
loop=$(losetup --find --show "$stage/disk") || { echo "skipped: no loop devices here" >&2; exit 0; }
number=$(($(stat -c '0x%t' "$loop"))):$(($(stat -c '0x%T' "$loop")))
origin_port=$(free_port)
python3 "$here/synthetic.py" serve --port "$origin_port" &
pids+=("$!")
await 10 answers "$origin_port" || { echo "the origin did not start" >&2; exit 1; }
flags=(--disk "$loop" --size 256MiB --memory-cache 8MB --drain-timeout 2s --origin "http://127.0.0.1:$origin_port")

echo "a disk that answers"
launch first "${flags[@]}"
right fill "$(tool fetch --port "$larder_port" --first 0 --count 2000)"
end TERM "$larder_pid"
verdict "a disk that answers: code 0" [ $? -eq 0 ]

for signals in 1 2; do
  echo "a disk that does not answer, $signals signals"
  launch "hung-$signals" "${flags[@]}"
  echo "$larder_pid" > "$group/cgroup.procs"
  fall_silent
  right "hung-$signals" "$(tool fetch --port "$larder_port" --first $((signals * 10000)) --count 500)"
  if [ "$signals" -eq 1 ]; then ended "hung-$signals" 65 1; else ended "hung-$signals" 10 2; fi
  answer_again
done

echo "after it"
launch after "${flags[@]}"
right after "$(tool sample --port "$larder_port" --count 500 --seed 1 --first 0 --of 2000)"
end TERM "$larder_pid"
verdict "after it: code 0" [ $? -eq 0 ]
summary
