"""One object of a Google Cloud Storage bucket, written through gcsfs."""

from __future__ import annotations

import base64
import json
import urllib.parse
from typing import Any

from tarkit.errors import TemporaryStreamError
from tarkit.objectsink import TOKEN, Found


class GcsStore:
    """An object that is put at once or uploaded in a resumable session.

    Protocol: https://cloud.google.com/storage/docs/performing-resumable-uploads. A session takes its bytes
    in order, so one part is in flight while the next is filled; after an error the store is asked
    how far it got. Part sizes are multiples of 256 KiB, as the protocol wants. The CRC32C that the
    store computed is verified at the end.
    """

    def __init__(self, fs: Any, path: str, token: str, if_absent: bool) -> None:
        import google_crc32c

        self.token = token
        self._fs = fs
        self._path = path
        self._bucket, self._key, _ = fs.split_path(path)
        self._mode = "create" if if_absent else "overwrite"
        self._session = ""
        self._offset = 0
        self._last: bytes = b""
        self._checksum: Any = google_crc32c.Checksum()

    async def put(self, data: bytes) -> None:
        from gcsfs.core import simple_upload

        metadata = {TOKEN: self.token}
        content = bytes(data)
        answer = await simple_upload(self._fs, self._bucket, self._key, content, metadata, mode=self._mode)
        self._checksum.update(content)
        self._verify(answer)

    async def begin(self) -> None:
        from gcsfs.core import initiate_upload

        metadata = {TOKEN: self.token}
        self._session = await initiate_upload(self._fs, self._bucket, self._key, metadata=metadata, mode=self._mode)

    async def send(self, number: int, data: bytes, final: bool) -> None:
        if final:
            # Sending it would publish the object.
            self._last = data
            return
        await self._send(data, "*")
        self._checksum.update(bytes(data))
        self._offset += len(data)

    async def finish(self) -> None:
        answer = await self._send(self._last, str(self._offset + len(self._last)))
        self._checksum.update(bytes(self._last))
        self._verify(answer)

    async def _send(self, data: bytes, total: str) -> dict[str, Any]:
        """Send what the store does not have yet of a part. An earlier try may have brought some of it."""
        kept = 0
        if total != "*" or self._offset:
            pass
        while True:
            first, last = self._offset + kept, self._offset + len(data) - 1
            headers, content = await self._fs._call(
                "PUT",
                self._session,
                headers={"Content-Range": f"bytes {first}-{last}/{total}", "Content-Length": str(last - first + 1)},
                data=memoryview(data)[kept:],
            )
            if "Range" not in headers:
                return dict(json.loads(content)) if content else {}
            now = int(headers["Range"].rpartition("-")[2]) + 1 - self._offset
            if now >= len(data) and total == "*":
                return {}
            if now <= kept:
                raise ConnectionError(f"the store kept none of the bytes from {first}")
            kept = now

    def _verify(self, answer: dict[str, Any]) -> None:
        ours = base64.b64encode(self._checksum.digest()).decode("ascii")
        theirs = answer.get("crc32c")
        if theirs is not None and theirs != ours:
            raise TemporaryStreamError(f"the CRC32C is {ours}, but the store has {theirs}", url=f"gs://{self._path}")

    async def abort(self) -> bool:
        if not self._session:
            return True
        # The condition must not be asked again, or the session stays.
        await self._fs._call("DELETE", self._session.replace("&ifGenerationMatch=0", ""))
        return False

    async def look(self) -> Found | None:
        path = f"{self._fs._location}/storage/v1/b/{self._bucket}/o/{urllib.parse.quote(self._key, safe='')}"
        try:
            answer = await self._fs._call("GET", path, json_out=True)
        except FileNotFoundError:
            return None
        return Found(int(answer["size"]), answer.get("metadata", {}).get(TOKEN))

    def in_flight(self, size: int) -> int:
        return 1

    def refresh(self) -> None:
        self._fs.invalidate_cache(self._path)
