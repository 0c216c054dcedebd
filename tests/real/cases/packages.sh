# pip and npm: a package of its own making, twice, each time with an empty cache; through the forward proxy, and from larder
# as the server of the index over TLS. Then apt and the browser over TLS, the browser over HTTP/2.
mkdir -p "$stage/www/pip/simple/larder-test" "$stage/www/npm" "$stage/www/files"
tls_port=$(free_port)
launch packages-tls --disk none --listen-tls "127.0.0.1:$tls_port" --certificate "$origin_certificate,$stage/origin.key" \
  --origin "http://127.0.0.1:$origin_port"
packages_pid=$larder_pid
python3 - "$stage/www" "http://127.0.0.1:$origin_port" "https://localhost:$tls_port" <<'P'
import base64, hashlib, io, json, os, sys, tarfile, zipfile
root, plain, tls = sys.argv[1:]
wheel = f"{root}/files/larder_test-1.0-py3-none-any.whl"
with zipfile.ZipFile(wheel, "w") as archive:
    archive.writestr("larder_test/__init__.py", "WORD = 'kept'\n" + "# filling\n" * 20000)
    archive.writestr("larder_test-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: larder-test\nVersion: 1.0\n")
    archive.writestr("larder_test-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: larder\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    archive.writestr("larder_test-1.0.dist-info/RECORD", "larder_test/__init__.py,,\nlarder_test-1.0.dist-info/METADATA,,\nlarder_test-1.0.dist-info/WHEEL,,\nlarder_test-1.0.dist-info/RECORD,,\n")
name = os.path.basename(wheel)
open(f"{root}/pip/simple/larder-test/index.html", "w").write(f'<!doctype html><a href="../../../files/{name}">{name}</a>')
tarball = io.BytesIO()
with tarfile.open(fileobj=tarball, mode="w:gz") as archive:
    for path, text in (("package/package.json", json.dumps({"name": "larder-test", "version": "1.0.0"})), ("package/index.js", "module.exports = 'kept';\n" * 2000)):
        info = tarfile.TarInfo(path)
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text.encode()))
open(f"{root}/files/larder-test-1.0.0.tgz", "wb").write(tarball.getvalue())
integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball.getvalue()).digest()).decode()
for folder, base in (("plain", plain), ("tls", tls)):
    os.makedirs(f"{root}/npm/{folder}")
    version = {"name": "larder-test", "version": "1.0.0", "dist": {"tarball": f"{base}/files/larder-test-1.0.0.tgz", "integrity": integrity}}
    json.dump({"name": "larder-test", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}, open(f"{root}/npm/{folder}/larder-test", "w"))
P
age "$stage"/www/files/*

# twice NAME FILE COMMAND...: both turns succeed, and the file was asked for once at the origin
twice() {
  local name=$1 file=$2 turn before; shift 2
  before=$(origin_count "^GET /files/$file ")
  for turn in first second; do
    "$@" "$stage/$name.$turn" > "$stage/$name.$turn.log" 2>&1 </dev/null
    verdict "$name: $turn time it is installed whole" [ $? -eq 0 ]
  done
  verdict "$name: one request for the package reached the origin" [ $(( $(origin_count "^GET /files/$file ") - before )) -eq 1 ]
}
pip_into() {
  python3 -m pip --isolated --disable-pip-version-check --no-cache-dir install --no-deps --target "${!#}" "${@:1:$#-1}" larder-test &&
    PYTHONPATH=${!#} python3 -c 'import larder_test; assert larder_test.WORD == "kept"'
}
npm_into() {
  mkdir -p "${!#}" && (cd "${!#}" && HOME=$PWD npm install --no-audit --no-fund --cache "$PWD/cache" "${@:1:$#-1}" larder-test &&
    node -e 'process.exit(require("larder-test") === "kept" ? 0 : 1)')
}
wheel='larder_test-1.0-py3-none-any\.whl' tarball='larder-test-1\.0\.0\.tgz'
twice pip-forward "$wheel" pip_into --proxy "$proxy" --index-url "http://127.0.0.1:$origin_port/pip/simple"
twice npm-forward "$tarball" npm_into --proxy "$proxy" --noproxy= --registry "http://127.0.0.1:$origin_port/npm/plain/"
twice pip-tls "$wheel" pip_into --cert "$origin_ca" --index-url "https://localhost:$tls_port/pip/simple"
twice npm-tls "$tarball" npm_into --cafile "$origin_ca" --registry "https://localhost:$tls_port/npm/tls/"
# Inside a tunnel the proxy sees nothing, so nothing is kept; it still has to work.
pip_into --proxy "$proxy" --cert "$origin_ca" --index-url "https://localhost:$origin_tls_port/pip/simple" "$stage/pip-connect" \
  > "$stage/pip-connect.log" 2>&1
verdict "pip through CONNECT" [ $? -eq 0 ]

if [ -d "$stage/www/apt" ]; then
  for turn in first second; do
    state=$stage/apt.tls.$turn
    mkdir -p "$state/state/lists/partial" "$state/cache/archives/partial" "$state/etc" "$state/download"
    : > "$state/status"
    echo "deb [trusted=yes] https://localhost:$tls_port/apt ./" > "$state/etc/sources.list"
    options=(-o "Dir::Etc=$state/etc" -o Dir::Etc::sourcelist=sources.list -o Dir::Etc::sourceparts=- -o Dir::Etc::parts=-
      -o "Dir::State=$state/state" -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache"
      -o APT::Sandbox::User=root -o "Acquire::https::CaInfo=$origin_ca" -o Acquire::Languages=none)
    before=$(origin_count '^GET /apt/.*\.deb ')
    (apt-get "${options[@]}" -qq update && cd "$state/download" && apt-get "${options[@]}" -qq download larder-test-{1,2,3,4,5}) \
      > "$stage/apt.tls.$turn.log" 2>&1
    verdict "apt over TLS: $turn download of five packages" [ $? -eq 0 ]
    asked=$(( $(origin_count '^GET /apt/.*\.deb ') - before ))
  done
  verdict "apt over TLS: the second time no package was asked for at the origin" [ "$asked" -eq 0 ]
fi
if [ -d "$stage/www/page" ]; then
  before=$(origin_count '^GET /page/[0-9]+\.png ')
  for turn in first second; do
    mkdir -p "$stage/profile.tls.$turn"
    HOME=$stage/profile.tls.$turn timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
      --disable-background-networking --disable-component-update --disable-sync --disable-dev-shm-usage \
      --ignore-certificate-errors --user-data-dir="$stage/profile.tls.$turn" --log-net-log="$stage/net.$turn.json" \
      --dump-dom "https://localhost:$tls_port/page/index.html" > "$stage/dom.tls.$turn" 2> "$stage/chromium.tls.$turn.log"
    verdict "browser over HTTP/2: $turn time all 50 images are shown" grep -q 'loaded 50 of 50' "$stage/dom.tls.$turn"
    verdict "browser over HTTP/2: 50 image requests reached the origin" \
      [ $(( $(origin_count '^GET /page/[0-9]+\.png ') - before )) -eq 50 ]
  done
  verdict "browser over HTTP/2: it is what was spoken" grep -q 'HTTP2_SESSION' "$stage/net.second.json"
fi
end TERM "$packages_pid"
