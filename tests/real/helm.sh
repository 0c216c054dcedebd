#!/usr/bin/env bash
# The Helm chart: `helm lint` finds nothing, every set of values renders all objects, and `larder config check` accepts
# the rendered larder.toml, with what the values asked for in it.
#
#   tests/real/helm.sh
#
# Environment: HELM, the program (default helm in PATH); KUBE, the version of Kubernetes to render for (1.30.0).
. "$(dirname "$0")/stage.sh"
need python3:python3
HELM=${HELM:-helm}
if ! command -v "$HELM" >/dev/null; then
  echo "no program $HELM: see https://helm.sh/docs/intro/install, or set HELM" >&2
  exit 2
fi
chart=$root/deploy/helm/larder
export HOME=$stage

# render NAME ARGUMENTS...: renders the chart into $stage/NAME.yaml and its configuration file into $stage/NAME.toml
render() {
  local name=$1
  shift
  "$HELM" template larder "$chart" --kube-version "${KUBE:-1.30.0}" "$@" >"$stage/$name.yaml" 2>"$stage/$name.err" || return 1
  python3 - "$stage/$name.yaml" "$stage/$name.toml" "$stage/fleet.secret" "$stage" <<'P'
import re, sys
text = open(sys.argv[1]).read()
block = re.search(r"^  larder\.toml: \|\n((?:    .*\n|\n)*)", text, re.M).group(1)
toml = "".join(line[4:] if line.startswith("    ") else line for line in block.splitlines(True))
# In a pod the secret is a file, the store's folder is a volume, and the node's name is the host's.
toml = toml.replace("/run/larder/fleet.secret", sys.argv[3]).replace("/var/cache/larder/", sys.argv[4] + "/")
open(sys.argv[2], "w").write('node = "larder-0"\n' + toml)
P
}

# accepted NAME: whether `larder config check` accepts the rendered configuration of the first pod
accepted() { "$LARDER_BIN" config check "$stage/$1.toml" >"$stage/$1.check" 2>&1; }

# objects NAME: the kinds of the rendered objects in one line
objects() { sed -n 's/^kind: //p' "$stage/$1.yaml" | sort | tr '\n' ' '; }

(umask 077; echo "a secret of a fleet, of some length" > "$stage/fleet.secret")
"$HELM" lint "$chart" >"$stage/lint" 2>&1
verdict "helm lint finds no error" grep -q "0 chart(s) failed" "$stage/lint"

verdict "the defaults render" render default
verdict "with all objects" [ "$(objects default)" = "ConfigMap PodDisruptionBudget Secret Service Service StatefulSet " ]
verdict "their configuration is accepted" accepted default

printf 'sections: |\n  [[site]]\n  hosts = ["www.example.com"]\n  origin = "http://web.default.svc.cluster.local"\n' > "$stage/site.yaml"
verdict "five nodes with a site, tokens and another secret render" render site -f "$stage/site.yaml" --set replicas=5 \
  --set fleet.existingSecret=own --set admin.tokensSecret=tokens --set fleet.siblings=false --set store.size=90GB
verdict "with five nodes" [ "$(grep -o 'larder-[0-9]=' "$stage/site.toml" | sort -u | wc -l)" -eq 5 ]
verdict "without a secret of the chart's own" [ "$(grep -c '^kind: Secret' "$stage/site.yaml")" -eq 0 ]
verdict "with the size of the store" grep -q 'size = "90GB"' "$stage/site.toml"
sed -i '/^tokens/s#"[^"]*"#"'"$stage/fleet.secret"'"#' "$stage/site.toml"
verdict "its configuration is accepted" accepted site

verdict "a reverse proxy for one origin renders" render origin --set origin=http://web.default.svc.cluster.local
verdict "with its origin" grep -q '^origin = "http://web.default.svc.cluster.local"' "$stage/origin.toml"
verdict "its configuration is accepted" accepted origin

render wrong --set-string top='lisen = ["3128"]'
verdict "a wrong key in the values is refused by its name" [ "$(accepted wrong; grep -c 'unknown key `lisen`' "$stage/wrong.check")" -eq 1 ]
[ "$failed" -eq 0 ] || cat "$stage"/*.err "$stage"/*.check
summary
