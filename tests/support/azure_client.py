"""Azurite as tests use it: through fsspec's settings, and with Azure's own synchronous client
beside tarkit.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import fsspec

# Those of every Azurite: https://learn.microsoft.com/azure/storage/common/storage-use-azurite
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Azure:
    """A container of its own. url(name): where.

    Attributes:
        environment: for programs that are started.
    """

    def __init__(self, endpoint: str) -> None:
        from azure.storage.blob import ContainerClient

        self.endpoint = endpoint
        self.bucket = f"test-{uuid.uuid4().hex[:12]}"
        self.connection = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint}/{ACCOUNT};"
        )
        self.environment = {"AZURE_STORAGE_CONNECTION_STRING": self.connection}
        self._container: Any = ContainerClient.from_connection_string(self.connection, self.bucket)
        self._container.create_container()

    def url(self, name: str) -> str:
        return f"az://{self.bucket}/{name}"

    def content(self, name: str) -> bytes:
        return bytes(self._container.download_blob(name).readall())

    def names(self) -> list[str]:
        return [found.name for found in self._container.list_blobs()]

    def close(self) -> None:
        self._container.close()


@contextlib.contextmanager
def azure_container(endpoint: str) -> Iterator[Azure]:
    """A fresh container that az:// and abfs:// URLs of this process reach."""
    container = Azure(endpoint)
    schemes = ("az", "abfs")
    for scheme in schemes:
        fsspec.config.conf[scheme] = {"connection_string": container.connection}
    try:
        yield container
    finally:
        container.close()
        for scheme in schemes:
            fsspec.config.conf.pop(scheme)
        theirs = fsspec.get_filesystem_class("az")
        for kind in (theirs, *theirs.__subclasses__()):
            kind.clear_instance_cache()
