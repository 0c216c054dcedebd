#!/usr/bin/env python3
"""Instructions and allocations of a hit, a disk hit, a miss and a fill, counted by callgrind: the same whatever else
the machine does.

  bench/instructions.py                      prints a table beside bench/instructions.json; exit 1 if one is over 2% above
  bench/instructions.py --record             writes bench/instructions.json; refuses what is over 2% above
  bench/instructions.py --record --why TEXT  writes it with TEXT as the reason of each that is over 2% above; TEXT must name
                                             the issue that asks for it, as #123
  bench/instructions.py --keep FOLDER        also keeps callgrind's output in FOLDER, for callgrind_annotate

Needs valgrind, and the release build or LARDER_BIN. Allocations are counted only in a build with symbols (`--profile fast`);
without them, the recorded ones stay. A request at a time on one connection to one worker. What timers do meanwhile is
subtracted. The counts are of user space: the kernel's share is not in them.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE / "instructions.json"
REQUESTS = 2000
TOLERANCE = 1.02
ALLOCATIONS_TOLERANCE = 1
START_SECONDS = 120
BODY = bytes(1024)


def serve_origin(listener):
    """Answers every request on every connection with 1 KB, storable unless its path begins with /miss."""

    def serve(connection):
        with connection, connection.makefile("rb") as lines:
            while request := lines.readline():
                while lines.readline().strip():
                    pass
                control = b"no-store" if b" /miss" in request else b"max-age=600"
                head = b"HTTP/1.1 200 OK\r\nCache-Control: %b\r\nContent-Length: %d\r\n\r\n" % (control, len(BODY))
                connection.sendall(head + BODY)

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


class Client:
    """One connection, one request at a time."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(60)
        self.lines = self.socket.makefile("rb")

    def get(self, path):
        """Returns the response's Cache-Status."""
        self.socket.sendall(b"GET %b HTTP/1.1\r\nHost: bench.example\r\n\r\n" % path.encode())
        status, length, cache_status = self.lines.readline(), 0, ""
        assert b" 200 " in status, status
        while line := self.lines.readline().strip():
            name, _, value = line.decode().partition(":")
            if name.lower() == "content-length":
                length = int(value)
            elif name.lower() == "cache-status":
                cache_status = value.strip()
        assert len(self.lines.read(length)) == length == len(BODY)
        return cache_status


class Larder:
    """The program under callgrind, which counts only while it is told to."""

    def __init__(self, program, folder, memory, keep):
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=serve_origin, args=(listener,), daemon=True).start()
        self.folder = folder
        self.keep = keep
        flags = f"run --listen 127.0.0.1:0 --origin http://127.0.0.1:{listener.getsockname()[1]} --size 256MiB".split()
        flags += ["--disk", str(folder / "store"), "--memory-cache", memory, "--workers", "1", "--io", "threads"]
        callgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counts"]
        self.log = open(folder / "log", "w+b")
        self.process = subprocess.Popen([*callgrind, program, *flags], stdout=self.log, stderr=self.log)
        self.port = self.wait_for_port()

    def wait_for_port(self):
        wait = threading.Event()
        for _ in range(START_SECONDS * 10):
            found = re.search(r"listen +http://127\.0\.0\.1:(\d+)", (self.folder / "log").read_text(errors="replace"))
            if found:
                return int(found[1])
            if self.process.poll() is not None:
                break
            wait.wait(0.1)
        sys.exit("larder did not start:\n" + (self.folder / "log").read_text(errors="replace"))

    def control(self, *command):
        subprocess.run(["callgrind_control", *command, str(self.process.pid)], check=True, capture_output=True)

    def counted(self, name, work):
        """Returns the instructions and allocations that `work` costs a request, without those of timers."""
        started = time.monotonic()
        dump = self.dump_of(work)
        took = time.monotonic() - started
        if self.keep:
            self.keep.mkdir(parents=True, exist_ok=True)
            shutil.copy(dump, self.keep / name.replace(",", "").replace(" ", "-"))
        busy = dump.read_text()
        # The longer the requests take, the more timers run meanwhile. So as long a time without requests is subtracted.
        idle = self.dump_of(lambda: threading.Event().wait(took)).read_text()
        instructions, allocated = (
            None if count(busy) is None else (count(busy) - (count(idle) or 0)) / REQUESTS for count in (total, allocations)
        )
        return instructions, allocated and round(allocated)

    def dump_of(self, work):
        """Returns the file of what callgrind counts during `work`."""
        before = set(self.folder.glob("counts.*"))
        self.control("-i", "on")
        self.control("-z")
        work()
        # Before it is turned off, which forgets what was counted.
        self.control("-d")
        self.control("-i", "off")
        (dump,) = set(self.folder.glob("counts.*")) - before
        return dump

    def end(self):
        self.process.terminate()
        self.process.wait(60)


