# WebSocket, server-sent events and gRPC with their own libraries, through a reverse proxy; WebSocket from Chromium over
# HTTP/2 too (RFC 8441).
python=/usr/bin/python3
socket_port=$(free_port) event_port=$(free_port) grpc_port=$(free_port)
$python "$here/streams.py" serve "$socket_port" "$event_port" "$grpc_port" 2> "$stage/streams.log" &
pids+=("$!")
await 20 answers "$socket_port" && await 20 answers "$event_port" && await 20 answers "$grpc_port"
forward_port=$larder_port
for kind in socket event grpc; do
  port=${kind}_port scheme=http
  [ "$kind" = grpc ] && scheme=h2c
  launch "$kind" --disk none --origin "$scheme://127.0.0.1:${!port}"
  verdict "streams: $kind" timeout 60 $python "$here/streams.py" "$kind" "$larder_port"
done

# The second script is none, but it comes for two seconds, and the page is not printed before.
mkdir -p "$stage/www/page/socket"
cat > "$stage/www/page/socket/index.html" <<'P'
<!doctype html><title>socket</title><body><script>
const socket = new WebSocket(`wss://${location.host}/chat`);
const note = text => document.body.insertAdjacentHTML("beforeend", `<p>the socket says ${text}</p>`);
socket.onopen = () => socket.send("hello");
socket.onmessage = event => note(event.data);
socket.onerror = () => note("an error");
</script><script async src="/events"></script>
P
tls_port=$(free_port)
cat > "$stage/socket.toml" <<C
[[site]]
hosts = ["localhost"]
paths = ["/chat"]
origin = "http://127.0.0.1:$socket_port"
[[site]]
hosts = ["localhost"]
paths = ["/events"]
origin = "http://127.0.0.1:$event_port"
[[site]]
hosts = ["localhost"]
origin = "http://127.0.0.1:$origin_port"
C
launch browser --disk none --config "$stage/socket.toml" --access-log "$stage/socket.log" --log-format json \
  --listen-tls "127.0.0.1:$tls_port" --certificate "$origin_certificate,$stage/origin.key"
mkdir -p "$stage/profile.socket"
HOME=$stage/profile.socket timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
  --disable-background-networking --disable-component-update --disable-sync --disable-dev-shm-usage \
  --ignore-certificate-errors --user-data-dir="$stage/profile.socket" \
  --dump-dom "https://localhost:$tls_port/page/socket/index.html" > "$stage/dom.socket" 2> "$stage/chromium.socket.log"
verdict "streams: a WebSocket of Chromium" grep -q 'the socket says hello' "$stage/dom.socket"
await 5 grep -q /chat "$stage/socket.log"
verdict "streams: it came over HTTP/2" eval 'grep /chat "$stage/socket.log" | grep -q "HTTP/2"'
larder_port=$forward_port
