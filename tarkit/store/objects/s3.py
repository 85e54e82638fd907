"""One object of an S3 bucket, written through s3fs; and uploads that nobody finished."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tarkit.errors import MissingInputError, StreamError
from tarkit.store.objects.filesystem import ask, filesystem
from tarkit.store.objects.parts import parts_in_flight
from tarkit.store.objects.sink import TOKEN, Found
from tarkit.store.sources import display_name

_DAY = 86400.0


class S3Store:
    """An object that is put at once or uploaded in parts.

    Protocol: https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html. Bodies carry the
    checksums that botocore computes (CRC32 by default), and the store verifies them. Only the
    filesystem knows the endpoint and the credentials.
    """

    def __init__(self, fs: Any, path: str, token: str, if_absent: bool) -> None:
        self.token = token
        self._fs = fs
        self._path = path
        bucket, key, _ = fs.split_path(path)
        self._where = {"Bucket": bucket, "Key": key}
        self._condition = {"IfNoneMatch": "*"} if if_absent else {}
        # Ours beside the user's own, which it would replace.
        self._metadata = {**fs.s3_additional_kwargs.get("Metadata", {}), TOKEN: token}
        self._upload: str | None = None
        self._parts: dict[int, dict[str, Any]] = {}

    async def put(self, data: bytes) -> None:
        await self._fs._call_s3("put_object", Body=data, Metadata=self._metadata, **self._where, **self._condition)

    async def begin(self) -> None:
        answer = await self._fs._call_s3("create_multipart_upload", Metadata=self._metadata, **self._where)
        self._upload = answer["UploadId"]

    async def send(self, number: int, data: bytes, final: bool) -> None:
        answer = await self._fs._call_s3(
            "upload_part", UploadId=self._upload, PartNumber=number, Body=data, **self._where
        )
        checksums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
        checksums.pop("ChecksumType", None)
        self._parts[number] = {"PartNumber": number, "ETag": answer["ETag"], **checksums}

    async def finish(self) -> None:
        parts = [self._parts[number] for number in sorted(self._parts)]
        await self._fs._call_s3(
            "complete_multipart_upload",
            UploadId=self._upload,
            MultipartUpload={"Parts": parts},
            **self._where,
            **self._condition,
        )

    async def abort(self) -> None:
        if self._upload is None:
            return
        upload = {"UploadId": self._upload, **self._where}
        with suppress(FileNotFoundError):
            for _ in range(3):
                await self._fs._call_s3("abort_multipart_upload", **upload)
                # A part that was on its way may have come after that; then it is kept, and paid for.
                left = await self._fs._call_s3("list_parts", **upload)
                if not left.get("Parts"):
                    return

    async def look(self) -> Found | None:
        try:
            head = await self._fs._call_s3("head_object", **self._where)
        except FileNotFoundError:
            return None
        version = f"{head.get('ETag')} {head.get('LastModified')}"
        return Found(int(head["ContentLength"]), head.get("Metadata", {}).get(TOKEN), version)

    async def remove(self) -> None:
        await self._fs._call_s3("delete_object", **self._where)

    def in_flight(self, size: int) -> int:
        return parts_in_flight(size)

    def refresh(self) -> None:
        self._fs.invalidate_cache(self._path)


@dataclass(frozen=True)
class UnfinishedUpload:
    """An upload in parts that was neither finished nor aborted. started: seconds since 1970."""

    url: str
    upload_id: str
    started: float


def stale_uploads(
    url: str, *, older_than: float = _DAY, clock: Callable[[], float] = time.time
) -> list[UnfinishedUpload]:
    """Uploads under a URL that a killed program left behind; their parts are paid for until they are aborted.

    Nobody can tell a dead writer from a slow one, so give ``older_than`` (seconds) more than any
    upload takes. Other stores than S3 keep nothing: GCS forgets unfinished uploads after a week and
    lists them to nobody; elsewhere the bytes wait on the writer's own disk.

    Args:
        url: all names that begin with it, for example ``s3://bucket/folder/``.

    Raises:
        StreamError: the bucket does not exist, or may not be listed.
    """
    scheme = url.partition("://")[0]
    if scheme.lower() not in ("s3", "s3a"):
        return []
    fs, bucket, prefix, name = _place(url)
    found: list[UnfinishedUpload] = []
    where = {"Bucket": bucket, "Prefix": prefix}
    while True:
        try:
            page = ask(partial(fs.call_s3, "list_multipart_uploads", **where), url=url, name=name)
        except MissingInputError:
            raise StreamError("the bucket does not exist", url=name) from None
        for upload in page.get("Uploads", []):
            started = upload["Initiated"].timestamp()
            if clock() - started > older_than:
                found.append(UnfinishedUpload(f"{scheme}://{bucket}/{upload['Key']}", upload["UploadId"], started))
        if not page.get("IsTruncated"):
            return found
        where = {**where, "KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


def abort_upload(upload: UnfinishedUpload) -> None:
    """Remove an unfinished upload and its parts. One that is gone already is fine.

    Raises:
        StreamError: that is not permitted. TemporaryStreamError: the store can not be reached.
    """
    fs, bucket, key, name = _place(upload.url)
    where = {"Bucket": bucket, "Key": key, "UploadId": upload.upload_id}
    with suppress(MissingInputError):
        ask(partial(fs.call_s3, "abort_multipart_upload", **where), url=upload.url, name=name)


def _place(url: str) -> tuple[Any, str, str, str]:
    name = display_name(url)
    fs, path = filesystem(url, name)
    bucket, key, _ = fs.split_path(path)
    # A slash at the end is lost by then, and tells a folder from all names that begin alike.
    return fs, bucket, f"{key}/" if key and url.endswith("/") else key, name
