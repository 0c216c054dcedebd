#!/usr/bin/env python3
"""Memory of a Larder under loads that fill it, beside the sum that its start lines promise, and what it gives back afterwards.

  bench/memory.py                                   every load with --memory 32, 64, 128 and 256 MB, about ten minutes
  bench/memory.py --memory 32MB --load hit,misses   some of them
  bench/memory.py --group                           each Larder in a control group of 120% of its memory (root, cgroup v1 or v2)

Needs the release build or LARDER_BIN, and 20,000 open files. Each load meets a Larder of its own:

  idle      10,000 clients, each of which has had one response
  waiting   2,000 requests that wait for their origin
  misses    400 clients of 5 MB misses, each of another body, who read 16 KiB a second, without a store on disk
  stored    the same, with a store on disk
  disk      400 clients of 40 bodies of 5 MB on disk, who read 16 KiB a second
  hit       2,000 clients of one body of 5 MB on disk, who read 16 KiB a second
  streams   1,000 streams of HTTP/2 whose windows stay shut, 100 on each connection, each of another body of 5 MB;
            `streams=10000` has so many
  downloads 1,000 clients that download 5 MB each, all different and all at once, as fast as they come
  mixed     32 clients that ask for 1,000 bodies of 1 KB a second, of which every other one is new

For each: the sum that the start prints, the resident memory before, the most of it under the load (--seconds), 10 s after the clients are gone, and
how many requests and connections were refused, by status. Exit code 1 if the most is over 115% of --memory, or if the kernel ended a Larder. A Larder
that refuses such a --memory at its start, and says how much would do, keeps within it.
"""
import argparse
import asyncio
import collections
import itertools
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from memory_cache import resident

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("LARDER_BIN", str(ROOT / "target/release/larder"))
LONG = b"x" * 5_000_000
SHORT = b"y" * 1000
FIELDS = (
    "Host: localhost\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n"
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n"
    "Accept-Encoding: gzip, deflate, br\r\nCookie: session=0123456789abcdef\r\n"
)
STORED_COUNT = 40
# The tasks of the loads `mixed` and `downloads`.
LOADING = []
# Responses other than 200, by status.
REFUSED = collections.Counter()
# What has arrived of each connection's first response, or of the HTTP/2 frames after the last whole one.
ARRIVED = {}
WAIT_SECONDS = 14


async def serve(reader, writer):
    """One connection of the origin: /wait/N is answered once its client is gone, /long/N has 5 MB, everything else 1 KB."""
    try:
        while True:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
            if path.startswith(b"/wait/"):
                await asyncio.sleep(WAIT_SECONDS)
            body = LONG if path.startswith(b"/long/") else SHORT
            head = b'HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nETag: "%s"\r\nContent-Length: %d\r\n\r\n'
            writer.write(head % (path[1:], len(body)))
            # In pieces, so that this process does not keep a copy of each.
            for at in range(0, len(body), 1 << 16):
                writer.write(body[at : at + (1 << 16)])
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


class Larder:
    """A Larder that was started for one load."""

    def __init__(self, memory, disk, origin_port, more, has_group):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="larder-memory.", dir="/var/tmp"))
        self.log = self.folder / "log"
        config = self.folder / "larder.toml"
        config.write_text("[limits]\norigin_connections = 4000\n")
        store = ["--disk", str(self.folder / "store"), "--size", "1GB"] if disk else ["--disk", "none"]
        command = [PROGRAM, "run", "--config", str(config), "--listen", "127.0.0.1:0", "--origin", f"http://127.0.0.1:{origin_port}", "--memory", memory]
        self.group = ControlGroup(bytes_of(memory) * 6 // 5) if has_group else None
        with open(self.log, "w") as log:
            enter = self.group.enter if self.group else None
            self.process = subprocess.Popen([*command, *store, *more], stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=enter)
        end = time.monotonic() + 30
        while not (found := re.search(r"listen.*127\.0\.0\.1:(\d+)", self.log.read_text())):
            if self.process.poll() is not None or time.monotonic() > end:
                break
            time.sleep(0.05)
        self.port = int(found[1]) if found else None

    def refusal(self):
        """What it says if it does not start because the memory is too small."""
        if self.port is not None:
            return None
        log = self.log.read_text()
        said = re.search(r"is too little for the whole process\n *help: ([^,;]*)", log)
        if not said:
            sys.exit(f"larder did not start:\n{log}")
        return said[1]

    def resident(self):
        """The resident memory in MiB."""
        return resident(self.process) / (1 << 20)

    def most(self):
        """The most resident memory in MiB since `forget_most`. The kernel's figure is up to 256 KiB off."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024

    def sum(self):
        """The sum of its parts, as the start lines have it."""
        found = re.search(r"memory +(.*)", self.log.read_text())
        return found[1] if found else "?"

    def forget_most(self):
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def end(self):
        """Ends it. Returns whether it was alive."""
        is_alive = self.process.poll() is None
        self.process.terminate()
        self.process.wait()
        if self.group:
            self.group.remove()
        shutil.rmtree(self.folder)
        return is_alive


class ControlGroup:
    """A control group with a limit on memory, which has this process as its parent's member."""

    def __init__(self, limit):
        has_v1 = pathlib.Path("/sys/fs/cgroup/memory").is_dir()
        root = pathlib.Path("/sys/fs/cgroup/memory" if has_v1 else "/sys/fs/cgroup")
        self.folder = root / f"larder-memory-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / ("memory.limit_in_bytes" if has_v1 else "memory.max")).write_text(str(limit))

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(50):
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.1)


