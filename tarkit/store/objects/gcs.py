"""Read and write objects of Google Cloud Storage through gcsfs."""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tarkit.errors import StreamError, TemporaryStreamError
from tarkit.store.checksums import Checksum, from_info
from tarkit.store.forks import is_inherited
from tarkit.store.objects.redirects import DirectSession, refuse_redirect
from tarkit.store.objects.sink import TOKEN, UPLOAD_LOST, Found, ObjectStore
from tarkit.store.objects.source import ObjectSource

EXTRA = "gcs"
CREDENTIALS = (
    "; set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login; FSSPEC_GS_TOKEN=anon reads a "
    "public bucket without"
)
_CONNECT_SECONDS = 10
_READ_SECONDS = 60


def without_retries(kind: Any) -> Any:
    """Return a class of gcsfs without its own retries, redirects and decompression.

    It also does not use gRPC in a process that was forked from one that used it.
    """
    if not hasattr(kind, "_request"):
        return kind

    async def request(fs: Any, *arguments: Any, **more: Any) -> Any:
        status, headers, info, content = await kind._request.__wrapped__(fs, *arguments, **more)
        refuse_redirect(status, headers.get("Location"))
        return status, headers, info, content

    async def set_session(fs: Any) -> Any:
        import aiohttp

        # By default aiohttp requests compressed answers, decompresses each, and ends each after 300
        # seconds, independent of its size.
        headers = {**fs.session_kwargs.get("headers", {}), "Accept-Encoding": "identity"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS)
        ours = {"auto_decompress": False, "headers": headers}
        fs.session_kwargs = {"timeout": timeout, **fs.session_kwargs, **ours}
        return await kind._set_session(fs)

    session = property(lambda fs: DirectSession(kind.session.fget(fs)))
    changed: dict[str, Any] = {"_request": request, "_set_session": set_session, "session": session}
    if hasattr(kind, "_get_bucket_type"):
        changed["_get_bucket_type"] = _bucket_type_after_forks(kind)
        logging.getLogger("gcsfs").addFilter(_is_not_fallback)
    return type(kind.__name__, (kind,), changed)


def _is_not_fallback(record: logging.LogRecord) -> bool:
    """Return False for gcsfs's log record of a fallback to plain HTTP.

    It is logged at each request of a user without credentials. An error of the request itself is
    raised.
    """
    return "alling back to" not in record.getMessage()


def _bucket_type_after_forks(kind: Any) -> Any:
    """Return a replacement of gcsfs's method that looks up the type of a bucket.

    The method uses gRPC, and would wait forever in a process that was forked from one that used it.
    There the replacement returns gcsfs's value for an unknown type: the bucket is then read by
    plain HTTP.
    """

    async def found(fs: Any, bucket: str) -> Any:
        if is_inherited("grpc.aio"):
            from gcsfs.extended_gcsfs import BucketType

            return BucketType.UNKNOWN
        return await kind._get_bucket_type(fs, bucket)

    return found


class _Payload(io.BytesIO):
    """Bytes to send, which stay open for a retry.

    aiohttp sends a file in pieces, so that the event loop can run between them, and then closes it.
    """

    def close(self) -> None:
        """Do nothing: a retry reads it again."""


