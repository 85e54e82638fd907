"""A TCP proxy whose connections can be cut, as when an API server restarts behind its address."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class CutProxy:
    """Listens on a port of its own until close().

    cut() ends all connections and refuses new ones until mend().
    """

    def __init__(self, target: str) -> None:
        self._target = ("127.0.0.1", int(target.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._cut = self._closed = False
        self.refused = 0
        self._accepting = threading.Thread(target=self._accept, name="cut-proxy")
        self._accepting.start()

    def cut(self) -> None:
        with self._lock:
            self._cut = True
            for pair in self._pairs:
                _end(*pair)

    def mend(self) -> None:
        with self._lock:
            self._cut = False

    def __enter__(self) -> CutProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.cut()
        with contextlib.suppress(OSError):
            socket.create_connection(self._listener.getsockname()).close()
        self._accepting.join()
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            with self._lock:
                if self._closed:
                    client.close()
                    return
                if self._cut:
                    self.refused += 1
                    client.close()
                    continue
                pair = (client, socket.create_connection(self._target))
                self._pairs.append(pair)
                thread = threading.Thread(target=self._carry, args=pair)
                self._threads.append(thread)
                thread.start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in ready.select():
                    content = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    if not content:
                        raise OSError
                    key.data.sendall(content)
        with self._lock:
            _end(client, server)
            client.close()
            server.close()
            self._pairs.remove((client, server))


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