def bytes_of(text):
    """Reads a size such as 16MB."""
    found = re.fullmatch(r"(\d+)(MB|KB|)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"not a size such as 16MB: {text}")
    return int(found[1]) * {"MB": 10**6, "KB": 10**3, "": 1}[found[2]]


async def connect(port, window=None):
    sock = socket.socket()
    if window:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


async def ask(sock, path):
    try:
        await asyncio.get_running_loop().sock_sendall(sock, f"GET {path} HTTP/1.1\r\n{FIELDS}\r\n".encode())
    except ConnectionError:
        REFUSED["no response"] += 1


async def whole(sock, path, length):
    """A request and the whole of its response, unless it is refused."""
    await ask(sock, path)
    seen = b""
    while b"\r\n\r\n" not in seen:
        try:
            piece = await asyncio.get_running_loop().sock_recv(sock, 1 << 16)
        except ConnectionError:
            piece = b""
        if not piece:
            REFUSED["no response"] += 1
            return
        seen += piece
    if not seen.startswith(b"HTTP/1.1 200"):
        REFUSED[seen.split(b" ", 2)[1].decode()] += 1
        return
    got = len(seen.partition(b"\r\n\r\n")[2])
    while got < length:
        piece = await asyncio.get_running_loop().sock_recv(sock, 1 << 20)
        if not piece:
            sys.exit(f"{path} broke off")
        got += len(piece)


def read_slowly(socks, note):
    """Reads a little from each connection that is open."""
    for sock in socks:
        try:
            note(sock, sock.recv(16 << 10))
        except (BlockingIOError, ConnectionError):
            pass


def note_head(sock, piece):
    """Counts the first response of a connection if it is a refusal."""
    if sock not in ARRIVED and piece:
        ARRIVED[sock] = None
        if not piece.startswith(b"HTTP/1.1 200"):
            REFUSED[piece.split(b" ", 2)[1].decode()] += 1


def note_frames(sock, piece):
    """Counts the responses of an HTTP/2 connection that begin with another status than 200, and the streams that are reset."""
    if not piece:
        REFUSED["closed"] += ARRIVED.get(sock) != "closed"
        ARRIVED[sock] = "closed"
        return
    octets = ARRIVED.get(sock, b"") + piece
    while len(octets) >= 9 and len(octets) >= (end := 9 + int.from_bytes(octets[:3], "big")):
        if octets[3] == 1 and octets[9] != 0x88:
            REFUSED["503"] += 1
        elif octets[3] in (3, 7):
            REFUSED["reset" if octets[3] == 3 else "goodbye"] += 1
        octets = octets[end:]
    ARRIVED[sock] = octets


async def idle(larder):
    socks = []
    for _ in range(20):
        some = [await connect(larder.port) for _ in range(500)]
        await asyncio.gather(*(whole(sock, "/small", 1000) for sock in some))
        socks += some
    return socks


async def waiting(larder):
    socks = [await connect(larder.port) for _ in range(2000)]
    for number, sock in enumerate(socks):
        await ask(sock, f"/wait/{number}")
    return socks


async def slow(larder, paths):
    socks = [await connect(larder.port, 32 << 10) for _ in paths]
    for sock, path in zip(socks, paths):
        await ask(sock, path)
    return socks


async def misses(larder):
    return await slow(larder, [f"/long/{number}" for number in range(400)])


async def fill(larder, count):
    for number in range(count):
        sock = await connect(larder.port)
        await whole(sock, f"/long/{number}", len(LONG))
        sock.close()
    await asyncio.sleep(1.5)


async def disk(larder):
    return await slow(larder, [f"/long/{number % STORED_COUNT}" for number in range(400)])


async def hit(larder):
    return await slow(larder, ["/long/0"] * 2000)


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


async def streams(larder, count=1000):
    socks = []
    for connection in range(count // 100):
        sock = await connect(larder.port)
        sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0)) + frame(4, 1, 0)
        for number in range(100):
            path = b"/long/%d" % (100 * connection + number)
            sent += frame(1, 5, 2 * number + 1, b"\x82\x86\x04" + bytes([len(path)]) + path + b"\x01\x09localhost")
        await asyncio.get_running_loop().sock_sendall(sock, sent)
        socks.append(sock)
    return socks


async def downloads(larder):
    """Begins 1,000 downloads. They end by themselves, and refused ones are not repeated."""
    socks = [await connect(larder.port) for _ in range(1000)]
    LOADING.extend(asyncio.ensure_future(download(sock, f"/long/{number}")) for number, sock in enumerate(socks))
    return socks


