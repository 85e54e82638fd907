"""Read and write objects of S3 through s3fs, and abort uploads that were never finished."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from tarkit.errors import MissingInputError, StreamError, printable
from tarkit.names.url import display_name
from tarkit.store.checksums import Checksum, from_headers
from tarkit.store.objects.filesystem import ask, filesystem
from tarkit.store.objects.redirects import DirectSession, refuse_redirect
from tarkit.store.objects.sink import TOKEN, Found, ObjectStore
from tarkit.store.objects.source import ObjectSource, message_of
from tarkit.store.retry import Dropped

EXTRA = "s3"
CREDENTIALS = (
    "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; FSSPEC_S3_ANON=1 reads a public bucket without"
)
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_IN_LISTINGS = ("IsTruncated", "Name", "Bucket", "Buckets")


def without_retries(kind: Any) -> Any:
    """Return a class of s3fs without retries, and without redirects except to another region.

    Retries are those of s3fs and of botocore.
    """
    if not hasattr(kind, S3Store.library_has):
        return kind
    import fsspec

    call = _with_whole_listings(kind._call_s3)
    calls = {"_call_s3": call, "call_s3": fsspec.asyn.sync_wrapper(call)}
    return type(kind.__name__, (kind,), {"retries": 1, "_prepare_config_kwargs": _one_attempt, **calls})


def _one_attempt(fs: Any) -> dict[str, Any]:
    """Return settings of botocore: those of the user, except for the retries."""
    from aiobotocore.session import AioSession

    session = fs.session or AioSession(**fs.kwargs)
    bundle = fs.client_kwargs.get("verify") or session.get_config_variable("ca_bundle")
    if isinstance(bundle, str) and not os.path.exists(bundle):
        raise StreamError(
            f"the file of certificates {printable(bundle)} does not exist; correct AWS_CA_BUNDLE, ca_bundle or verify"
        )
    once = {"retries": {"total_max_attempts": 1, "mode": "standard"}}
    ours = {"connect_timeout": _CONNECT_SECONDS, "read_timeout": _READ_SECONDS, "http_session_cls": _direct_sessions()}
    return {**ours, **fs.config_kwargs, **once}


def without_redirects(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings that keep s3fs from following redirects, for a class that is not replaced."""
    try:
        return {"config_kwargs": {"http_session_cls": _direct_sessions(), **settings.get("config_kwargs", {})}}
    except ImportError:
        # fsspec reports the missing library.
        return {}


@functools.cache
def _direct_sessions() -> Any:
    from aiobotocore.httpsession import AIOHTTPSession

    class DirectSessions(AIOHTTPSession):  # type: ignore[misc]
        """Sessions of aiobotocore that do not follow redirects."""

        async def _get_session(self, proxy_url: str | None) -> DirectSession:
            return DirectSession(await super()._get_session(proxy_url))

        async def send(self, request: Any) -> Any:
            answer = await super().send(request)
            # For another region, botocore makes a new request, to an endpoint that it knows.
            region = answer.headers.get("x-amz-bucket-region")
            if region is None or f"/{region}/s3/" in str(request.headers.get("Authorization")):
                try:
                    refuse_redirect(answer.status_code, answer.headers.get("location"))
                except Dropped:
                    answer.raw.close()
                    raise
            return answer

    return DirectSessions


