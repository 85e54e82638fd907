"""Serve one picture under every path, from memory, with connections that stay open.

``serve_pictures.py FILE PERCENT``: so many percent of the requests are answered with 503, drawn by
a seeded generator; robots.txt does not exist. Prints its port; ends when its standard input ends.
"""

import asyncio
import random
import sys
import threading
from pathlib import Path

CONTENT = Path(sys.argv[1]).read_bytes()
PERCENT = float(sys.argv[2])
DRAW = random.Random(1)
FOUND = b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s" % (len(CONTENT), CONTENT)
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class Pictures(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with no bytes."""
        self.transport = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, self.received = self.received.split(b"\r\n\r\n", 1)
            answer = FOUND if DRAW.random() * 100 >= PERCENT else BUSY
            if b"/robots.txt " in head[:20]:
                answer = MISSING
            self.transport.write(answer)  # type: ignore[attr-defined]
            if b"connection: close" in head.lower():
                self.transport.close()


async def serve() -> None:
    """Until the process ends."""
    server = await asyncio.get_running_loop().create_server(Pictures, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
sys.stdin.read()
