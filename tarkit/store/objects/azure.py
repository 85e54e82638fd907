"""Read and write blobs of Azure storage through adlfs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tarkit.store.checksums import Checksum
from tarkit.store.objects.redirects import refuse_redirect
from tarkit.store.objects.sink import TOKEN, Found, ObjectStore
from tarkit.store.objects.source import ObjectSource
from tarkit.store.retry import Dropped

EXTRA = "azure"
CREDENTIALS = (
    "; set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY; with "
    "AZURE_STORAGE_ANON=true the account name alone reads a public container"
)
# Names of metadata must be identifiers here.
_TOKEN = TOKEN.replace("-", "_")


def without_retries(kind: Any) -> Any:
    """Return a class of adlfs without retries, redirects and cache of listings.

    Retries and redirects are those of Azure's library; the cache becomes stale.
    """
    if not hasattr(kind, "do_connect"):
        return kind

    def do_connect(fs: Any) -> None:
        kind.do_connect(fs)
        fs.service_client._config.retry_policy.total_retries = 0
        for policy in fs.service_client._pipeline._impl_policies:
            if hasattr(policy, "get_redirect_location"):
                policy.get_redirect_location = _no_location

    def invalidate_cache(fs: Any, path: str | None = None) -> None:
        fs.dircache.clear()

    return type(kind.__name__, (kind,), {"do_connect": do_connect, "invalidate_cache": invalidate_cache})


def _no_location(response: Any) -> bool:
    answer = response.http_response
    refuse_redirect(answer.status_code, answer.headers.get("Location"))
    return False


class AzureStore(ObjectStore):
    """A block blob that is uploaded at once or in blocks.

    Protocol: https://learn.microsoft.com/rest/api/storageservices/put-block-list. The store
    verifies the MD5 of each body. Blocks that were never committed are not part of a blob, and the
    store deletes them after a week. Of two writers to one name, the first that commits discards the
    blocks of the other writer, for which that is an error.
    """

    library_has = "service_client"

    def __init__(self, fs: Any, path: str, token: str, if_absent: bool) -> None:
        super().__init__(fs, path, token, if_absent)
        self._blocks: dict[int, str] = {}

    async def _call(self, call: Callable[[Any], Any]) -> Any:
        async with self.fs.service_client.get_blob_client(self.bucket, self.key) as blob:
            try:
                return await call(blob)
            except Exception as error:
                # The same classes as in the other libraries; any other error has its status.
                status = getattr(error, "status_code", None)
                if status in (403, 404):
                    raise (FileNotFoundError if status == 404 else PermissionError)(str(error)) from None
                raise

    async def put(self, data: bytes) -> None:
        options = {"metadata": {_TOKEN: self.token}, "overwrite": not self.if_absent, "validate_content": True}
        await self._call(lambda blob: blob.upload_blob(data, length=len(data), **options))

    async def send(self, number: int, data: bytes, final: bool) -> None:
        # The names of all blocks of a blob must have the same length.
        block = f"{self.token[:26]}{number:06d}"
        await self._call(lambda blob: blob.stage_block(block, data, length=len(data), validate_content=True))
        self._blocks[number] = block

    async def finish(self) -> None:
        from azure.core import MatchConditions
        from azure.storage.blob import BlobBlock

        blocks = [BlobBlock(self._blocks[number]) for number in sorted(self._blocks)]
        condition = {"match_condition": MatchConditions.IfMissing} if self.if_absent else {}
        await self._call(lambda blob: blob.commit_block_list(blocks, metadata={_TOKEN: self.token}, **condition))

    async def look(self) -> Found | None:
        try:
            found = await self._call(lambda blob: blob.get_blob_properties())
        except FileNotFoundError:
            return None
        return Found(found.size, (found.metadata or {}).get(_TOKEN), found.etag)

    async def remove(self) -> None:
        await self._call(lambda blob: blob.delete_blob())


STORE = AzureStore


class AzureSource(ObjectSource):
    """A blob to read as it is stored, even in a Content-Encoding."""

    library_has = "service_client"

    async def describe(self) -> dict[str, Any]:
        info = await super().describe()
        settings = info.get("content_settings") or {}
        self.size, self.encoding = info.get("size") or 0, settings.get("content_encoding")
        self.mark = ("ETag", str(info.get("etag")))
        return {**info, "content_md5": settings.get("content_md5")}

    def checksum(self, info: Mapping[str, Any]) -> Checksum | None:
        md5 = bytes(info["content_md5"] or b"")
        return Checksum("md5", md5) if len(md5) == 16 else None

    async def fetch(self, start: int, stop: int) -> bytes:
        from azure.core import MatchConditions
        from azure.core.exceptions import AzureError

        def check(answer: Any) -> None:
            first, _, last = answer.http_request.headers["x-ms-range"].removeprefix("bytes=").partition("-")
            # The library raises errors for other answers.
            if answer.http_response.status_code < 300:
                self.check(answer.http_response.status_code, answer.http_response.headers, int(first), int(last) + 1)

        # The library verifies an MD5 of each piece of 4 MiB, but decompresses the bytes first.
        options = {"validate_content": not self.encoding, "max_concurrency": self.fs.max_concurrency or 1}
        condition = {"etag": self.mark[1], "match_condition": MatchConditions.IfNotModified}
        more = {"version_id": self.version, "decompress": False, "raw_response_hook": check, **options, **condition}
        async with self.fs.service_client.get_blob_client(self.bucket, self.key) as blob:
            try:
                stream = await blob.download_blob(start, stop - start, **more)
                return bytes(await stream.readall())
            except AzureError as error:
                if type(error) is AzureError:
                    # Answers and connections have error classes of their own; this class means a
                    # wrong MD5.
                    raise Dropped(str(error)) from None
                raise


SOURCE = AzureSource
