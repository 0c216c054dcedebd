#!/usr/bin/env python3
"""Random requests by all ways in and out, each response checked: never a wrong byte, a part as the whole, another
client's field, or what was purged.

  tests/real/ways.py [--requests 100000] [--seed N] [--clients 48] [--larder PATH]

Ways in: HTTP/1.1 and HTTP/2. Ways out: origins of HTTP/1.1 and HTTP/2, a second tier, a parent, siblings. Origins pause,
and break off by FIN, RST, RST_STREAM (0, 2 and 8) and GOAWAY at every kind of place. They answer 304, sometimes with
`private` or `no-store` and a field for that one client. Clients pause, leave, and ask for ranges. Resources change, and
are purged by URL, prefix, site, tag and everything, hard and soft.

What counts as a violation:
  mixed     bytes that are not a prefix of one version's selection, the version that the ETag names
  part      a clean end before the end of the selection
  others    a field that the origin sent to another client
  purged    a version older than the one that was current when a purge of this node was acknowledged
  range     a 206 whose Content-Range is not the requested one
  silent    no end and no error within a minute

Prints one line for each way, then `N requests, N violations`; exit code 1 if there are any. The counts of failed
requests are no violations: the origin breaks off on purpose. Needs Python and its package hpack (PyPI). Loopback only.
"""

import argparse
import asyncio
import collections
import functools
import os
import pathlib
import random
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

from ways_http2 import Connection

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
UNIT = 64
SILENT_SECONDS = 60
# Time until a running node applies another node's purge, with a margin.
FLEET_SECONDS = 5
TAGS = 20
SHORT, LONG = 1500, 60


# --- what is served

class Resource:
    """A resource of an origin: its path says how it is sent."""

    def __init__(self, number, kind, is_long, dice):
        self.path = f"/{kind}/{number}.bin"
        self.kind, self.number, self.version = kind, number, 1
        self.is_long = is_long
        self.tag = f"t{number % TAGS}"
        self.len = dice.choice([MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 12_345, 3 * MIB - 7]) if is_long else dice.randrange(1, 20_000)
        # The versions that a purge ruled out, and since when: for each node (time, least version).
        self.floors = collections.defaultdict(list)

    def body(self, version):
        return body_of(self.number, version, self.len)

    def least(self, node, begun):
        """Returns the least version that `node` may serve to a request sent at `begun`."""
        return max((version for since, version in self.floors[node] if since < begun), default=1)


