# Firefox: a page with 20 images, twice, each time with a profile of its own, so that only the proxy can remember.
mkdir -p "$stage/www/page/firefox"
python3 - "$stage/www/page/firefox" <<'P'
import struct, sys, zlib
folder = sys.argv[1]
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for number in range(20):
    row = b"\0" + bytes([number * 12, 255 - number * 12, 128]) * 32
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0))
    png += chunk(b"IDAT", zlib.compress(row * 32)) + chunk(b"IEND", b"")
    open(f"{folder}/{number}.png", "wb").write(png)
images = "".join(f'<img src="{number}.png">' for number in range(20))
open(f"{folder}/index.html", "w").write(f"<!doctype html><title>images</title><body>{images}")
P
for turn in first second; do
  profile=$stage/firefox.$turn
  mkdir -p "$profile"
  cat > "$profile/user.js" <<P
user_pref("network.proxy.type", 1);
user_pref("network.proxy.http", "127.0.0.1");
user_pref("network.proxy.http_port", $larder_port);
user_pref("network.proxy.allow_hijacking_localhost", true);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
P
  HOME=$profile MOZ_HEADLESS=1 timeout 120 firefox-esr --headless --no-remote --profile "$profile" \
    --screenshot "$stage/firefox.$turn.png" "http://127.0.0.1:$origin_port/page/firefox/index.html" \
    > "$stage/firefox.$turn.log" 2>&1
  verdict "firefox: $turn time the page is drawn" [ -s "$stage/firefox.$turn.png" ]
  verdict "firefox: 20 image requests reached the origin" \
    [ "$(origin_count '^GET /page/firefox/[0-9]+\.png ')" -eq 20 ]
done
await 5 eval '[ "$(grep -E "/page/firefox/[0-9]+\.png" "$stage/access.log" | grep -c HIT)" -eq 20 ]'
hits=$(grep -E '/page/firefox/[0-9]+\.png' "$stage/access.log" | grep -c HIT)
verdict "firefox: the access log counts 20 hits" [ "$hits" -eq 20 ]
