#!/usr/bin/env bash
# Reads of the device for a page of eleven objects, through the program, after a restart: many pages are viewed at once, each
# object some time after the one before. Settings are the shipped ones.
#
#   tests/real/pages.sh                              40 pages at once, views of 1 and 10 s
#   AT_ONCE="5 10" SECONDS_EACH=2 POLICY=ucfs SIZE=4GiB MEMORY=1GB tests/real/pages.sh
#
# Passes if every page is found again without a wrong byte, in at most READS_MAX reads a page (3).
. "$(dirname "$0")/stage.sh"
need python3:python3 curl:curl
policy=${POLICY:-hashcache-log}
origin_port=$(free_port)
admin_port=$(free_port)
tool() { python3 "$here/pages.py" "$@"; }
tool serve --port "$origin_port" &
pids+=("$!")
await 10 answers "$origin_port" || { echo "the origin did not start" >&2; exit 1; }

# start NAME: with the store of this name
start() {
  launch "$1" --disk "$stage/$1.larder" --size "${SIZE:-1GiB}" --memory "${MEMORY:-256MB}" --policy "$policy" \
    --origin "http://127.0.0.1:$origin_port" --admin "127.0.0.1:$admin_port"
}

echo "| policy | store | memory | pages at once | page takes, s | reads a page |"
for at_once in ${AT_ONCE:-40}; do
  for seconds in ${SECONDS_EACH:-1 10}; do
    name=pages-$at_once-$seconds
    start "$name"
    tool view --port "$larder_port" --at-once "$at_once" --seconds "$seconds" || fail "$name: a view"
    end TERM "$larder_pid"
    start "$name"
    await 30 curl -sfo "$stage/ready" "http://127.0.0.1:$admin_port/metrics"
    before=$(figure larder_store_reads_total)
    hits=$(tool again --port "$larder_port" --at-once "$at_once")
    reads=$(( $(figure larder_store_reads_total) - before ))
    end TERM "$larder_pid"
    rm -f "$stage/$name.larder"
    a_page=$(python3 -c "print(f'{$reads / 100:.2f}')")
    echo "| $policy | ${SIZE:-1GiB} | ${MEMORY:-256MB} | $at_once | $seconds | $a_page |"
    verdict "$name: all of 100 pages are found" [ "$hits" = 1100 ]
    verdict "$name: at most ${READS_MAX:-3} reads a page" at_most "$a_page" "${READS_MAX:-3}"
  done
done
summary
