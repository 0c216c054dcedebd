"""What a load does to the memory of a proxy that keeps to --memory.

Usage: memory.py ORIGIN_PORT PROXY_PORT PROXY_PID LOAD SECONDS

Is the origin too: /N sends 5 MB that may be stored, /short/N sends 10 KB. The loads: `idle` opens 10,000 connections, each of
which asked once. `misses` has 400 clients that read a response each from the origin, a little at a time. `hit` has 2,000 that
read one stored response so. `streams` opens 10,000 streams of HTTP/2 whose windows stay shut. `mixed` asks for 1,000 objects a
second, of which every other one is new. Prints the memory before, the most meanwhile, at the end of the load, and 10 s later, in KiB.
"""
import asyncio
import os
import resource
import socket
import struct
import sys

origin_port, port, pid = map(int, sys.argv[1:4])
load, seconds = sys.argv[4], float(sys.argv[5])
LONG = b"x" * 5_000_000
SHORT = b"y" * 10_000
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
failures = {}


def memory_kib():
    with open(f"/proc/{pid}/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


async def serve(reader, writer):
    """One connection of the origin."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = SHORT if head.split(b" ", 2)[1].startswith(b"/short/") else LONG
            writer.write(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def note(failure):
    failures[failure] = failures.get(failure, 0) + 1


async def connect(received=None):
    """A connection, whose kernel buffer takes little if `received` says so."""
    made = socket.socket()
    if received:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    return made


async def ask(made, path):
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: memory/1\r\nAccept: */*\r\n\r\n".encode()
    await asyncio.get_running_loop().sock_sendall(made, request)


async def read_slowly(made, end):
    """Reads 4 KB every half second."""
    loop = asyncio.get_running_loop()
    while loop.time() < end:
        piece = await asyncio.wait_for(loop.sock_recv(made, 4096), seconds)
        if not piece:
            note("closed")
            return
        await asyncio.sleep(0.5)


async def one_slow(path, end, gate):
    try:
        async with gate:
            made = await connect(16 << 10)
            await ask(made, path)
        await read_slowly(made, end)
        made.close()
    except (OSError, asyncio.TimeoutError) as failure:
        note(type(failure).__name__)


async def slow_readers(count, path_of):
    loop = asyncio.get_running_loop()
    gate, end = asyncio.Semaphore(100), loop.time() + seconds
    await asyncio.gather(*(one_slow(path_of(number), end, gate) for number in range(count)))


async def one_idle(number, gate, kept):
    loop = asyncio.get_running_loop()
    try:
        async with gate:
            made = await connect()
            await ask(made, "/short/0")
            got = b""
            while len(got) < len(SHORT):
                piece = await asyncio.wait_for(loop.sock_recv(made, 65536), 30)
                if not piece:
                    note("closed")
                    return
                got += piece
        kept.append(made)
    except (OSError, asyncio.TimeoutError) as failure:
        note(type(failure).__name__)


async def idle():
    gate, kept = asyncio.Semaphore(100), []
    await asyncio.gather(*(one_idle(number, gate, kept) for number in range(10_000)))
    await asyncio.sleep(seconds)
    print("connections that idle:", len(kept))
    for made in kept:
        made.close()


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


async def streams():
    writers = []
    for connection in range(100):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0)) + frame(4, 1, 0))
        for number in range(100):
            path = b"/%d" % (number % 10)
            fields = b"\x82\x86\x04" + bytes([len(path)]) + path + b"\x01\x09localhost"
            writer.write(frame(1, 5, 2 * number + 1, fields))
        await writer.drain()
        writers.append(writer)
    await asyncio.sleep(seconds)
    for writer in writers:
        writer.close()


async def mixed():
    loop = asyncio.get_running_loop()
    count = int(seconds * 1000)
    made = [await connect() for _ in range(32)]
    number = 0

    async def client(made):
        nonlocal number
        while number < count:
            mine, number = number, number + 1
            await ask(made, f"/short/{mine if mine % 2 else mine % 997}")
            got = b""
            while not (b"\r\n\r\n" in got and len(got) >= got.index(b"\r\n\r\n") + 4 + len(SHORT)):
                piece = await asyncio.wait_for(loop.sock_recv(made, 65536), 30)
                if not piece:
                    note("closed")
                    return
                got += piece
            behind = start + number / 1000 - loop.time()
            if behind > 0:
                await asyncio.sleep(behind)

    start = loop.time()
    await asyncio.gather(*map(client, made))


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", origin_port, backlog=4096)
    made = await connect()
    await ask(made, "/0")
    left = len(LONG)
    while left > 0:
        left -= len(await asyncio.get_running_loop().sock_recv(made, 1 << 20))
    before = memory_kib()
    loads = {
        "idle": idle,
        "misses": lambda: slow_readers(400, lambda number: f"/{1000 + number}"),
        "hit": lambda: slow_readers(2_000, lambda number: "/0"),
        "streams": streams,
        "mixed": mixed,
    }
    under_load = asyncio.ensure_future(loads[load]())
    last = most = before
    while not under_load.done():
        await asyncio.sleep(0.1)
        last = memory_kib()
        most = max(most, last)
    await under_load
    await asyncio.sleep(10)
    print(f"KiB: {before} before, {most} at most, {last} at its end, {memory_kib()} after 10 s; failures: {failures or 'none'}")
    sys.stdout.flush()
    os._exit(0)  # connections that were cut off are not worth a word


asyncio.run(main())
