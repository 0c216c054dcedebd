#!/usr/bin/env bash
# Plan against reality: measures this disk, plans five rows with the figures, and measures the same rows on the same disk.
#
#   bench/plan_check.sh [DIRECTORY]     on the disk to be measured, default /var/tmp
#
# Environment: LARDER (the program; default the release build), ROWS, SIZE (of each store, 2GiB), MEAN (16KiB), TIME (20s a row), DEVICE_TIME (40s).
# A ratio of 1.00 is a plan that came true; quiet the machine first, because whatever else runs is in the measurement.
set -euo pipefail
cd "$(dirname "$0")/.."
larder=${LARDER:-${CARGO_TARGET_DIR:-target}/release/larder}
directory=${1:-/var/tmp}
figures=$(mktemp)
trap 'rm -f "$figures"' EXIT
"$larder" bench device "$directory" --size "${SIZE:-2GiB}" --time "${DEVICE_TIME:-40s}" --json "$figures"
echo
"$larder" bench store "$directory" --device "$figures" --size "${SIZE:-2GiB}" --mean-object-size "${MEAN:-16KiB}" --time "${TIME:-20s}" \
  --policy "${ROWS:-log,stream,hashcache-set,hashcache-setmem,squid}"
