#!/usr/bin/env bash
# Every policy in the real program: filled, hit, stopped, started, hit, killed with -9 under load, started, hit. Every body is
# compared byte by byte with what the origin would say; the hits of each phase are printed, one line per policy.
#
#   tests/real/rows.sh                   every policy the program names
#   tests/real/rows.sh log ucfs          these policies
#   tests/real/rows.sh --loop            those that keep one file also on a loop device (as root)
#   ENTRIES=20000 SIZE=1GiB tests/real/rows.sh
#
# The hot tier is off, so that hits come from the store. Ten entries have a Referer in common and come from one of eight
# sites, as rows with groups and sites want it. A sample fetches what it misses, so each phase samples numbers of its own.
#
# Passes if no byte is wrong, no request fails, every start and stop works, and neither a clean stop nor, where `larder store info`
# says that a kill costs no more than the last seconds, kill -9 loses more than 5% of the hits there were before it.
# `larder store check` finds no damage after the kill, nor after the next clean stop.
. "$(dirname "$0")/stage.sh"
need python3:python3
entries=${ENTRIES:-5000}
sample=$((entries / 5))
size=${SIZE:-128MiB}
loop=no
rows=()
for argument in "$@"; do
  case $argument in
    --loop) loop=yes ;;
    *) rows+=("$argument") ;;
  esac
done
# The program names its policies when it is given one that does not exist; its lines may break behind a hyphen.
if [ ${#rows[@]} -eq 0 ]; then
  said=$("$LARDER_BIN" run --policy no-such-policy 2>&1 | tr -s '\n │' ' ' | sed 's/- /-/g')
  read -r -a rows <<< "$(sed -n 's/.*the policies are \([a-z0-9, -]*[a-z0-9]\).*/\1/p' <<< "$said" | tr -d ,)"
fi
[ ${#rows[@]} -gt 0 ] || { echo "the program names no policies" >&2; exit 2; }
loops=()
detach() { local device; for device in "${loops[@]}"; do losetup -d "$device" 2>/dev/null; done; }
trap 'clean_up; detach' EXIT

tool() { python3 "$here/synthetic.py" "$@"; }

origin_port=$(free_port)
python3 "$here/synthetic.py" serve --port "$origin_port" &
pids+=("$!")
await 10 answers "$origin_port" || { echo "the origin did not start" >&2; exit 1; }

# ask NAME ARGUMENT...: one run of the tool; sets `result`, judges its bodies
ask() {
  local name=$1; shift
  result=$(tool "$@" --port "$larder_port")
  verdict "$name: $(field "$result" requests) bodies, none wrong, none failed" \
    [ "$(field "$result" wrong) $(field "$result" failed)" = "0 0" ]
}

# sampled NAME: a sample of what was filled in; sets `hits`
sampled() {
  phase=$((phase + 1))
  ask "$1" sample --count "$sample" --seed "$phase" --first 0 --of "$entries"
  hits=$(field "$result" hits)
}

# start_on PATH: starts larder with the policy on a path, and waits until what is on it is loaded
start_on() {
  admin_port=$(free_port)
  launch "$row.$where" --disk "$1" "${size_flags[@]}" --policy "$row" --memory-cache 0 \
    --mean-object-size 4KiB --origin "http://127.0.0.1:$origin_port" --admin "127.0.0.1:$admin_port"
  await 30 loaded || fail "$row on $where: the store never said that it is loaded"
}
loaded() { python3 - "$admin_port" <<'P'
import sys, urllib.request
try:
    page = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=5).read().decode()
except OSError:
    sys.exit(1)
sys.exit("larder_store_loaded 1" not in page.splitlines())
P
}

# round WHERE PATH: all phases of the policy on a path
round() {
  where=$1 phase=0
  local path=$2 filled running stopped killed load promised
  start_on "$path"
  ask "$row on $where, fill" fetch --first 0 --count "$entries"
  filled=$(field "$result" requests)
  sleep 1.1 # everything is to be older than a second
  sampled "$row on $where, running"; running=$hits

  end TERM "$larder_pid"
  verdict "$row on $where: clean stop with code 0" [ $? -eq 0 ]
  start_on "$path"
  sampled "$row on $where, after a clean stop"; stopped=$hits
  verdict "$row on $where: a clean stop loses at most 5% of the hits ($stopped after $running)" \
    [ $((stopped * 100)) -ge $((running * 95)) ]

  python3 "$here/synthetic.py" fetch --port "$larder_port" --first 1000000 --count 1000000 --log "$stage/load.log" \
    > "$stage/load.result" &
  load=$!
  pids+=("$load")
  await 60 under_load || fail "$row on $where: the load never got going"
  end KILL "$larder_pid"
  end TERM "$load"
  undamaged "$row on $where, killed" "$path"
  promised=$("$LARDER_BIN" store info "$path" 2>&1 | sed -n 's/^ *kill -9 *keeps //p')
  start_on "$path"
  sampled "$row on $where, after kill -9"; killed=$hits
  # A table on disk keeps what was written, but what comes takes the place of what was there.
  case $promised in
    "all but "*) verdict "$row on $where: kill -9 leaves $promised ($killed hits after $stopped)" \
      [ $((killed * 100)) -ge $((stopped * 95)) ] ;;
    "everything "*) ;;
    *) fail "$row on $where: larder store info says nothing of what kill -9 leaves: $promised" ;;
  esac
  ask "$row on $where, what was loading when it was killed" sample --log "$stage/load.log" --before 9e9 --count "$sample"
  local line
  line=$(printf '%-20s %-9s %7d %8d %11d %9d %13d' \
    "$row" "$where" "$filled" "$running" "$stopped" "$killed" "$(field "$result" hits)")
  echo "HITS  $line"
  table+="$line"$'\n'
  end TERM "$larder_pid"
  undamaged "$row on $where, stopped after the kill" "$path"
  rm -f "$stage/load.log"
}
# undamaged NAME PATH: nothing in the store is damaged, and the start after the kill reported no error
undamaged() {
  local code=0
  "$LARDER_BIN" store check "$2" > "$stage/check" 2>&1 </dev/null || code=$?
  verdict "$1: no damage ($(tail -1 "$stage/check"))" [ "$code" -eq 0 ]
  verdict "$1: no error" [ "$(grep -c ERROR "$stage/$row.$where.log")" -eq 0 ]
}
under_load() { [ -f "$stage/load.log" ] && [ "$(wc -l < "$stage/load.log")" -ge $((entries / 5)) ]; }