async def download(sock, path):
    await ask(sock, path)
    first = True
    while piece := await asyncio.get_running_loop().sock_recv(sock, 1 << 16):
        if first and not piece.startswith(b"HTTP/1.1 200"):
            REFUSED[piece.split(b" ", 2)[1].decode()] += 1
            return
        first = False


async def request_steadily(sock, client):
    """Asks once each 32 ms, for a new body every other time, until the task is cancelled."""
    for number in itertools.count(1):
        await whole(sock, f"/new/{client}/{number}" if number % 2 else f"/seen/{number % 998}", len(SHORT))
        await asyncio.sleep(0.032)


async def mixed(larder):
    socks = [await connect(larder.port) for _ in range(32)]
    LOADING.extend(asyncio.ensure_future(request_steadily(sock, client)) for client, sock in enumerate(socks))
    return socks


# The load, whether it has a store on disk, and how many bodies are stored before.
LOADS = {
    "idle": (idle, False, 0),
    "waiting": (waiting, False, 0),
    "misses": (misses, False, 0),
    "stored": (misses, True, 0),
    "disk": (disk, True, STORED_COUNT),
    "hit": (hit, True, 1),
    "streams": (streams, True, 0),
    "downloads": (downloads, True, 0),
    "mixed": (mixed, True, 0),
}
# The most resident memory, as a share of --memory.
MOST = 1.15


async def measure(name, memory, origin_port, arguments):
    """Measures one load. Returns whether the memory stayed within its bound."""
    base, _, count = name.partition("=")
    load, has_disk, stored = LOADS[base]
    larder = Larder(memory, has_disk, origin_port, arguments.more, arguments.group)
    REFUSED.clear()
    ARRIVED.clear()
    if refusal := larder.refusal():
        print(f"| {name:9} | {memory:>6} | refused at the start: {refusal} |", flush=True)
        larder.end()
        return True
    try:
        sock = await connect(larder.port)
        await whole(sock, "/small", 1000)
        sock.close()
        await fill(larder, stored)
        await asyncio.sleep(10 if stored else 1)
        before = larder.resident()
        larder.forget_most()
        socks = await (load(larder, int(count)) if count else load(larder))
        for _ in range(arguments.seconds):
            await asyncio.sleep(1)
            if base not in ("idle", "mixed", "downloads"):
                read_slowly(socks, note_frames if base == "streams" else note_head)
        steady = larder.resident()
        most = max(steady, larder.most())
        count = int(count or 1000) if base == "streams" else len(socks)
        for task in LOADING:
            task.cancel()
        await asyncio.gather(*LOADING, return_exceptions=True)
        LOADING.clear()
        for sock in socks:
            sock.close()
        await asyncio.sleep(10)
        after = larder.resident()
        each = (steady - before) * 1024 / count
        refused = ", ".join(f"{count} x {status}" for status, count in REFUSED.items()) or "0"
        share = most * (1 << 20) / bytes_of(memory)
        print(
            f"| {name:9} | {memory:>6} | {before:7.1f} | {most:7.1f} | {share:4.0%} | {steady:7.1f} | {each:7.1f} | {after:7.1f} | {refused} | {larder.sum()} |",
            flush=True,
        )
        is_bounded = share <= MOST
    except (OSError, StopIteration) as error:
        print(f"| {name:9} | {memory:>6} | {error!r} |", flush=True)
        is_bounded = False
    finally:
        is_alive = larder.end()
    if not is_alive:
        print(f"| {name:9} | {memory:>6} | the process ended |", flush=True)
    return is_bounded and is_alive


async def run_loads(arguments, origin_port):
    are_bounded = True
    for name in arguments.load.split(","):
        for memory in arguments.memory.split(","):
            are_bounded &= await measure(name, memory, origin_port, arguments)
    return are_bounded


async def run_origin(listening):
    async with await asyncio.start_server(serve, sock=listening, backlog=4096) as server:
        await server.serve_forever()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", default="32MB,64MB,128MB,256MB")
    parser.add_argument("--load", default=",".join(LOADS) + ",streams=10000")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--group", action="store_true", help="put each Larder into a control group of 120%% of its memory")
    parser.add_argument("more", nargs="*", help="further flags of larder run, behind --")
    arguments = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    # The origin is a process of its own, so that it answers while clients are opened.
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    if (origin := os.fork()) == 0:
        try:
            asyncio.run(run_origin(listening))
        finally:
            os._exit(0)
    print("MiB of resident memory; KiB of each client or stream\n")
    print("| load | --memory | before | most | of it | at the end | KiB each | 10 s after | refused | start line |\n|---|---|---|---|---|---|---|---|---|---|", flush=True)
    try:
        are_bounded = asyncio.run(run_loads(arguments, listening.getsockname()[1]))
    finally:
        os.kill(origin, signal.SIGTERM)
        os.waitpid(origin, 0)
    sys.exit(not are_bounded)


if __name__ == "__main__":
    main()
