"""What tier.sh stands on: an origin, a client that checks every byte, and a relay to the object store that can fail.

  tier.py origin PORT
  tier.py load PORT --objects N --requests N [--seed N]   prints one JSON object
  tier.py relay PORT TARGET_PORT MODE_FILE                the file has: pass, stop, slow or flip

Lengths and bytes of an object follow from its number: most are 20 to 180 KB, one in 20 has 1.5 to 3 MB.
"""

import argparse
import asyncio
import bisect
import itertools
import json
import pathlib
import random
import time

SLOW_SECONDS = 10


def body_of(number):
    dice = random.Random(number)
    length = dice.randrange(1_500_000, 3_000_000) if number % 20 == 7 else dice.randrange(20_000, 180_000)
    return dice.randbytes(length)


async def origin(port):
    async def serve(reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = body_of(int(head.split(b" ", 2)[1].rsplit(b"/", 1)[1]))
                head = b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nCache-Control: max-age=36000\r\nETag: "1"\r\n\r\n'
                writer.write(head % len(body) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


async def relay(port, target, mode_file):
    mode = lambda: pathlib.Path(mode_file).read_text().strip()

    async def copy(reader, writer, is_response):
        try:
            while chunk := await reader.read(65536):
                now = mode()
                if now == "stop":
                    break
                if now == "slow":
                    await asyncio.sleep(SLOW_SECONDS)
                if now == "flip" and is_response:
                    # After the head, if the chunk has one, so that the response is one that a client accepts.
                    start = chunk.find(b"\r\n\r\n") + 4 if chunk.startswith(b"HTTP/") else 0
                    chunk = bytearray(chunk)
                    for at in range(start, len(chunk), 5000):
                        chunk[at] ^= 0x20
                writer.write(bytes(chunk))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def serve(reader, writer):
        try:
            if mode() == "stop":
                raise ConnectionError
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        except ConnectionError:
            writer.close()
            return
        await asyncio.gather(copy(reader, far_writer, False), copy(far_reader, writer, True))

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


async def load(port, objects, requests, seed):
    """Requests objects by Zipf's law, over eight connections."""
    dice, figures = random.Random(seed), {"hits": 0, "failed": 0, "wrong": 0, "requests": requests, "slowest_s": 0.0}
    weights = list(itertools.accumulate(1 / (rank + 1) ** 0.8 for rank in range(objects)))
    numbers = iter([bisect.bisect_left(weights, dice.random() * weights[-1]) for _ in range(requests)])

    async def client():
        connection = None
        for number in numbers:
            begun = time.monotonic()
            try:
                connection = connection or await asyncio.open_connection("127.0.0.1", port)
                connection[1].write(b"GET /object/%d HTTP/1.1\r\nHost: www.example.test\r\n\r\n" % number)
                head = (await asyncio.wait_for(connection[0].readuntil(b"\r\n\r\n"), 60)).lower()
                length = int(head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
                body = await asyncio.wait_for(connection[0].readexactly(length), 60)
                figures["failed"] += not head.startswith(b"http/1.1 200")
                figures["wrong"] += body != body_of(number)
                figures["hits"] += b"; hit" in head
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, IndexError):
                figures["failed"] += 1
                connection = None
            figures["slowest_s"] = round(max(figures["slowest_s"], time.monotonic() - begun), 2)

    await asyncio.gather(*(client() for _ in range(8)))
    print(json.dumps(figures))


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("origin").add_argument("port", type=int)
    relaying = commands.add_parser("relay")
    relaying.add_argument("port", type=int)
    relaying.add_argument("target", type=int)
    relaying.add_argument("mode_file")
    loading = commands.add_parser("load")
    loading.add_argument("port", type=int)
    loading.add_argument("--objects", type=int, required=True)
    loading.add_argument("--requests", type=int, required=True)
    loading.add_argument("--seed", type=int, default=1)
    arguments = vars(parser.parse_args())
    asyncio.run(globals()[arguments.pop("command")](**arguments))


main()