class GcsStore(ObjectStore):
    """An object of GCS that is uploaded at once or in a resumable session.

    Protocol: https://cloud.google.com/storage/docs/performing-resumable-uploads. A session accepts
    its bytes in order, so one part is in flight while the next is filled; after an error the store
    is asked how much it has. Part sizes are multiples of 256 KiB, as the protocol requires. The
    CRC32C that the store computed is verified at the end.
    """

    library_has = "_call"
    in_order = True

    def __init__(self, fs: Any, path: str, token: str, if_absent: bool) -> None:
        super().__init__(fs, path, token, if_absent)
        import google_crc32c

        self._metadata = {TOKEN: token}
        self._mode = "create" if if_absent else "overwrite"
        self._session = ""
        self._offset = 0
        self._last: bytes = b""
        self._unsure = False
        library: Any = google_crc32c
        self._crc32c = library.Checksum
        self._checksum: Any = self._crc32c()

    async def put(self, data: bytes) -> None:
        from gcsfs.core import simple_upload

        self._checksum = self._crc32c(data)
        await simple_upload(self.fs, self.bucket, self.key, data, self._metadata, mode=self._mode)

    async def begin(self) -> None:
        from gcsfs.core import initiate_upload

        session = await initiate_upload(self.fs, self.bucket, self.key, metadata=self._metadata, mode=self._mode)
        if not isinstance(session, str):
            # Zonal buckets are appended to by gRPC, and appended data is visible at once.
            raise StreamError("zonal buckets cannot be written all or nothing", url=f"gs://{self.path}")
        self._session = session

    async def send(self, number: int, data: bytes, final: bool) -> None:
        if final:
            # Sending the last part would publish the object.
            self._last = data
        else:
            await self._send(data, "*")
            self._offset += len(data)
        self._checksum.update(data)

    async def finish(self) -> None:
        await self._send(self._last, str(self._offset + len(self._last)))

    async def _send(self, data: bytes, total: str) -> None:
        """Send the bytes of a part that the store does not have yet.

        An earlier attempt may have sent some of them.
        """
        kept = await self._ask(f"bytes */{total}", b"", len(data)) if self._unsure else 0
        self._unsure = True
        while kept < len(data):
            first, last = self._offset + kept, self._offset + len(data) - 1
            now = await self._ask(f"bytes {first}-{last}/{total}", data[kept:] if kept else data, len(data))
            if now <= kept:
                raise ConnectionError(f"the store kept none of the bytes from {first}")
            kept = now
        self._unsure = False

    async def _ask(self, content_range: str, data: bytes, length: int) -> int:
        """Send bytes of the part; return how many bytes of it the store has then."""
        fields = {"Content-Range": content_range, "Content-Length": str(len(data))}
        try:
            headers, content = await self.fs._call("PUT", self._session, headers=fields, data=_Payload(data))
        except FileNotFoundError:
            raise TemporaryStreamError(UPLOAD_LOST, url=f"gs://{self.path}") from None
        if "Range" in headers:
            return int(headers["Range"].rpartition("-")[2]) + 1 - self._offset
        # An unfinished session without data reports nothing; a finished one describes its object.
        return length if content else -self._offset

    async def abort(self) -> None:
        # An unfinished session publishes nothing, and is deleted after a week. The condition must
        # not be sent again, or the session stays.
        if self._session:
            with suppress(FileNotFoundError):
                await self.fs._call("DELETE", self._session.replace("&ifGenerationMatch=0", ""))

    async def look(self) -> Found | None:
        try:
            answer = await self.fs._call("GET", "b/{}/o/{}", self.bucket, self.key, json_out=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            if str(error).startswith("Forbidden"):
                raise PermissionError(str(error)) from None
            raise
        token = answer.get("metadata", {}).get(TOKEN)
        ours = base64.b64encode(self._checksum.digest()).decode("ascii")
        damaged = token == self.token and answer.get("crc32c", ours) != ours
        return Found(int(answer["size"]), token, str(answer.get("generation")), damaged)

    async def remove(self) -> None:
        await self.fs._rm_file(self.path)


STORE = GcsStore


class GcsSource(ObjectSource):
    """An object of GCS to read.

    An object that is stored compressed is requested in that form: otherwise the store decompresses
    it, and does not support ranges (https://cloud.google.com/storage/docs/transcoding).
    """

    library_has = "_call"
    # The generation is in the request; emulators do not repeat it in the answer.
    marked = False

    async def describe(self) -> dict[str, Any]:
        info = await super().describe()
        self.size, self.encoding = info.get("size") or 0, info.get("contentEncoding")
        self.mark = ("x-goog-generation", str(info.get("generation")))
        return info

    def checksum(self, info: Mapping[str, Any]) -> Checksum | None:
        # The checksum is that of the stored bytes, which are read here.
        return from_info({**info, "contentEncoding": None})

    async def fetch(self, start: int, stop: int) -> bytes:
        generation = self.mark[1]
        is_zonal = getattr(self.fs, "_is_zonal_bucket", None)
        if is_zonal is not None and await is_zonal(self.bucket):
            # Zonal buckets are read by gRPC, whose messages have checksums.
            return bytes(await self.fs._cat_file(self.path, start=start, end=stop, generation=generation))
        headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": self.encoding or "identity"}
        url = self.fs.url(self.path, generation=generation)
        status, answer, _, data = await self.fs._request("GET", url, headers=headers)
        self.check(status, answer, start, stop)
        return bytes(data)


SOURCE = GcsSource
