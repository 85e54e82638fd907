"""A server on the loopback that answers every connection with bytes that it was given, and closes
it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class RawServer:
    """Attributes:
    answers: what the next connections get; the last one is for all further ones.
    requests: what they sent.
    """

    def __init__(self) -> None:
        self.answers: list[bytes] = [b""]
        self.requests: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/object"

    def serve(self) -> None:
        """Until the listening socket is shut down."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            # The client may have gone; that is its right.
            with connection, suppress(OSError):
                request = b""
                while b"\r\n\r\n" not in request and (data := connection.recv(65536)):
                    request += data
                self.requests.append(request)
                connection.sendall(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def raw_server() -> Iterator[RawServer]:
    server = RawServer()
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
