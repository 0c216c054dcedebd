#!/usr/bin/env bash
# Chromium and an intercepted https:// site: our authority in its own store (NSS), led by our PAC script; a page with 50 images, by a fresh
# profile each time, so that only the proxy can remember; and once more with the origin gone.
#
#   tests/real/intercept_browser.sh        half a minute
. "$(dirname "$0")/stage.sh"
need chromium:chromium certutil:libnss3-tools openssl:openssl python3:python3 curl:curl
export HOME=$stage/home
mkdir -p "$HOME/.pki/nssdb"
certutil -d "sql:$HOME/.pki/nssdb" -N --empty-password

# The origin is known to Larder alone.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE \
  -keyout "$stage/origin.key" -out "$stage/origin.pem" 2>/dev/null
cat > "$stage/origin.py" <<'P'
import http.server, ssl, struct, sys, threading, zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

def png(number):
    row = b"\0" + bytes([number * 5, 255 - number * 5, 128]) * 32
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(row * 32)) + chunk(b"IEND", b"")

script = """addEventListener("load", () => {
  const loaded = [...document.images].filter(image => image.naturalWidth === 32).length;
  document.body.insertAdjacentHTML("beforeend", `<p id=count>loaded ${loaded} of ${document.images.length}</p>`);
});"""
page = f"<!doctype html><title>images</title><body>{''.join(f'<img src={number}.png>' for number in range(50))}<script>{script}</script>"

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        # One piece: requests come on several threads.
        sys.stdout.write(f"{self.path} {self.headers['Host']}\n")
        sys.stdout.flush()
        name = self.path.removeprefix("/").removesuffix(".png")
        kind, body = ("image/png", png(int(name))) if name.isdigit() else ("text/html", page.encode())
        self.send_response(200)
        for field in [("Cache-Control", "max-age=600"), ("Content-Type", kind), ("Content-Length", str(len(body)))]:
            self.send_header(*field)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[3], sys.argv[4])
secure = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
threading.Thread(target=secure.serve_forever, daemon=True).start()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
P
tls_port=$(free_port)
plain_port=$(free_port)
python3 "$stage/origin.py" "$tls_port" "$plain_port" "$stage/origin.pem" "$stage/origin.key" > "$stage/origin.log" 2>"$stage/origin.err" </dev/null &
origin_pid=$!
pids+=("$origin_pid")
await 10 answers "$tls_port"

"$LARDER_BIN" ca init --dir "$stage/ca" --host shop.example > /dev/null || exit 1
# No resolver knows the name: a site says where it is.
cat > "$stage/larder.toml" <<C
offline = "auto"
origin_ca_file = "$stage/origin.pem"
[store]
path = "$stage/store.larder"
size = "64MiB"
[log]
access = "$stage/access.log"
[[site]]
hosts = ["shop.example"]
origin = "https://localhost:$tls_port"
[forward]
enabled = true
[intercept]
hosts = ["shop.example"]
ca_dir = "$stage/ca"
[pac]
hosts = ["shop.example"]
C
launch larder --config "$stage/larder.toml"

# browse NAME URL: as a user with a fresh profile, led by the script
browse() {
  timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --disable-dev-shm-usage --user-data-dir="$stage/profile.$1" \
    --host-resolver-rules="MAP direct.example 127.0.0.1" --proxy-pac-url="http://127.0.0.1:$larder_port/proxy.pac" \
    --dump-dom "$2" > "$stage/dom.$1" 2> "$stage/chromium.$1.log"
}
shows() { grep -q 'loaded 50 of 50' "$stage/dom.$1"; }
images() { grep -cE '^/[0-9]+\.png' "$stage/origin.log"; }

browse stranger https://shop.example/
verdict "a browser that was not told of the authority shows nothing" eval '! shows stranger'
"$LARDER_BIN" ca trust --dir "$stage/ca" --system-store "$stage" > "$stage/trust.out" 2>&1
verdict "larder ca trust: the browsers' store has it" grep -q larder <(certutil -d "sql:$HOME/.pki/nssdb" -L | tr A-Z a-z)
browse first https://shop.example/
verdict "the first time all 50 images are shown" shows first
verdict "and the origin was asked for each once" [ "$(images)" -eq 50 ]
browse second https://shop.example/
verdict "the second time all 50 images are shown" shows second
verdict "and the origin was asked for none" [ "$(images)" -eq 50 ]
browse past "http://direct.example:$plain_port/"
verdict "a host that is not intercepted is shown" shows past
verdict "and led past Larder" eval '! grep -q direct.example "$stage/access.log" && grep -q "direct.example" "$stage/origin.log"'
end TERM "$origin_pid"
browse cut https://shop.example/
verdict "with the origin gone all 50 images are shown" shows cut
"$LARDER_BIN" ca trust --undo --dir "$stage/ca" --system-store "$stage" > "$stage/undo.out" 2>&1
verdict "larder ca trust --undo: the browsers' store has it no more" eval '! certutil -d "sql:$HOME/.pki/nssdb" -L | grep -qi larder'
summary
