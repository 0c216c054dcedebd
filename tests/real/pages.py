#!/usr/bin/env python3
"""An origin of pages of eleven objects, and a browser that views many at once; pages.sh runs both.

serve --port PORT
view --port PORT --at-once COUNT --seconds TIME    views pages, COUNT at a time, each TIME long
again --port PORT --at-once COUNT                  requests a hundred of them anew, one object after the other
"""
import argparse
import asyncio
import random

OBJECTS = 11
PAGES = 100  # that are counted; as many as are viewed at once come before and after them
TIMEOUT_S = 60


def body(page, number):
    seeded = random.Random(page * OBJECTS + number)
    return bytes([seeded.randrange(256)]) * seeded.randrange(500, 10_001)


async def answer(reader, writer):
    try:
        while line := await reader.readline():
            while (await reader.readline()).strip():
                pass
            page, number = map(int, line.split()[1].decode().rsplit("/", 2)[1:])
            data = body(page, number)
            kind = "text/html" if number == 0 else "image/png"
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nCache-Control: max-age=86400\r\nContent-Length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(port):
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    await server.serve_forever()


class Browser:
    """One connection, which is used by one page view at a time."""

    def __init__(self, port):
        self.port, self.reader, self.writer = port, None, None

    async def get(self, page, number):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        referer = f"Referer: http://pages.test/{page}/0\r\n" if number else ""
        self.writer.write(f"GET /{page}/{number} HTTP/1.1\r\nHost: pages.test\r\n{referer}\r\n".encode())
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        data = await asyncio.wait_for(self.reader.readexactly(int(length.split(b":")[1])), TIMEOUT_S)
        assert b" 200 " in head.split(b"\r\n")[0] and data == body(page, number), (page, number, head)
        return b"; hit" in head


async def view(port, at_once, seconds):
    begun = asyncio.get_running_loop().time()

    async def one(page):
        browser = Browser(port)
        for number in range(OBJECTS):
            at = begun + page * seconds / at_once + number * seconds / OBJECTS
            await asyncio.sleep(at - asyncio.get_running_loop().time())
            await browser.get(page, number)
        browser.writer.close()

    await asyncio.gather(*(one(page) for page in range(PAGES + 2 * at_once)))


async def again(port, at_once):
    browser = Browser(port)
    hits = 0
    for page in range(at_once, at_once + PAGES):
        for number in range(OBJECTS):
            hits += await browser.get(page, number)
    print(hits)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["serve", "view", "again"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1)
    given = parser.parse_args()
    work = {
        "serve": lambda: serve(given.port),
        "view": lambda: view(given.port, given.at_once, given.seconds),
        "again": lambda: again(given.port, given.at_once),
    }
    asyncio.run(work[given.what]())


main()
