"""Requests that wait for an origin that takes its time, responses that nobody reads, and what is left of both.

Usage: in_flight.py ORIGIN_PORT PROXY_PORT PROXY_PID WAITING UNREAD

Is the origin too: /wait/N answers once it is told to and may not be stored, /long/N sends 5 MB that may be stored.
"""
import asyncio
import os
import struct
import sys
import time

origin_port, port, pid, waiting, unread = map(int, sys.argv[1:6])
LONG = b"x" * 5_000_000
SHORT = b"y" * 10_000
FIELDS = (
    "Host: localhost\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n"
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n"
    "Accept-Encoding: gzip, deflate, br\r\nReferer: http://localhost/some/page/that/refers/to/it\r\nCookie: session=0123456789abcdef\r\n"
)
state = {"held": 0, "release": None}


def memory_kib():
    with open(f"/proc/{pid}/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


async def serve(reader, writer):
    """One connection of the origin."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1]
            if path.startswith(b"/wait/"):
                state["held"] += 1
                await state["release"].wait()
                state["held"] -= 1
            body = LONG if path.startswith(b"/long/") else SHORT
            # What the first round would leave in the memory cache is not memory of an exchange.
            control = b"no-store" if path.startswith(b"/wait/") else b"max-age=600"
            head = b"HTTP/1.1 200 OK\r\nCache-Control: %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
            writer.write(head % (control, len(body)))
            writer.write(body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def ask(reader, writer, path):
    """A request over HTTP/1.1 and its whole answer."""
    writer.write(f"GET {path} HTTP/1.1\r\n{FIELDS}\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[16:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: "))
    body = await reader.readexactly(length)
    return head.startswith(b"HTTP/1.1 200") and len(body) == length


async def until(what, holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            sys.exit(f"never happened: {what}")
        await asyncio.sleep(0.05)


async def wait_together(count, names):
    """As many requests at once; the memory while all of them wait, and how many are answered then."""
    state["release"] = asyncio.Event()
    limit = asyncio.Semaphore(200)

    async def connect():
        async with limit:
            return await asyncio.open_connection("127.0.0.1", port)

    connections = await asyncio.gather(*(connect() for _ in range(count)))
    asking = [asyncio.ensure_future(ask(*connection, f"/wait/{names}/{number}")) for number, connection in enumerate(connections)]
    await until("all wait at the origin", lambda: state["held"] == count)
    at_once = memory_kib()
    await asyncio.sleep(1)
    while_waiting = memory_kib()
    state["release"].set()
    answered = sum(await asyncio.gather(*asking))
    kept = memory_kib()
    for _, writer in connections:
        writer.close()
    return at_once, while_waiting, kept, answered


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


async def leave_unread(count):
    """So many long misses on one connection of HTTP/2 whose windows stay shut."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0)) + frame(4, 1, 0))
    for number in range(count):
        path = b"/long/%d" % number
        fields = b"\x82\x86\x04" + bytes([len(path)]) + path + b"\x01\x09localhost"
        writer.write(frame(1, 5, 2 * number + 1, fields))
    await writer.drain()
    most = 0
    for _ in range(50):
        await asyncio.sleep(0.1)
        most = max(most, memory_kib())
    writer.close()
    return most


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", origin_port, backlog=4096)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await ask(reader, writer, "/first")
    before = memory_kib()
    for round_name in ("first", "second"):
        at_once, held, kept, answered = await wait_together(waiting, round_name)
        print(f"KiB an exchange that has just begun to wait, {round_name} time: {(at_once - before) / waiting:.2f} ({before} -> {at_once} KiB)")
        print(f"KiB an exchange that has waited for a second, {round_name} time: {(held - before) / waiting:.2f} ({kept} KiB once answered)")
        print(f"answered: {answered} of {waiting}")
        await asyncio.sleep(2)
    settled = memory_kib()
    most = await leave_unread(unread)
    print(f"KiB for {unread} long responses that nobody reads: {most - settled} ({settled} -> {most} KiB)")
    await asyncio.sleep(10)
    after = memory_kib()
    print(f"KiB more than at first, 10 s after all that: {after - before} ({before} -> {after} KiB)")
    sys.stdout.flush()
    os._exit(0)  # connections that were cut off are not worth a word


asyncio.run(main())