@functools.lru_cache(maxsize=300)
def body_of(number, version, length):
    """Bytes that name their resource, their version and their place in every 64 of them."""
    units = (b"%08d:%08d:%08d:" % (number, version, at) for at in range(length // UNIT + 1))
    filler = b"." * (UNIT - 27)
    return b"".join(unit + filler for unit in units)[:length]


KINDS = ["length", "chunked", "close", "ranges", "stale", "stale-private", "private"]


class World:
    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.resources = []
        for number in range(SHORT + LONG):
            kind = KINDS[number % len(KINDS)]
            self.resources.append(Resource(number, kind, number >= SHORT, self.dice))
        self.by_path = {resource.path: resource for resource in self.resources}
        self.figures = collections.defaultdict(collections.Counter)
        self.violations = []

    def violation(self, kind, way, resource, detail):
        self.violations.append((kind, way))
        if len(self.violations) <= 40:
            print(f"VIOLATION {kind} {way} {resource.path} ({resource.len} bytes, version {resource.version}): {detail}", flush=True)


# --- origins

def answer(world, method, path, fields):
    """Returns status, fields, body and whether it is chunked or ended by the close."""
    resource = world.by_path[path]
    version, dice = resource.version, world.dice
    tag, token = f'"{version}"', fields.get("x-token", "")
    control, own = "max-age=600, must-revalidate", []
    if resource.kind.startswith("stale"):
        control = "max-age=0, must-revalidate"
    if resource.kind == "private" or (resource.kind == "stale-private" and dice.random() < 0.3):
        control = dice.choice(["private, max-age=60", "no-store", "private, no-store"])
        own = [("x-echo", token), ("set-cookie", f"user={token}")]
    head = [("cache-control", control), ("etag", tag), ("cache-tag", resource.tag), ("content-type", "application/octet-stream"), *own]
    if tag in fields.get("if-none-match", ""):
        return resource, 304, head, b""
    body, wanted = resource.body(version), re.fullmatch(r"bytes=(\d+)-(\d*)", fields.get("range", ""))
    if resource.kind == "ranges":
        head.append(("accept-ranges", "bytes"))
        if wanted and fields.get("if-range", tag) == tag and method == "GET":
            first, last = int(wanted[1]), min(int(wanted[2] or resource.len), resource.len - 1)
            if first >= resource.len:
                return resource, 416, [("content-range", f"bytes */{resource.len}")], b""
            head.append(("content-range", f"bytes {first}-{last}/{resource.len}"))
            return resource, 206, head, body[first : last + 1]
    return resource, 200, head, body


async def think(dice):
    """Waits as an origin does before it answers, so that requests of others arrive meanwhile."""
    if dice.random() < 0.4:
        await asyncio.sleep(dice.random() * 0.05)


def cut_of(dice, length):
    """Returns where an origin breaks off, and where it pauses: places in the body, or `None`."""
    places = [0, length // 2, max(0, length - 1), length, dice.randrange(length + 1)] + ([MIB] if length > MIB else [])
    cut = dice.choice(places) if dice.random() < 0.06 else None
    pause = dice.choice(places) if dice.random() < 0.05 else None
    return cut, pause


async def serve_http1(world, reader, writer):
    """An origin of HTTP/1.1. A cut before the end mark is one at the whole length of a chunked body."""
    dice = world.dice
    try:
        while True:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = lines[0].split(" ", 2)
            path = "/" + target.split("/", 3)[3] if target.startswith("http") else target
            fields = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines[1:] if line)}
            await think(dice)
            resource, status, head, body = answer(world, method, path, fields)
            framing = resource.kind if resource.kind in ("chunked", "close") and status == 200 else "length"
            text = f"HTTP/1.1 {status} X\r\n" + "".join(f"{n}: {v}\r\n" for n, v in head)
            if framing == "chunked":
                text += "Transfer-Encoding: chunked\r\n"
            elif framing == "close":
                text += "Connection: close\r\n"
            elif status != 304:
                text += f"Content-Length: {len(body)}\r\n"
            writer.write(text.encode() + b"\r\n")
            if method == "HEAD" or status == 304:
                continue
            cut, pause = cut_of(dice, len(body))
            stops = sorted({at for at in (cut, pause, len(body)) if at is not None})
            at = 0
            for stop in stops:
                for start in range(at, stop, 65536):
                    piece = body[start : min(stop, start + 65536)]
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if framing == "chunked" else piece)
                    await writer.drain()
                at = stop
                if stop == pause:
                    await asyncio.sleep(dice.random() / 3)
                # A close in good order ends a body without framing, so only a reset breaks it off.
                if stop == cut and (stop < len(body) or framing == "chunked"):
                    if framing == "close" or dice.random() < 0.5:
                        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        writer.transport.abort()
                    return
            if framing == "chunked":
                writer.write(b"0\r\n\r\n")
            if framing == "close":
                return
            await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, OSError):
        pass
    finally:
        writer.close()


async def serve_http2(world, reader, writer):
    """An origin of HTTP/2 by prior knowledge. Bodies of the kinds `chunked` and `close` have no announced length."""
    tasks = set()

    def on_stream(connection, number, fields):
        task = asyncio.ensure_future(serve_stream(world, connection, number, fields))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await Connection(reader, writer, False, on_stream).run()
    for task in list(tasks):
        task.cancel()


async def serve_stream(world, connection, number, fields):
    dice = world.dice
    fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in fields}
    method, path = fields[":method"], fields[":path"]
    await think(dice)
    resource, status, head, body = answer(world, method, path, fields)
    if resource.kind not in ("chunked", "close") and status != 304:
        head.append(("content-length", str(len(body))))
    has_no_body = method == "HEAD" or status == 304
    try:
        connection.send_head(number, [(":status", str(status)), *head], has_no_body)
        if has_no_body:
            return
        cut, pause = cut_of(dice, len(body))
        at = 0
        for stop in sorted({place for place in (cut, pause, len(body)) if place is not None}):
            if not await connection.send_data(number, body[at:stop], stop == len(body) and stop != cut):
                return
            at = stop
            if stop == pause:
                await asyncio.sleep(dice.random() / 3)
            if stop == cut:
                way = dice.choice(["reset 0", "reset 2", "reset 8", "goaway", "close"])
                if way.startswith("reset"):
                    connection.reset(number, int(way[6:]))
                else:
                    if way == "goaway":
                        connection.go_away()
                    await connection.writer.drain()
                    connection.close()
                return
        await connection.writer.drain()
    except (ConnectionError, OSError):
        pass
    finally:
        connection.streams.pop(number, None)


