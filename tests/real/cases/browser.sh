# Chromium: a page with 50 images, twice, each time with a profile of its own, so that only the proxy can remember.
mkdir -p "$stage/www/page"
python3 - "$stage/www/page" <<'P'
import struct, sys, zlib
folder = sys.argv[1]
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for number in range(50):
    row = b"\0" + bytes([number * 5, 255 - number * 5, 128]) * 32
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0))
    png += chunk(b"IDAT", zlib.compress(row * 32)) + chunk(b"IEND", b"")
    open(f"{folder}/{number}.png", "wb").write(png)
images = "".join(f'<img src="{number}.png">' for number in range(50))
script = """addEventListener("load", () => {
  const loaded = [...document.images].filter(image => image.naturalWidth === 32).length;
  document.body.insertAdjacentHTML("beforeend", `<p id=count>loaded ${loaded} of ${document.images.length}</p>`);
});"""
open(f"{folder}/index.html", "w").write(f"<!doctype html><title>images</title><body>{images}<script>{script}</script>")
P
for turn in first second; do
  mkdir -p "$stage/profile.$turn"
  HOME=$stage/profile.$turn timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --disable-dev-shm-usage \
    --proxy-server="$proxy" --proxy-bypass-list='<-loopback>' --user-data-dir="$stage/profile.$turn" \
    --dump-dom "http://127.0.0.1:$origin_port/page/index.html" > "$stage/dom.$turn" 2> "$stage/chromium.$turn.log"
  verdict "browser: $turn time all 50 images are shown" grep -q 'loaded 50 of 50' "$stage/dom.$turn"
  verdict "browser: 50 image requests reached the origin" [ "$(origin_count '^GET /page/[0-9]+\.png ')" -eq 50 ]
done
await 5 eval '[ "$(grep -E "/page/[0-9]+\.png" "$stage/access.log" | grep -c HIT)" -eq 50 ]'
hits=$(grep -E '/page/[0-9]+\.png' "$stage/access.log" | grep -c HIT)
verdict "browser: the access log counts 50 hits" [ "$hits" -eq 50 ]
