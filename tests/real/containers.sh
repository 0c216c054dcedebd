#!/usr/bin/env bash
# A registry of containers behind the mirror `oci`: Debian's docker-registry and skopeo, an empty Larder, a warm one, and a warm one without
# the registry; a blob that is not what its digest says; and a registry that wants user and password.
#
#   tests/real/containers.sh         needs a release build (or LARDER_BIN), docker-registry and skopeo; no network

source "$(dirname "$0")/stage.sh"
need curl:curl python3:python3 docker-registry:docker-registry skopeo:skopeo htpasswd:apache2-utils

# An image of one layer of 3 MB.
python3 - "$stage/image" <<'P'
import gzip, hashlib, io, json, os, random, sys, tarfile
root = sys.argv[1]
os.makedirs(f"{root}/blobs/sha256")
def blob(data, kind):
    digest = hashlib.sha256(data).hexdigest()
    open(f"{root}/blobs/sha256/{digest}", "wb").write(data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}
raw = io.BytesIO()
with tarfile.open(fileobj=raw, mode="w") as tar:
    entry = tarfile.TarInfo("data"); entry.size = 3 << 20
    tar.addfile(entry, io.BytesIO(random.Random(1).randbytes(3 << 20)))
layer = blob(gzip.compress(raw.getvalue(), mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip")
config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers",
    "diff_ids": ["sha256:" + hashlib.sha256(raw.getvalue()).hexdigest()]}}).encode()
manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "config": blob(config, "application/vnd.oci.image.config.v1+json"), "layers": [layer]}).encode()
entry = blob(manifest, "application/vnd.oci.image.manifest.v1+json")
json.dump({"schemaVersion": 2, "manifests": [{**entry, "annotations": {"org.opencontainers.image.ref.name": "1"}}]}, open(f"{root}/index.json", "w"))
json.dump({"imageLayoutVersion": "1.0.0"}, open(f"{root}/oci-layout", "w"))
open(f"{root}/../layer", "w").write(layer["digest"].split(":")[1])
P
layer=$(cat "$stage/layer")

# registry NAME [LINE...]: a registry on a free port; sets registry_pid and registry_port
registry() {
  local name=$1; shift
  registry_port=$(free_port)
  { printf 'version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: %s\nhttp:\n  addr: 127.0.0.1:%s\n' "$stage/$name" "$registry_port"; printf '%b' "$*"; } > "$stage/$name.yml"
  docker-registry serve "$stage/$name.yml" > "$stage/$name.log" 2>&1 &
  registry_pid=$!
  pids+=("$registry_pid")
  await 20 answers "$registry_port" || { echo "the registry does not start" >&2; exit 1; }
}

# pull PORT TO [FLAG...]: the image through Larder
pull() { local port=$1 to=$2; shift 2; rm -rf "$to"; skopeo copy -q --src-tls-verify=false "$@" "docker://127.0.0.1:$port/team/app:1" "dir:$to" 2> "$to.log"; }

# mirror NAME: a Larder before the registry
mirror() { admin_port=$(free_port); launch "$1" --disk "$stage/$1-store" --size 256MB --admin "$admin_port" --mirror oci --origin-of "oci=http://127.0.0.1:$registry_port"; }

registry open
skopeo copy -q --dest-tls-verify=false "oci:$stage/image:1" "docker://127.0.0.1:$registry_port/team/app:1" || exit 1
mirror first
verdict "empty: the image is pulled" pull "$larder_port" "$stage/empty"
from_origin=$(figure larder_origin_bytes_total)
verdict "warm: the image is pulled" pull "$larder_port" "$stage/warm"
again=$(( $(figure larder_origin_bytes_total) - from_origin ))
verdict "warm: the same image" diff -r "$stage/empty" "$stage/warm"
verdict "warm: of $from_origin bytes of bodies none but small ones cross again ($again)" [ "$again" -lt 4096 ]
end TERM "$registry_pid"
verdict "without the registry: the image is pulled" pull "$larder_port" "$stage/cut"
verdict "without the registry: the same image" diff -r "$stage/empty" "$stage/cut"
end TERM "$larder_pid"

registry open
file=$stage/open/docker/registry/v2/blobs/sha256/${layer:0:2}/$layer/data
cp "$file" "$stage/right"
printf 'x' | dd of="$file" bs=1 seek=100000 conv=notrunc status=none
mirror second
url=http://127.0.0.1:$larder_port/v2/team/app/blobs/sha256:$layer
verdict "a blob that is not what its digest says breaks off" bash -c "! curl -sSf -o '$stage/broken' '$url' 2>/dev/null"
verdict "the image with it is not pulled" bash -c "! skopeo copy -q --src-tls-verify=false docker://127.0.0.1:$larder_port/team/app:1 dir:$stage/wrong 2>/dev/null"
cp "$stage/right" "$file"
verdict "and nothing of it was stored" pull "$larder_port" "$stage/mended"
verdict "which is the image" diff -r "$stage/empty" "$stage/mended"
end TERM "$larder_pid"
end TERM "$registry_pid"

htpasswd -Bbc "$stage/users" a secret 2>/dev/null
cp -r "$stage/open" "$stage/closed"
registry closed "auth:\n  htpasswd:\n    realm: team\n    path: $stage/users\n"
mirror third
verdict "with a password: the image is pulled" pull "$larder_port" "$stage/user" --src-creds a:secret
verdict "with a password: again" pull "$larder_port" "$stage/user-again" --src-creds a:secret
verdict "with a wrong password: it is not, though it is stored" bash -c "! skopeo copy -q --src-tls-verify=false --src-creds a:wrong docker://127.0.0.1:$larder_port/team/app:1 dir:$stage/wrong-user 2>/dev/null"
verdict "without one: it is not" bash -c "! skopeo copy -q --src-tls-verify=false --src-no-creds docker://127.0.0.1:$larder_port/team/app:1 dir:$stage/nobody 2>/dev/null"
summary