# --- the program

class Node:
    """A running Larder."""

    def __init__(self, larder, folder, name, config, extra=()):
        self.name, self.port, self.admin = name, free_port(), free_port()
        self.folder = folder / name
        self.folder.mkdir()
        self.larder, self.extra = larder, list(extra)
        self.config = config

    def start(self):
        file = self.folder / "larder.toml"
        file.write_text(self.config)
        command = [self.larder, "run", "--config", file, "--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"]
        command += ["--disk", self.folder / "store", "--memory", "128MiB", "--allow-target", "127.0.0.0/8", *self.extra]
        environment = {n: v for n, v in os.environ.items() if not n.lower().endswith("_proxy")}
        environment |= {"HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder), "XDG_CACHE_HOME": str(self.folder)}
        self.log = open(self.folder / "log", "w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment)
        for _ in range(300):
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        sys.exit(f"{self.name} does not start: " + (self.folder / "log").read_text()[-2000:])

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()


def free_port():
    for port in random.SystemRandom().sample(range(10000, 32000), 200):
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
            return port
        except OSError:
            continue
    sys.exit("no free port")


class Way:
    """A way through the program: the node that is asked, the form of the target, the origin behind."""

    def __init__(self, name, node, authority, is_forward, nodes):
        self.name, self.node, self.authority, self.is_forward = name, node, authority, is_forward
        # Nodes on which a purge by this node takes effect later.
        self.others = [other for other in nodes if other is not node]


def ways_of(larder, folder, http1, http2):
    """Starts the nodes. Returns them and the ways through them."""
    sites = f"""
[[site]]
hosts = ["one.test"]
origin = "http://127.0.0.1:{http1}"
[[site]]
hosts = ["two.test"]
origin = "h2c://127.0.0.1:{http2}"
"""
    edge = Node(larder, folder, "edge", sites, ["--size", "256MiB"])
    tier_folder = folder / "packs"
    tier_folder.mkdir()
    tier = f'[tier]\nfolder = "{tier_folder}"\nsize = "1GB"\nadmit = "all"\npack_age = "1s"\n'
    tiered = Node(larder, folder, "tier", sites + tier, ["--size", "64MiB", "--memory-cache", "4MB"])
    parent = Node(larder, folder, "parent", "", ["--size", "256MiB"])
    child = Node(larder, folder, "child", f'parent = "http://127.0.0.1:{parent.port}"\n', ["--size", "256MiB"])
    secret = folder / "secret"
    secret.write_text("the secret of all nodes")
    secret.chmod(0o600)
    siblings = [Node(larder, folder, f"sibling-{letter}", "", ["--size", "256MiB"]) for letter in "abc"]
    listed = ", ".join(f'"{node.name}=127.0.0.1:{node.port}"' for node in siblings)
    for node in siblings:
        node.config = f'node = "{node.name}"\n{sites}\n[fleet]\nnodes = [{listed}]\nsecret_file = "{secret}"\nsiblings = true\n'
    nodes = [edge, tiered, parent, child, *siblings]
    for node in nodes:
        node.start()
    ways = [Way(f"{node.name}, origin {number}", node, f"{number}.test", False, []) for node in (edge, tiered) for number in ("one", "two")]
    ways += [Way(f"{node.name}, origin {number}", node, f"{number}.test", False, siblings) for node in siblings for number in ("one", "two")]
    ways += [Way(node.name, node, f"127.0.0.1:{http1}", True, []) for node in (parent, child)]
    return nodes, ways


# --- clients

class Broken(Exception):
    """The response ended with an error that its client can see."""


class Plain:
    """A connection of HTTP/1.1."""

    name = "HTTP/1.1"

    def __init__(self, port):
        self.port, self.open = port, None

    async def connect(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 17)
        self.open = reader, writer

    async def get(self, way, method, path, fields):
        """Sends a request. Returns status and fields; `pieces` returns the body."""
        if self.open is None:
            await self.connect()
        reader, writer = self.open
        target = f"http://{way.authority}{path}" if way.is_forward else path
        lines = [f"{method} {target} HTTP/1.1", f"Host: {way.authority}", *(f"{n}: {v}" for n, v in fields)]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                status = int(lines[0].split(" ")[1])
                if status >= 200:
                    break
        except asyncio.IncompleteReadError:
            raise Broken from None
        pairs = [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines[1:] if line)]
        self.fields, self.has_body = dict(pairs), method != "HEAD" and status not in (204, 304)
        return status, pairs

    async def pieces(self):
        if not self.has_body:
            return
        reader, _ = self.open
        try:
            if "transfer-encoding" in self.fields:
                while size := int(await reader.readuntil(b"\r\n"), 16):
                    yield (await reader.readexactly(size + 2))[:-2]
                await reader.readuntil(b"\r\n")
            elif "content-length" in self.fields:
                left = int(self.fields["content-length"])
                while left:
                    piece = await reader.read(min(left, 65536))
                    if not piece:
                        raise Broken
                    left -= len(piece)
                    yield piece
            else:
                while piece := await reader.read(65536):
                    yield piece
                self.close()
        except (asyncio.IncompleteReadError, ValueError) as error:
            # What came of the last chunk counts, because its client has it.
            if partial := getattr(error, "partial", b""):
                if "transfer-encoding" in self.fields and len(partial) > 2 and b"\r\n" not in partial[-2:]:
                    yield partial
            raise Broken from None
        if self.fields.get("connection", "").lower() == "close":
            self.close()

    def close(self):
        if self.open:
            self.open[1].close()
        self.open = None


class Multiplexed:
    """A connection of HTTP/2, one stream at a time."""

    name = "HTTP/2"

    def __init__(self, port):
        self.port, self.connection = port, None

    async def connect(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.connection = Connection(reader, writer, True)
        self.task = asyncio.ensure_future(self.connection.run())

    async def get(self, way, method, path, fields):
        if self.connection is None or not self.connection.is_open:
            self.close()
            await self.connect()
        head = [(":method", method), (":scheme", "http"), (":authority", way.authority), (":path", path)]
        self.number = self.connection.request(head + [(name.lower(), value) for name, value in fields])
        self.events = self.connection.streams[self.number].events
        while True:
            kind, fields = await self.events.get()
            if kind == "reset":
                raise Broken
            pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields]
            status = int(pairs[0][1])
            if status >= 200:
                return status, pairs[1:]

    async def pieces(self):
        while True:
            kind, value = await self.events.get()
            if kind == "end":
                self.connection.streams.pop(self.number, None)
                return
            if kind == "reset":
                raise Broken
            if kind == "data":
                yield value
                self.connection.taken(self.number, len(value))

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


async def request(world, way, client, number):
    """Sends one random request and checks its response."""
    dice = world.dice
    resources = world.resources
    # A few resources get most requests, and one at a time gets many at once, so that clients meet.
    chance = dice.random()
    if chance < 0.25:
        resource = resources[(number // 60 * 13) % len(resources)]
    elif chance < 0.4:
        resource = resources[SHORT + dice.randrange(LONG)]
    else:
        resource = resources[int(len(resources) * dice.random() ** 3) * 7 % len(resources)]
    token = f"user-{number}"
    fields, span, method = [("X-Token", token)], None, "GET"
    chance = dice.random()
    if chance < 0.25 and resource.len > 1:
        first = dice.choice([0, resource.len // 2, max(0, MIB - 5) if resource.len > MIB else 1, dice.randrange(resource.len)])
        first = min(first, resource.len - 1)
        last = min(resource.len - 1, first + dice.choice([0, 10, 5_000, 500_000]))
        span = first, last
        fields.append(("Range", f"bytes={first}-{last}"))
    elif chance < 0.30:
        method = "HEAD"
    elif chance < 0.35:
        fields.append(("If-None-Match", f'"{max(1, resource.version - dice.randrange(2))}"'))
    elif chance < 0.38:
        fields.append(("Cache-Control", "no-cache"))
    figures = world.figures[f"{client.name}, {way.name}"]
    figures["requests"] += 1
    begun = time.monotonic()
    least = resource.least(way.node.name, begun)
    try:
        status, pairs = await asyncio.wait_for(client.get(way, method, resource.path, fields), SILENT_SECONDS)
        await asyncio.wait_for(check(world, way, client, (resource, token, span, method, least), (status, pairs)), SILENT_SECONDS)
    except asyncio.TimeoutError:
        world.violation("silent", way.name, resource, f"{client.name} {method} {fields}")
        client.close()
    except (Broken, ConnectionError, OSError):
        figures["broken"] += 1
        client.close()


async def check(world, way, client, sent, received):
    """Reads the body and compares it with what was requested."""
    resource, token, span, method, least = sent
    status, pairs = received
    fields, dice = dict(pairs), world.dice
    figures, who = world.figures[f"{client.name}, {way.name}"], f"{client.name} {method} {span} {status} {pairs}"
    for name, value in pairs:
        if (name == "x-echo" and value != token) or (name == "set-cookie" and value != f"user={token}"):
            world.violation("others", way.name, resource, f"for {token}: {who}")
    figures[str(status)] += 1
    figures["hits"] += "; hit" in fields.get("cache-status", "")
    is_ours = status in (200, 206) and re.fullmatch(r'"\d+"', fields.get("etag", ""))
    version = int(fields["etag"].strip('"')) if status in (200, 206, 304) and re.fullmatch(r'"\d+"', fields.get("etag", "")) else None
    if version is not None and version < least:
        world.violation("purged", way.name, resource, f"version {version}, at least {least}: {who}")
    expected = None
    if is_ours:
        expected = resource.body(version)
        if status == 206:
            if span is None or fields.get("content-range") != f"bytes {span[0]}-{span[1]}/{resource.len}":
                world.violation("range", way.name, resource, who)
                return client.close()
            expected = expected[span[0] : span[1] + 1]
    # Some clients stand still for a while, and some leave in the middle.
    pause_at = dice.randrange(resource.len) if dice.random() < 0.03 else None
    leave_at = dice.randrange(resource.len) if dice.random() < 0.02 else None
    at, is_right = 0, True
    async for piece in client.pieces():
        if expected is not None and is_right and (at + len(piece) > len(expected) or expected[at : at + len(piece)] != piece):
            is_right = False
            world.violation("mixed", way.name, resource, f"at {at}: {piece[:40]!r} {who}")
        at += len(piece)
        if leave_at is not None and at > leave_at:
            figures["left"] += 1
            return client.close()
        if pause_at is not None and at > pause_at:
            pause_at = None
            await asyncio.sleep(dice.random())
    if expected is not None and method == "GET" and at != len(expected):
        world.violation("part", way.name, resource, f"{at} of {len(expected)} bytes: {who}")


# --- changes and purges

async def purge(world, nodes, ways):
    """Changes resources and purges them on one node. Notes what that node may no longer serve once it has said so."""
    dice = world.dice
    way = dice.choice(ways)
    resource = dice.choice(world.resources)
    scope = dice.choices(["url", "prefix", "site", "tag", "all"], [60, 6, 2, 10, 1])[0]
    covered = {
        "url": [resource],
        "prefix": [one for one in world.resources if one.kind == resource.kind],
        "tag": [one for one in world.resources if one.tag == resource.tag],
    }.get(scope, world.resources)
    for one in covered[:: max(1, len(covered) // 50)]:
        one.version += 1
    after = [(one, one.version) for one in covered]
    target = f"http://{way.authority}/{resource.kind}/*" if scope == "prefix" else f"http://{way.authority}{resource.path}"
    lines = [f"PURGE {target} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", f"Purge-Scope: {scope}"]
    if scope == "tag":
        lines.append(f"Surrogate-Key: {resource.tag}")
    if dice.random() < 0.2:
        lines.append("Purge-Mode: soft")
    if scope == "prefix":
        lines.remove(f"Purge-Scope: {scope}")
    reader, writer = await asyncio.open_connection("127.0.0.1", way.node.admin)
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    response = await asyncio.wait_for(reader.read(), SILENT_SECONDS)
    writer.close()
    world.figures["purges"][scope] += 1
    if not response.startswith(b"HTTP/1.1 200"):
        world.figures["purges"]["failed: " + response.decode("latin-1").split("\r\n")[-1].strip()] += 1
        return
    now = time.monotonic()
    # A purge by URL is of one authority: the other origin's resources of the same path stay. All ways of a node share
    # the floors, so those purges are repeated for each authority that this node serves.
    if scope in ("url", "prefix", "site"):
        for other in {one.authority for one in ways if one.node is way.node and one is not way}:
            again = [line.replace(way.authority, other) for line in lines]
            reader, writer = await asyncio.open_connection("127.0.0.1", way.node.admin)
            writer.write(("\r\n".join(again) + "\r\n\r\n").encode())
            response = await asyncio.wait_for(reader.read(), SILENT_SECONDS)
            writer.close()
            if not response.startswith(b"HTTP/1.1 200"):
                return
        now = time.monotonic()
    for one, version in after:
        add_floor(one, way.node.name, now, version)
        for other in way.others:
            add_floor(one, other.name, now + FLEET_SECONDS, version)


def add_floor(resource, node, since, version):
    """Notes a floor, and forgets those that it replaces."""
    floors = resource.floors[node]
    passed = max((one for at, one in floors if at < time.monotonic()), default=1)
    resource.floors[node] = [(0.0, passed)] + [(at, one) for at, one in floors if at >= time.monotonic()] + [(since, version)]


async def run(options):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    world = World(options.seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="larder-ways."))
    nodes = []
    try:
        http1 = await asyncio.start_server(functools.partial(serve_http1, world), "127.0.0.1", 0, backlog=1024)
        http2 = await asyncio.start_server(functools.partial(serve_http2, world), "127.0.0.1", 0, backlog=1024)
        ports = [server.sockets[0].getsockname()[1] for server in (http1, http2)]
        nodes, ways = ways_of(options.larder, folder, *ports)
        await asyncio.sleep(3)
        await load(world, nodes, ways, options)
        dead = [node.name for node in nodes if node.process.poll() is not None]
        for name in dead:
            print(f"VIOLATION {name} ended: " + (folder / name / "log").read_text()[-1500:])
            world.violations.append(("ended", name))
    finally:
        for node in nodes:
            if hasattr(node, "process"):
                node.stop()
        if options.keep:
            print(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return world


async def load(world, nodes, ways, options):
    begun, sent = time.monotonic(), 0

    async def client(number):
        nonlocal sent
        open_ones = {}
        while sent < options.requests and len(world.violations) < 1000:
            sent += 1
            mine = sent
            if mine % options.purge_each == 0:
                await purge(world, nodes, ways)
            if mine % 10_000 == 0:
                rate = mine / (time.monotonic() - begun)
                print(f"{mine} requests, {rate:.0f}/s, {len(world.violations)} violations", file=sys.stderr, flush=True)
            way = ways[world.dice.randrange(len(ways))]
            kind = Plain if world.dice.random() < 0.6 else Multiplexed
            if way.is_forward:
                kind = Plain
            key = way.name, kind
            if key not in open_ones:
                open_ones[key] = kind(way.node.port)
            await request(world, way, open_ones[key], mine)
        for one in open_ones.values():
            one.close()

    await asyncio.gather(*(client(number) for number in range(options.clients)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")
    parser.add_argument("--larder", default=os.environ.get("LARDER_BIN", f"{target}/release/larder"))
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--purge-each", type=int, default=100, help="a purge for each so many requests")
    parser.add_argument("--keep", action="store_true", help="keep stores and logs")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    world = asyncio.run(run(options))
    for name in sorted(world.figures):
        print(f"{name}: " + ", ".join(f"{figure} {count}" for figure, count in world.figures[name].most_common()))
    total = sum(figures["requests"] for figures in world.figures.values())
    kinds = collections.Counter(kind for kind, _ in world.violations)
    by_way = collections.Counter(way for _, way in world.violations)
    if kinds:
        print("violations: " + ", ".join(f"{kind} {count}" for kind, count in kinds.items()) + "; " + ", ".join(f"{way} {count}" for way, count in by_way.items()))
    print(f"{total} requests, {len(world.violations)} violations")
    sys.exit(1 if world.violations else 0)


if __name__ == "__main__":
    main()
