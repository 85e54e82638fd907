"""Objects of S3, written through s3fs; and uploads that were never finished."""

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
    """s3fs without retries of its own and of botocore, and without redirects but those to another
    region.
    """
    if not hasattr(kind, S3Store.library_has):
        return kind
    import fsspec

    call = _with_whole_listings(kind._call_s3)
    calls = {"_call_s3": call, "call_s3": fsspec.asyn.sync_wrapper(call)}
    return type(kind.__name__, (kind,), {"retries": 1, "_prepare_config_kwargs": _one_attempt, **calls})


def _one_attempt(fs: Any) -> dict[str, Any]:
    """Settings of botocore; what the user asked for but the retries."""
    from aiobotocore.session import AioSession

    session = fs.session or AioSession(**fs.kwargs)
    bundle = fs.client_kwargs.get("verify") or session.get_config_variable("ca_bundle")
    if isinstance(bundle, str) and not os.path.exists(bundle):
        raise StreamError(
            f"there is no file of certificates {printable(bundle)}, which AWS_CA_BUNDLE, ca_bundle or verify names"
        )
    once = {"retries": {"total_max_attempts": 1, "mode": "standard"}}
    ours = {
        "connect_timeout": _CONNECT_SECONDS,
        "read_timeout": _READ_SECONDS,
        "http_session_cls": _direct_sessions(),
    }
    return {**ours, **fs.config_kwargs, **once}


def without_redirects(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of s3fs that keep it from following redirects, where tarkit cannot replace the
    class.

    Args:
        settings: what the user asked for.
    """
    try:
        return {"config_kwargs": {"http_session_cls": _direct_sessions(), **settings.get("config_kwargs", {})}}
    except ImportError:
        # fsspec says what is missing.
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
            # To another region, botocore makes a new request, for an endpoint that it knows.
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
    """s3fs's ``_call_s3``, for which an answer that is not a listing is an error. botocore finds
    nothing in a page of HTML, or in no body at all, and that would be an empty folder.
    """

    async def called(fs: Any, method: str, *settings: Any, **more: Any) -> Any:
        answer = await call(fs, method, *settings, **more)
        if method.startswith("list_"):
            if answer.keys().isdisjoint(_IN_LISTINGS):
                raise Dropped("the store's answer to a listing is not a listing")
            if answer.get("IsTruncated") and not any(key.startswith("Next") for key in answer):
                raise Dropped("the store's listing is not whole, and does not say how it goes on")
        return answer

    return called


class S3Store(ObjectStore):
    """An object that is put at once or uploaded in parts.

    Protocol: https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html. Bodies carry
    the checksums that botocore computes (CRC32 by default), and the store verifies them. Only the
    filesystem knows the endpoint and the credentials.
    """

    library_has = "_call_s3"

    def __init__(self, fs: Any, path: str, token: str, if_absent: bool) -> None:
        super().__init__(fs, path, token, if_absent)
        self._condition = {"IfNoneMatch": "*"} if if_absent else {}
        # Ours beside the user's own, which it would replace.
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
                # A part that was on its way may have come after that; then it is kept, and paid
                # for.
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
    """An object that is read, as it is stored, even if that is in a Content-Encoding."""

    library_has = "_call_s3"

    async def _call(self, method: str, **settings: Any) -> Any:
        version = {"VersionId": self.version} if self.version else {}
        return await self.fs._call_s3(method, Bucket=self.bucket, Key=self.key, **version, **settings)

    async def describe(self) -> dict[str, Any]:
        # The info() of s3fs gives neither encoding nor checksums.
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
    """Abort the uploads under a URL that were begun more than ``older_than`` seconds before
    ``now``; their URLs.

    Killed programs leave them behind, and their parts are paid for. A dead writer looks like a slow
    one, so ``older_than`` is to be more than any upload takes.

    Args:
        url: all names that begin with it, for example ``s3://bucket/folder/``.

    Raises:
        StreamError: the bucket does not exist, may not be listed, or that is not permitted.
    """
    name = display_name(url)
    scheme = url.partition("://")[0]
    fs, path = filesystem(url, name)
    bucket, key, _ = fs.split_path(path)
    # A slash at the end is lost by then, and tells a folder from all names that begin alike.
    where = {"Bucket": bucket, "Prefix": f"{key}/" if key and url.endswith("/") else key}
    while True:
        try:
            page = ask(partial(fs.call_s3, "list_multipart_uploads", **where), url=url, name=name)
        except MissingInputError:
            raise StreamError("the bucket does not exist", url=name) from None
        for upload in page.get("Uploads", []):
            if now - upload["Initiated"].timestamp() > older_than:
                which = {"Bucket": bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
                # One that is gone already is fine.
                with suppress(MissingInputError):
                    ask(partial(fs.call_s3, "abort_multipart_upload", **which), url=url, name=name)
                yield f"{scheme}://{bucket}/{upload['Key']}"
        if not page.get("IsTruncated"):
            return
        where = {**where, "KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
