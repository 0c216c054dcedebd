"""Opens many slow clients of a proxy, and asks for hits beside them, each on a connection of its own.

The slow clients are `silent` (they send nothing), send `heads` octet by octet, or are `readers` of 16 KiB a second.
"""
import socket
import sys
import threading
import time

port, slow, hits = int(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4])
kind = sys.argv[2]
SETTLING_SECONDS = 5
REQUEST = b"GET /page/%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
is_over = threading.Event()


def connect(received=None):
    sock = socket.socket()
    if received:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
    sock.settimeout(10)
    sock.connect(("127.0.0.1", port))
    return sock


def hit():
    """Asks for the small page. Returns the status, or what went wrong."""
    try:
        with connect() as sock:
            sock.sendall(REQUEST % b"small")
            answer = b""
            while len(answer.partition(b"\r\n\r\n")[2]) < 1000:
                piece = sock.recv(65536)
                if not piece:
                    break
                answer += piece
            return answer[9:12].decode() or "closed"
    except OSError as error:
        return type(error).__name__


def act(sock, turn):
    """Lets a slow client do something."""
    try:
        if kind == "heads":
            sock.send((REQUEST % b"small")[turn % 20 : turn % 20 + 1])
        elif kind == "readers":
            sock.recv(16 << 10)
    except OSError:
        pass


def be_slow(socks):
    turn = 0
    while not is_over.wait(1):
        for sock in socks:
            act(sock, turn)
        turn += 1


assert hit() == "200"
socks = []
for _ in range(slow):
    try:
        sock = connect(32 << 10)
        if kind == "readers":
            sock.sendall(REQUEST % b"long")
        sock.setblocking(False)
        socks.append(sock)
    except OSError:
        pass
slow_ones = threading.Thread(target=be_slow, args=(socks,))
slow_ones.start()
time.sleep(SETTLING_SECONDS)
begin = time.monotonic()
answers = [hit() for _ in range(hits)]
is_over.set()
slow_ones.join()
others = sorted({answer for answer in answers if answer != "200"})
print(f"hits: {answers.count('200')} of {hits} in {time.monotonic() - begin:.2f} s beside {slow} {kind}; others: {others}")
for sock in socks:
    sock.close()
