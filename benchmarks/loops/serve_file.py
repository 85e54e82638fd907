"""Serve one file over HTTP on the loopback, by sendfile, so that the server is not what is
measured.

Prints its port. Understands ``Range: bytes=N-``; ends when its standard input ends.
"""

import os
import re
import socket
import sys
import threading

path = sys.argv[1]


def answer(connection: socket.socket) -> None:
    """One request."""
    with connection, open(path, "rb") as file:
        request = b""
        while b"\r\n\r\n" not in request:
            piece = connection.recv(65536)
            if not piece:
                return
            request += piece
        size = os.fstat(file.fileno()).st_size
        found = re.search(rb"\r\nrange: *bytes=(\d+)-\r\n", request, re.IGNORECASE)
        at = int(found[1]) if found else 0
        status = f"206 Partial Content\r\nContent-Range: bytes {at}-{size - 1}/{size}" if found else "200 OK"
        head = f'HTTP/1.1 {status}\r\nContent-Length: {size - at}\r\nETag: "1"\r\nConnection: close\r\n\r\n'
        connection.sendall(head.encode())
        while at < size:
            at += os.sendfile(connection.fileno(), file.fileno(), at, size - at)


def serve(listener: socket.socket) -> None:
    """Requests without end, a thread for each."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


with socket.create_server(("127.0.0.1", 0)) as listening:
    threading.Thread(target=serve, args=(listening,), daemon=True).start()
    print(listening.getsockname()[1], flush=True)
    sys.stdin.read()
