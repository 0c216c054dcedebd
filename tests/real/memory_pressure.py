#!/usr/bin/env python3
"""Larder with `--memory auto` in a control group with a limit, beside a program that takes the group's memory.

Prints each 0.2 s what the group has free and what Larder has, and checks: half of the group's memory is taken at the start;
it is given back within a second once the other program needs it, before anything is killed; it is taken again afterwards; and
every entry is still a hit. Needs root, version 1 or 2 of control groups with the memory controller, and a build (LARDER_BIN).
"""
import http.client
import http.server
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LARDER_BIN", str(ROOT / "target/release/larder"))
LIMIT = 400 << 20
COUNT, LEN = 1500, 100_000
BODY = os.urandom(LEN)
EATER = """
import sys, time
held = []
for number in range(%d):
    held.append(bytearray(b'x' * (4 << 20)))
    time.sleep(0.05)
print("full", flush=True)
time.sleep(%d)
"""


def group():
    """Makes a control group with a limit; returns its folder and the names of its files."""
    two = pathlib.Path("/sys/fs/cgroup")
    if "memory" in (two / "cgroup.controllers").read_text().split() if (two / "cgroup.controllers").exists() else False:
        (two / "cgroup.subtree_control").write_text("+memory")
        folder, limit, used = two / f"larder-pressure-{os.getpid()}", "memory.high", "memory.current"
    else:
        folder, limit, used = two / f"memory/larder-pressure-{os.getpid()}", "memory.limit_in_bytes", "memory.usage_in_bytes"
    folder.mkdir()
    (folder / limit).write_text(str(LIMIT))
    return folder, used


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Cache-Control", "max-age=600")
        self.send_header("Content-Length", str(LEN))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_):
        pass


def inside(folder, command, **more):
    """Starts a program in the group."""
    return subprocess.Popen(["sh", "-c", f'echo $$ > {folder}/cgroup.procs; exec "$@"', "sh", *command], **more)


def metric(admin, name):
    connection = http.client.HTTPConnection(admin)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return int(re.search(rf"^{name} (\d+)", text, re.M)[1])


def fetch_all(port):
    hits = 0
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for number in range(COUNT):
        connection.request("GET", f"/{number}")
        response = connection.getresponse()
        response.read()
        hits += "hit" in response.getheader("Cache-Status")
    return hits


def main():
    origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    folder, used = group()
    home = tempfile.mkdtemp(prefix="larder-pressure.", dir="/var/tmp")
    command = [PROGRAM, "run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--disk", f"{home}/store", "--size", "1GB"]
    command += ["--origin", f"http://127.0.0.1:{origin.server_port}"]
    processes = []
    try:
        larder = inside(folder, command, stderr=open(f"{home}/log", "w"))
        processes.append(larder)
        while not (found := re.search(r"listen +http://127.0.0.1:(\d+)[^$]*admin +http://(.*)/", log := pathlib.Path(f"{home}/log").read_text())):
            time.sleep(0.05)
        print(*[line for line in log.splitlines() if "memory" in line], sep="\n")
        port, admin = int(found[1]), found[2]
        assert str(folder) in log, "the group's limit is not the reason"

        begin = time.monotonic()
        resident = lambda: int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{larder.pid}/status").read_text())[1]) / 1024

        def show(event=""):
            stat = pathlib.Path(folder / "memory.stat").read_text()
            files = sum(int(value) for value in re.findall(r"^(?:total_)?(?:in)?active_file (\d+)", stat, re.M)[-2:])
            free = (LIMIT - int((folder / used).read_text()) + files) / (1 << 20)
            cached, limit = (metric(admin, f"larder_memory_{name}") / (1 << 20) for name in ("cache_bytes", "limit_bytes"))
            print(f"{time.monotonic() - begin:6.1f} s  free {free:6.1f}  resident {resident():6.1f}  cached {cached:6.1f}  limit {limit:6.1f} MiB  {event}", flush=True)
            return free, cached

        fetch_all(port), fetch_all(port)
        full = show("filled")[1]
        eater = inside(folder, [sys.executable, "-c", EATER % (75, 3)], stdout=subprocess.PIPE)
        processes.append(eater)
        short_at = least = None
        while eater.poll() is None:
            free, cached = show()
            # The moment when memory becomes short, and the answer.
            if short_at is None and free < 20:
                short_at = time.monotonic()
            if cached < 0.75 * full and least is None:
                least = time.monotonic()
            time.sleep(0.2)
        assert eater.returncode == 0 and larder.poll() is None, "something was killed"
        assert least is not None, "nothing was given back"
        print(f"given back {least - (short_at or least):.1f} s after memory was short")
        assert least - (short_at or least) <= 1.2
        assert fetch_all(port) == COUNT, "an entry is lost"
        low = metric(admin, "larder_memory_limit_bytes")
        for _ in range(20):
            time.sleep(1)
            show("calm")
        assert metric(admin, "larder_memory_limit_bytes") > low, "nothing is taken again"
        print("ok")
    finally:
        for process in processes:
            process.kill()
            process.wait()
        folder.rmdir()
        subprocess.run(["rm", "-r", home], check=False)


if __name__ == "__main__":
    main()
