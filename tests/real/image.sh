#!/usr/bin/env bash
# The container from scratch: built, started as its own user with a read-only root and without capabilities, asked twice, purged by a
# command in it, stopped. No registry is contacted.
#
#   tests/real/image.sh [FOLDER]        default: target/dist (`cargo xtask dist` makes it)
#
# Needs root, buildah, podman and a runtime of containers (RUNTIME, by default runc).
. "$(dirname "$0")/stage.sh"

LARDER_BIN=/bin/true need buildah:buildah podman:podman runc:runc python3:python3 curl:curl
results=${1:-$root/target/dist}
ls "$results"/larder-rootfs-*.tar > /dev/null 2>&1 || { echo "no image; make it with cargo xtask dist" >&2; exit 2; }
printf '[storage]\ndriver = "vfs"\nrunroot = "%s/run"\ngraphroot = "%s/graph"\n' "$stage" "$stage" > "$stage/storage.conf"
# The limits of this shell, because raising them needs a capability that not every root has.
printf '[containers]\ndefault_ulimits = []\n[engine]\nruntime = "%s"\ncgroup_manager = "cgroupfs"\n' "${RUNTIME:-runc}" > "$stage/containers.conf"
export CONTAINERS_STORAGE_CONF=$stage/storage.conf CONTAINERS_CONF=$stage/containers.conf
port=$(free_port)
pages=$(free_port)
(cd "$stage" && echo 'a page' > page && touch -d '30 days ago' page && exec python3 -m http.server "$pages" --bind 127.0.0.1 > /dev/null 2>&1) &
pids+=($!)

verdict "the image is built from scratch" buildah bud -q --isolation chroot -f "$root/packaging/Containerfile" --build-arg ARCH="$(uname -m)" -t larder "$results"
echo "        $(podman image inspect larder --format '{{.Size}}') bytes"
# The host's network, because the origin and the client are on loopback here.
podman run -d --name larder-trial --network host --read-only --tmpfs /tmp --cap-drop ALL -v larder-trial:/var/cache/larder larder \
  run --listen "127.0.0.1:$port" --allow-target 127.0.0.0/8 --size auto > "$stage/run.log" 2>&1 || cat "$stage/run.log"
ask() { curl -s -o /dev/null -w '%{http_code} %header{cache-status}\n' -x "http://127.0.0.1:$port" "http://127.0.0.1:$pages/page"; }
up() { podman logs larder-trial 2>&1 | grep -q '^  try '; }
await 20 up
podman logs larder-trial 2>&1 | sed 's/^/        /'
verdict "it starts" up
verdict "the first response comes from the origin" grep -q 'fwd=uri-miss' <(ask)
await 5 grep -q 'Larder; hit' <(ask)
verdict "the second one is a hit" grep -q 'Larder; hit' <(ask)
verdict "it runs as a user that is not root" [ "$(podman inspect larder-trial --format '{{.Config.User}}')" = 65532:65532 ]
verdict "a command in it reaches it" podman exec larder-trial larder purge "http://127.0.0.1:$pages/page"
verdict "and is carried out" grep -q 'fwd=uri-miss' <(ask)
verdict "it stops at SIGTERM" podman stop -t 20 larder-trial
verdict "with exit code 0" [ "$(podman inspect larder-trial --format '{{.State.ExitCode}}')" = 0 ]
podman rm -f larder-trial > /dev/null 2>&1
podman volume rm -f larder-trial > /dev/null 2>&1
summary