def _with_whole_listings(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return s3fs's ``_call_s3`` with an error for an answer that is not a listing.

    botocore finds no entries in a page of HTML, or in an empty body, and that would be an empty
    folder.
    """

    async def called(fs: Any, method: str, *settings: Any, **more: Any) -> Any:
        answer = await call(fs, method, *settings, **more)
        if method.startswith("list_"):
            if answer.keys().isdisjoint(_IN_LISTINGS):
                raise Dropped("the store's answer to a listing is not a listing")
            if answer.get("IsTruncated") and not any(key.startswith("Next") for key in answer):
                raise Dropped("the store's listing is incomplete, without a mark for its next page")
        return answer

    return called


class S3Store(ObjectStore):
    """An object of S3 that is uploaded at once or in parts.

    Protocol: https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html. Bodies have
    the checksums that botocore computes (CRC32 by default), and the store verifies them. Only the
    file system knows the endpoint and the credentials.
    """

    library_has = "_call_s3"

    def __init__(self, fs: Any, path: str, token: str, if_absent: bool) -> None:
        super().__init__(fs, path, token, if_absent)
        self._condition = {"IfNoneMatch": "*"} if if_absent else {}
        # In addition to the user's own metadata, which it would replace.
        self._metadata = {**fs.s3_additional_kwargs.get("Metadata", {}), TOKEN: token}
        self._upload: str | None = None
        self._parts: dict[int, dict[str, Any]] = {}

    async def _call(self, method: str, **settings: Any) -> Any:
        return await self.fs._call_s3(method, Bucket=self.bucket, Key=self.key, **settings)

    async def put(self, data: bytes) -> None:
        await self._call("put_object", Body=data, Metadata=self._metadata, **self._condition)

    async def begin(self) -> None:
        self._upload = (await self._call("create_multipart_upload", Metadata=self._metadata))["UploadId"]

    async def send(self, number: int, data: bytes, final: bool) -> None:
        answer = await self._call("upload_part", UploadId=self._upload, PartNumber=number, Body=data)
        checksums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
        checksums.pop("ChecksumType", None)
        self._parts[number] = {"PartNumber": number, "ETag": answer["ETag"], **checksums}

    async def finish(self) -> None:
        parts = {"Parts": [self._parts[number] for number in sorted(self._parts)]}
        await self._call("complete_multipart_upload", UploadId=self._upload, MultipartUpload=parts, **self._condition)

    async def abort(self) -> None:
        if self._upload is None:
            return
        with suppress(FileNotFoundError):
            for _ in range(3):
                await self._call("abort_multipart_upload", UploadId=self._upload)
                # A part that was in flight may have arrived after that; then it is kept, and costs
                # money.
                left = await self._call("list_parts", UploadId=self._upload)
                if not left.get("Parts"):
                    return

    async def look(self) -> Found | None:
        try:
            head = await self._call("head_object")
        except FileNotFoundError:
            return None
        version = f"{head.get('ETag')} {head.get('LastModified')}"
        return Found(int(head["ContentLength"]), head.get("Metadata", {}).get(TOKEN), version)

    async def remove(self) -> None:
        await self._call("delete_object")


STORE = S3Store


class S3Source(ObjectSource):
    """An object of S3 to read as it is stored, even in a Content-Encoding."""

    library_has = "_call_s3"

    async def _call(self, method: str, **settings: Any) -> Any:
        version = {"VersionId": self.version} if self.version else {}
        return await self.fs._call_s3(method, Bucket=self.bucket, Key=self.key, **version, **settings)

    async def describe(self) -> dict[str, Any]:
        # The info() of s3fs has neither encoding nor checksums.
        try:
            head = await self._call("head_object", ChecksumMode="ENABLED") if self.key else None
        except FileNotFoundError:
            head = None
        if head is None:
            # A folder, or nothing.
            return await super().describe()
        self.size, self.mark, self.encoding = head["ContentLength"], ("ETag", head["ETag"]), head.get("ContentEncoding")
        found = {name: head.get(name) for name in ("ETag", "LastModified", "VersionId")}
        return {"type": "file", "size": self.size, **found, "headers": head["ResponseMetadata"]["HTTPHeaders"]}

    def checksum(self, info: Mapping[str, Any]) -> Checksum | None:
        # The ETags of directory buckets are not MD5s.
        return from_headers(message_of(info["headers"]), "s3express" if self.bucket.endswith("--x-s3") else "")

    async def fetch(self, start: int, stop: int) -> bytes:
        answer = await self._call("get_object", Range=f"bytes={start}-{stop - 1}", IfMatch=self.mark[1])
        try:
            about = answer["ResponseMetadata"]
            self.check(about["HTTPStatusCode"], about["HTTPHeaders"], start, stop)
            return bytes(await answer["Body"].read())
        finally:
            answer["Body"].close()


SOURCE = S3Source


def remove_unfinished(url: str, older_than: float, now: float) -> Iterator[str]:
    """Abort the uploads under a URL that began more than ``older_than`` seconds ago.

    Killed programs leave them behind, and their parts cost money. A dead writer cannot be
    distinguished from a slow one, so ``older_than`` must be longer than any upload takes.

    Args:
        url: beginning of the names, for example ``s3://bucket/folder/``.
        older_than: age in seconds.
        now: time in seconds since 1970.

    Yields:
        The URL of each aborted upload.

    Raises:
        StreamError: the bucket does not exist, may not be listed, or aborting is not permitted.
    """
    name = display_name(url)
    scheme = url.partition("://")[0]
    fs, path = filesystem(url, name)
    bucket, key, _ = fs.split_path(path)
    # split_path drops the slash at the end, which distinguishes a folder from all names with this
    # beginning.
    where = {"Bucket": bucket, "Prefix": f"{key}/" if key and url.endswith("/") else key}
    while True:
        try:
            page = ask(partial(fs.call_s3, "list_multipart_uploads", **where), url=url, name=name)
        except MissingInputError:
            raise StreamError("the bucket does not exist", url=name) from None
        for upload in page.get("Uploads", []):
            if now - upload["Initiated"].timestamp() > older_than:
                which = {"Bucket": bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
                # An upload that does not exist any more is fine.
                with suppress(MissingInputError):
                    ask(partial(fs.call_s3, "abort_multipart_upload", **which), url=url, name=name)
                yield f"{scheme}://{bucket}/{upload['Key']}"
        if not page.get("IsTruncated"):
            return
        where = {**where, "KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