table=
echo "policies: ${rows[*]}"
for row in "${rows[@]}"; do
  echo
  echo "--- $row"
  mkdir -p "$stage/$row"
  size_flags=(--size "$size")
  # A policy of one file makes it in the directory; one with a file per entry takes the directory.
  round directory "$stage/$row"
  if [ "$loop" = yes ] && [ -f "$stage/$row/store.larder" ]; then
    rm -rf "${stage:?}/$row"
    truncate -s "$(numfmt --from=iec-i --suffix=B "$size" | tr -d B)" "$stage/$row.image"
    device=$(losetup --find --show --direct-io=on "$stage/$row.image") || { fail "$row: no loop device"; continue; }
    loops+=("$device")
    size_flags=()
    if "$LARDER_BIN" store format "$device" --policy "$row" > "$stage/$row.format" 2>&1 </dev/null; then
      round loop "$device"
    else
      fail "$row: cannot format $device: $(tr -s '\n' ' ' < "$stage/$row.format")"
    fi
    losetup -d "$device"
    rm -f "$stage/$row.image"
  fi
  rm -rf "${stage:?}/$row"
done

echo
printf '%-20s %-9s %7s %8s %11s %9s %13s\n' policy on filled running clean-stop kill-9 "load, kill-9"
printf '%s' "$table"
echo "hits of $sample sampled in each phase"
summary
