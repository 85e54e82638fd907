"""A stand-in for ODPS: the few requests that reading a table makes, over HTTP on the loopback.

It speaks what pyodps asks for: the table's description, a download session, and rows in the
tunnel's own encoding, which pyodps's writer makes. Signatures are not checked. It was written from
what pyodps 0.13.2 sends and expects; the service itself was not reached.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Table:
    """Args:
        columns: (name, type).

    Attributes:
        faults: what the next requests for rows meet: "cut", "busy", "denied".
    """

    def __init__(self, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], partition: str = "") -> None:
        self.columns, self.rows, self.partition = columns, rows, partition
        self.faults: list[str] = []
        self.ranges: list[tuple[int, int]] = []

    @property
    def schema(self) -> dict[str, Any]:
        keys = [{"name": self.partition.partition("=")[0], "type": "string"}] if self.partition else []
        return {"columns": [{"name": name, "type": kind} for name, kind in self.columns], "partitionKeys": keys}

    def encoded(self, start: int, count: int, names: Sequence[str] | None) -> bytes:
        """Rows as the tunnel sends them."""
        from odps.models import Record, TableSchema
        from odps.tunnel.io.writer import BaseRecordWriter
        from odps.types import Column

        order = [name for name, _ in self.columns]
        chosen = [order.index(name) for name in names or order]
        schema = TableSchema(columns=[Column(*self.columns[index]) for index in chosen])
        file = io.BytesIO()
        writer = BaseRecordWriter(schema, file)
        for row in self.rows[start : start + count]:
            writer.write(Record(schema=schema, values=[row[index] for index in chosen]))
        # Closing would close the file as well.
        file.close, content = lambda: None, file  # type: ignore[method-assign,assignment]
        writer.close()
        return content.getvalue()


@contextlib.contextmanager
def serve(tables: dict[str, Table]) -> Iterator[str]:
    """The server's URL.

    Args:
        tables: name -> table; of one with a partition, that partition.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.do_GET()

        def do_GET(self) -> None:
            place = urlsplit(self.path)
            query = parse_qs(place.query, keep_blank_values=True)
            found = re.search(r"/projects/p/tables/(\w+)$", place.path)
            table = tables.get(found[1]) if found else None
            if table is None or query.get("partition", [table.partition]) != [table.partition]:
                self.refuse(404, "NoSuchTable" if table is None else "NoSuchPartition")
            elif "data" in query:
                self.rows(table, query)
            elif "downloads" in query or "downloadid" in query:
                status = {"DownloadID": "1", "Status": "normal", "Owner": "o", "RecordCount": len(table.rows)}
                self.answer(json.dumps({**status, "Schema": table.schema}).encode())
            else:
                schema = f"<Schema><![CDATA[{json.dumps(table.schema)}]]></Schema>"
                self.answer(f"<Table><Name>{found and found[1]}</Name>{schema}</Table>".encode())

        def rows(self, table: Table, query: dict[str, list[str]]) -> None:
            start, count = map(int, query["rowrange"][0].strip("()").split(","))
            table.ranges.append((start, count))
            fault = table.faults.pop(0) if table.faults else ""
            names = query["columns"][0].split(",") if "columns" in query else None
            body = table.encoded(start, count, names)
            if fault == "busy":
                self.refuse(503, "ServiceUnavailable")
            elif fault == "denied":
                self.refuse(403, "NoPermission")
            else:
                self.answer(body, len(body) * 2 // 3 if fault == "cut" else None)

        def refuse(self, status: int, code: str) -> None:
            self.answer(json.dumps({"Code": code, "Message": f"it is {code}"}).encode(), status=status)

        def answer(self, body: bytes, cut: int | None = None, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("x-odps-tunnel-version", "5")
            self.send_header("x-odps-request-id", "1")
            self.end_headers()
            self.wfile.write(body[:cut])
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Nothing: the tests look at what is returned."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
