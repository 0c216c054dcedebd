#!/usr/bin/env bash
# git through a rule with `git = true`: the second clone costs the server no pack, whoever makes it, and a clone is made with the server gone.
#
#   tests/real/git.sh          about a minute
. "$(dirname "$0")/stage.sh"
need git:git python3:python3 curl:curl
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_TERMINAL_PROMPT=0
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example

mkdir "$stage/repositories" "$stage/clones"
git init --quiet --bare -b main "$stage/repositories/tool.git"
git -C "$stage/repositories/tool.git" config http.receivepack true
git -C "$stage/repositories/tool.git" config uploadpack.allowFilter true
git init --quiet -b main "$stage/work"
add() {
  for number in $(seq "$1" "$2"); do
    head -c 200000 /dev/urandom | base64 > "$stage/work/file$number"
    git -C "$stage/work" add . && git -C "$stage/work" commit --quiet -m "commit $number"
  done
}
add 1 20
git -C "$stage/work" push --quiet "$stage/repositories/tool.git" main

server_port=$(free_port)
python3 "$here/git_server.py" "$server_port" "$stage/repositories" >"$stage/server.log" 2>&1 </dev/null &
server_pid=$!
pids+=("$server_pid")
await 30 answers "$server_port"

cat > "$stage/git.toml" <<C
[[rule]]
git = true
C
launch git --config "$stage/git.toml" --origin "http://127.0.0.1:$server_port" --allow-target 127.0.0.0/8 --disk "$stage/store" --size 256MiB
url=http://127.0.0.1:$larder_port/tool.git
sent() { curl -s "http://127.0.0.1:$server_port/sent"; }
# packs NAME yes|no COMMAND...: the command succeeds, and the server sends a pack for it, or none
packs() {
  local before after was
  before=$(sent)
  if ! "${@:3}" >"$stage/out" 2>&1; then
    fail "$1: $(tail -3 "$stage/out")"
    return
  fi
  after=$(sent)
  was=no
  [ "${before% *}" = "${after% *}" ] || was=yes
  verdict "$1: packs of $(( ${after% *} - ${before% *} )) bytes, all else $(( ${after#* } - ${before#* } )) bytes from the server" [ "$was" = "$2" ]
}
head_of() { git -C "$1" rev-parse HEAD; }
# same CLONE: it is sound, and what was pushed last
same() { verdict "$1 is what was pushed" eval "git -C $stage/clones/$1 fsck --strict >/dev/null 2>&1 && [ $(head_of "$stage/clones/$1") = $(head_of "$stage/work") ]"; }

packs "first clone" yes git clone --quiet "$url" "$stage/clones/a"; same a
packs "second clone" no git clone --quiet "$url" "$stage/clones/b"; same b
packs "shallow clone" yes git clone --quiet --depth 1 "$url" "$stage/clones/c"; same c
packs "shallow clone again" no git clone --quiet --depth 1 "$url" "$stage/clones/d"; same d
packs "clone without blobs" yes git clone --quiet --filter=blob:none --no-checkout "$url" "$stage/clones/e"
packs "clone by protocol v0, past the cache" no git -c protocol.version=0 clone --quiet "$url" "$stage/clones/f"; same f
add 21 25
packs "push" no git -C "$stage/work" push --quiet "$url" main
packs "fetch of what is new" yes git -C "$stage/clones/a" pull --quiet; same a
packs "the same fetch elsewhere" no git -C "$stage/clones/b" pull --quiet; same b
packs "clone after the push" yes git clone --quiet "$url" "$stage/clones/g"; same g
# What was stored longer ago than a second outlives it.
sleep 2
end KILL "$larder_pid"
LISTEN_PORT=$larder_port launch git --config "$stage/git.toml" --origin "http://127.0.0.1:$server_port" --allow-target 127.0.0.0/8 --disk "$stage/store" --size 256MiB
packs "clone after kill -9 of larder" no git clone --quiet "$url" "$stage/clones/h"; same h
end TERM "$server_pid"
verdict "clone with the server gone" git clone --quiet "$url" "$stage/clones/i"; same i
summary
