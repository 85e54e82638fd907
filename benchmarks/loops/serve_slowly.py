"""Serve a folder over HTTP as a store far away does: serve_slowly.py FOLDER LATENCY RATE BUFFER.

Each connection and each request waits LATENCY seconds; all answers together have RATE bytes a
second; BUFFER is the size of a socket's send buffer in bytes, so that what the kernel takes is what
is sent. ``/counts`` answers with the numbers of requests and connections since the last look, and
of body bytes that the kernel took. Prints its port; ends when its standard input ends.
"""

import json
import os
import re
import socket
import sys
import threading
import time

FOLDER, LATENCY, RATE, BUFFER = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
PIECE = 1 << 18
LOCK = threading.Lock()
counts = {"requests": 0, "connections": 0, "bytes": 0}
free_at = [time.monotonic()]
"""When the line of all connections has sent what was given to it."""


def count(**more: int) -> None:
    """Add to the counts."""
    with LOCK:
        for name, number in more.items():
            counts[name] += number


def wait_for_turn(size: int) -> None:
    """Wait until the line of all connections has sent so many bytes more."""
    with LOCK:
        free_at[0] = max(free_at[0], time.monotonic() - 0.01) + size / RATE
        left = free_at[0] - time.monotonic()
    if left > 0:
        time.sleep(left)


def requests(connection: socket.socket):
    """Yield path and headers of each request."""
    received = b""
    while True:
        while b"\r\n\r\n" not in received:
            piece = connection.recv(65536)
            if not piece:
                return
            received += piece
        head, received = received.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        yield first.split(" ")[1], headers


def answer(connection: socket.socket, path: str, headers: dict[str, str]) -> bool:
    """Answer one request; True if the connection stays open."""
    stays = headers.get("connection", "").lower() != "close"
    kept = "keep-alive" if stays else "close"
    if path == "/counts":
        with LOCK:
            body = json.dumps(counts).encode()
            counts.update(dict.fromkeys(counts, 0))
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        return False
    count(requests=1)
    time.sleep(LATENCY)
    try:
        file = open(FOLDER + path, "rb")
    except OSError:
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        return stays
    with file:
        size = os.fstat(file.fileno()).st_size
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
        at, end = 0, size
        status = "200 OK"
        if wanted:
            at, end = int(wanted[1]), min(size, int(wanted[2] or size) + 1)
            status = f"206 Partial Content\r\nContent-Range: bytes {at}-{end - 1}/{size}"
        head = f'HTTP/1.1 {status}\r\nContent-Length: {end - at}\r\nETag: "{size}"\r\nConnection: {kept}\r\n\r\n'
        connection.sendall(head.encode())
        while at < end:
            piece = min(PIECE, end - at)
            wait_for_turn(piece)
            sent = os.sendfile(connection.fileno(), file.fileno(), at, piece)
            count(bytes=sent)
            at += sent
    return stays


def serve(connection: socket.socket) -> None:
    """All requests of one connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        try:
            time.sleep(LATENCY)
            count(connections=1)
            for path, headers in requests(connection):
                if not answer(connection, path, headers):
                    return
        except OSError:
            pass  # the client left


def accept(listener: socket.socket) -> None:
    """Connections without end, a thread for each."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
    threading.Thread(target=accept, args=(listening,), daemon=True).start()
    print(listening.getsockname()[1], flush=True)
    sys.stdin.read()
