"""The emulator of Google Cloud Storage as tests use it: through fsspec's settings, and by plain
HTTP beside tarkit.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.parse
import uuid
from collections.abc import Iterator

import fsspec


class Gcs:
    """A bucket of its own. url(name): where.

    Attributes:
        environment: for programs that are started.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.environment = {"STORAGE_EMULATOR_HOST": endpoint}
        self.bucket = f"test-{uuid.uuid4().hex[:12]}"
        self.request("POST", "/storage/v1/b?project=tests", json.dumps({"name": self.bucket}))

    def request(self, method: str, path: str, body: str | None = None) -> bytes:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.endpoint).netloc, timeout=120)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            assert response.status == 200, content
            return content
        finally:
            connection.close()

    def url(self, name: str) -> str:
        return f"gs://{self.bucket}/{name}"

    def content(self, name: str) -> bytes:
        return self.request("GET", f"/storage/v1/b/{self.bucket}/o/{urllib.parse.quote(name, safe='')}?alt=media")

    def names(self) -> list[str]:
        listed = json.loads(self.request("GET", f"/storage/v1/b/{self.bucket}/o"))
        return [entry["name"] for entry in listed["items"]]


@contextlib.contextmanager
def gcs_bucket(endpoint: str) -> Iterator[Gcs]:
    """A fresh bucket that gs:// URLs of this process reach."""
    bucket = Gcs(endpoint)
    before = fsspec.config.conf.get("gs")
    fsspec.config.conf["gs"] = {"endpoint_url": endpoint, "token": "anon"}
    try:
        yield bucket
    finally:
        fsspec.config.conf.pop("gs")
        if before is not None:
            fsspec.config.conf["gs"] = before
        theirs = fsspec.get_filesystem_class("gs")
        for kind in (theirs, *theirs.__subclasses__()):
            kind.clear_instance_cache()
