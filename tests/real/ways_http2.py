"""HTTP/2 by prior knowledge for ways.py: frames, flow control and nothing else, so that a stream can end in every wrong way.

HPACK is the package `hpack` of PyPI. One `Connection` serves either side. Streams are numbered by the client.
"""

import asyncio
import struct

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
FRAME_BYTES = 16_384
WINDOW_BYTES = 65_535


class Stream:
    """The events of one stream: (`head`, fields), (`data`, bytes), (`end`, None) or (`reset`, code)."""

    def __init__(self, window):
        self.events = asyncio.Queue()
        self.window = window


class Connection:
    def __init__(self, reader, writer, is_client, on_stream=None):
        self.reader, self.writer, self.is_client, self.on_stream = reader, writer, is_client, on_stream
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.streams, self.next_id = {}, 1
        self.window, self.peer_window = WINDOW_BYTES, WINDOW_BYTES
        self.moved = asyncio.Event()
        self.is_open = True
        writer.write((PREFACE if is_client else b"") + self.frame(SETTINGS, 0, 0, b""))

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def close(self):
        self.is_open = False
        self.moved.set()
        for stream in self.streams.values():
            stream.events.put_nowait(("reset", None))
        self.writer.close()

    async def run(self):
        """Reads frames until the connection ends."""
        try:
            if not self.is_client:
                await self.reader.readexactly(len(PREFACE))
            while True:
                head = await self.reader.readexactly(9)
                payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
                self.take(head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, payload)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, OSError):
            pass
        finally:
            self.close()

    def take(self, kind, flags, number, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                if name == 4:
                    for stream in self.streams.values():
                        stream.window = stream.window and stream.window + value - self.peer_window
                    self.peer_window = value
            self.writer.write(self.frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.writer.write(self.frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            grown = int.from_bytes(payload, "big")
            if number == 0:
                self.window += grown
            elif number in self.streams and self.streams[number].window is not None:
                self.streams[number].window += grown
            self.moved.set()
        elif kind in (HEADERS, CONTINUATION):
            self.take_head(kind, flags, number, payload)
        elif kind == DATA:
            padded = payload[1 : len(payload) - payload[0]] if flags & 8 else payload
            if payload:
                self.writer.write(self.frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload))))
            if number in self.streams:
                events = self.streams[number].events
                events.put_nowait(("data", padded))
                if flags & END_STREAM:
                    events.put_nowait(("end", None))
        elif kind == RST_STREAM and number in self.streams:
            self.streams[number].events.put_nowait(("reset", int.from_bytes(payload, "big")))
            self.streams[number].window = None
            self.moved.set()
        elif kind == GOAWAY and self.is_client:
            self.is_open = False

    def take_head(self, kind, flags, number, payload):
        if kind == HEADERS:
            if flags & 8:
                payload = payload[1 : len(payload) - payload[0]]
            self.block, self.ends = payload[5:] if flags & 0x20 else payload, flags & END_STREAM
        else:
            self.block += payload
        if not flags & END_HEADERS:
            return
        fields = [(bytes(n), bytes(v)) for n, v in self.decoder.decode(self.block, raw=True)]
        if number not in self.streams:
            if self.is_client:
                return
            self.streams[number] = Stream(self.peer_window)
            self.on_stream(self, number, fields)
        events = self.streams[number].events
        events.put_nowait(("head", fields))
        if self.ends:
            events.put_nowait(("end", None))

    def request(self, fields):
        """Sends a request without a body. Returns the number of its stream."""
        number, self.next_id = self.next_id, self.next_id + 2
        self.streams[number] = Stream(self.peer_window)
        self.send_head(number, fields, True)
        return number

    def send_head(self, number, fields, ends):
        block = self.encoder.encode(fields)
        self.writer.write(self.frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), number, block))

    async def send_data(self, number, data, ends):
        """Sends bytes as the peer's windows permit. Returns whether the stream was still open."""
        at = 0
        while at < len(data):
            stream = self.streams.get(number)
            if stream is None or stream.window is None or not self.is_open:
                return False
            size = min(FRAME_BYTES, len(data) - at, stream.window, self.window)
            if size <= 0:
                self.moved.clear()
                await self.moved.wait()
                continue
            stream.window -= size
            self.window -= size
            is_last = ends and at + size == len(data)
            self.writer.write(self.frame(DATA, END_STREAM if is_last else 0, number, data[at : at + size]))
            at += size
            await self.writer.drain()
        if ends and not data:
            self.writer.write(self.frame(DATA, END_STREAM, number, b""))
        return True

    def taken(self, number, size):
        """Opens the window of a stream again, after its reader took `size` bytes."""
        if size and self.is_open:
            self.writer.write(self.frame(WINDOW_UPDATE, 0, number, struct.pack(">I", size)))

    def reset(self, number, code):
        self.writer.write(self.frame(RST_STREAM, 0, number, struct.pack(">I", code)))
        self.streams.pop(number, None)

    def go_away(self):
        self.writer.write(self.frame(GOAWAY, 0, 0, struct.pack(">II", 0, 0)))