def total(dump):
    """Returns the instructions in callgrind's output."""
    return int(re.search(r"^(?:totals|summary): (\d+)", dump, re.M)[1])


def allocations(dump):
    """Returns the allocations in callgrind's output, or None if it names no such function.

    They are the calls of jemalloc, because link-time optimization inlines Rust's own functions."""
    numbers = re.findall(r"fn=\((\d+)\) _rjem_(?:malloc|mallocx|calloc)$", dump, re.M)
    if not numbers:
        return None
    calls = re.findall(rf"^cfn=\((?:{'|'.join(numbers)})\).*\n(?:.*\n)?calls=(\d+)", dump, re.M)
    return sum(map(int, calls))


def measured(program, keep):
    """Returns the instructions and allocations of each kind of request."""

    def asks(client, name, expected):
        for number in range(REQUESTS):
            path = name.format(number)
            status = client.get(path)
            assert expected in status, f"{path}: {status}"

    figures = {}

    def count(larder, name, work):
        figures[name] = larder.counted(name, work)

    with tempfile.TemporaryDirectory(prefix="larder-instructions.") as folder:
        larder = Larder(program, pathlib.Path(folder), "16MB", keep)
        client = Client(larder.port)
        for _ in range(50):
            client.get("/hit"), client.get("/miss")
        count(larder, "hit from memory", lambda: asks(client, "/hit", "hit"))
        count(larder, "miss, not stored", lambda: asks(client, "/miss", "fwd="))
        count(larder, "miss, stored", lambda: asks(client, "/fill/{}", "stored"))
        larder.end()
    with tempfile.TemporaryDirectory(prefix="larder-instructions.") as folder:
        larder = Larder(program, pathlib.Path(folder), "0MB", keep)
        client = Client(larder.port)
        asks(client, "/fill/{}", "stored")
        asks(client, "/fill/{}", "hit")
        count(larder, "hit from disk", lambda: asks(client, "/fill/{}", "hit"))
        larder.end()
    return {name: (round(count), allocated) for name, (count, allocated) in figures.items()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--record", action="store_true", help="compare with these counts from now on")
    arguments.add_argument("--why", default="", help="why counts grew; written beside those that did")
    arguments.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="keep callgrind's output in FOLDER")
    options = arguments.parse_args()
    program = os.environ.get("LARDER_BIN", str(HERE.parent / "target/release/larder"))
    figures = measured(program, options.keep)
    recorded = json.loads(RECORDED.read_text())
    grown = set()
    print(f"{'instructions a request':24}{'measured':>10}{'recorded':>10}{'ratio':>8}{'allocations':>13}{'recorded':>10}")
    for name, (count, allocated) in figures.items():
        allocated_before = recorded[name]["allocations"]
        ratio = count / recorded[name]["count"]
        if ratio > TOLERANCE or (allocated or 0) > allocated_before + ALLOCATIONS_TOLERANCE:
            grown.add(name)
        shown = "-" if allocated is None else allocated
        print(
            f"{name:24}{count:10}{recorded[name]['count']:10}{ratio:8.3f}{shown:>13}{allocated_before:10}"
            f"{'  more' if name in grown else ''}"
        )
    if grown and not (options.record and re.search(r"#\d", options.why)):
        sys.exit("counts grew: make the code cheaper, or name an issue: --record --why 'TEXT (#123)'")
    if options.record:
        why = {name: options.why if name in grown else recorded[name]["why"] for name in figures}
        written = {
            name: {
                "count": count,
                "allocations": recorded[name]["allocations"] if allocated is None else allocated,
                "why": why[name],
            }
            for name, (count, allocated) in figures.items()
        }
        RECORDED.write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    main()
