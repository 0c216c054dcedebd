"""An origin, clients and a terminal for the test of the dashboard: `origin PORT`, `clients PROXY_PORT COUNT`, `terminal PROGRAM ADMIN_PORT KEY`."""

import fcntl
import http.server
import os
import pty
import random
import socket
import struct
import sys
import termios
import time

SITES = {
    "deb.debian.org": ["/debian/pool/main/c/curl/curl_7.88.1_amd64.deb", "/debian/dists/stable/InRelease", "/debian/pool/main/l/linux/linux-image.deb"],
    "pypi.example": ["/simple/numpy/", "/packages/numpy-2.1.0-cp312-manylinux.whl", "/simple/requests/"],
    "www.example.com": ["/", "/style.css", "/logo.svg", "/app.js", "/news?page=1"],
    "down.example": ["/"],
    "api.example.com": ["/v1/session", "/v1/search?q=larder", "/v1/feed"],
}
HOSTILE = "/\"onmouseover=\"document.title='pwned'\"/%3Cimg%20src=x%20onerror=document.title='pwned'%3E"


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        site, path = self.headers["Host"], self.path
        if site == "down.example":
            self.close_connection = True
            return
        size = 400_000 if path.endswith((".deb", ".whl")) else 9_000
        fields = {"Cache-Control": "max-age=600"}
        if site == "api.example.com":
            fields = {"Cache-Control": "no-store"} if "session" in path else {"Cache-Control": "private"} if "feed" in path else {}
        if path == "/":
            fields = {"Cache-Control": "max-age=600", "Set-Cookie": "id=1"}
        time.sleep(random.uniform(0.002, 0.02))
        self.send_response(404 if "gone" in path else 200)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(b"x" * size)

    def log_message(self, *_):
        pass


def clients(port, count):
    draw = random.Random(1)
    connection = socket.create_connection(("127.0.0.1", port))
    lines = connection.makefile("rb")
    for number in range(count):
        site = draw.choices(list(SITES), [5, 3, 6, 1, 2])[0]
        path = HOSTILE if number == 3 else draw.choice(SITES[site]) if draw.random() > 0.05 else f"/gone/{number}"
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {site}\r\n\r\n".encode())
        status, length = lines.readline(), 0
        while line := lines.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        assert status.startswith(b"HTTP/1.1 "), status
        assert len(lines.read(length)) == length


def terminal(program, port, key):
    """Runs `larder top` in a terminal until a key ends it."""
    child, screen = pty.fork()
    if child == 0:
        os.execv(program, [program, "top", "--admin", f"127.0.0.1:{port}"])
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 80, 0, 0))
    before, shown = termios.tcgetattr(screen), b""
    while b"Memory" not in shown:
        shown += os.read(screen, 65536)
    os.write(screen, b"q" if key == "q" else b"\x03")
    try:
        while piece := os.read(screen, 65536):
            shown += piece
    except OSError:
        pass  # Its end of the terminal is closed.
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert b"\x1b[?1049h" in shown and shown.rfind(b"\x1b[?1049l") > shown.rfind(b"\x1b[?1049h"), shown[-300:]
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l"), "the cursor is hidden"
    assert termios.tcgetattr(screen)[3] == before[3], "the terminal is still raw"


if sys.argv[1] == "terminal":
    terminal(sys.argv[2], int(sys.argv[3]), sys.argv[4])
elif sys.argv[1] == "origin":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Origin).serve_forever()
else:
    clients(int(sys.argv[2]), int(sys.argv[3]))
