"""The S3 server as tests use it: through fsspec's settings, and with a plain
client beside tarkit.
"""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Iterator
from typing import Any

import fsspec
import object_servers


@functools.cache
def share_descriptions() -> None:
    """Let all clients of this process have one description of S3: reading it is nearly all that
    making one takes.
    """
    import botocore.session

    botocore.session.create_loader = functools.cache(botocore.session.create_loader)


@functools.cache
def plain_client(endpoint: str) -> Any:
    """Kept, since each has connections of its own."""
    import botocore.session

    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=object_servers.ACCESS_KEY,
        aws_secret_access_key=object_servers.SECRET_KEY,
    )


class S3:
    """A folder of its own in a bucket. url(name): where.

    Attributes:
        environment: for programs that are started.
    """

    bucket = "tarkit-tests"

    def __init__(self, endpoint: str, folder: str, retries: int) -> None:
        self.endpoint = endpoint
        self.folder = folder
        self.settings: dict[str, Any] = {
            "endpoint_url": endpoint,
            "key": object_servers.ACCESS_KEY,
            "secret": object_servers.SECRET_KEY,
            # Those of botocore below ours; without them every request of a test counts once.
            # Spelled out: botocore adds in place what is missing, and then fsspec takes them for
            # other settings and makes another filesystem.
            "config_kwargs": {"retries": {"total_max_attempts": retries + 1, "mode": "legacy"}},
        }
        self.environment = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": object_servers.ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": object_servers.SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def url(self, name: str) -> str:
        return f"s3://{self.bucket}/{self.folder}/{name}"

    def client(self) -> Any:
        """botocore, synchronous: somebody else's reader and witness."""
        return plain_client(self.endpoint)

    def names(self) -> list[str]:
        listed = self.client().list_objects_v2(Bucket=self.bucket, Prefix=f"{self.folder}/")
        return [entry["Key"].partition("/")[2] for entry in listed.get("Contents", [])]

    def uploads(self) -> list[str]:
        listed = self.client().list_multipart_uploads(Bucket=self.bucket, Prefix=f"{self.folder}/")
        return [entry["Key"].partition("/")[2] for entry in listed.get("Uploads", [])]

    def content(self, name: str) -> bytes:
        return bytes(self.client().get_object(Bucket=self.bucket, Key=f"{self.folder}/{name}")["Body"].read())


@contextlib.contextmanager
def s3_bucket(server: str, through: str | None = None, retries: int = 0) -> Iterator[S3]:
    """A fresh folder that s3:// URLs of this process reach.

    ``through`` is a proxy in front of the server.
    """
    share_descriptions()
    direct = S3(server, uuid.uuid4().hex[:12], retries)
    client = direct.client()
    with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket=direct.bucket)
    used = S3(through or server, direct.folder, retries)
    before = fsspec.config.conf.get("s3")
    fsspec.config.conf["s3"] = used.settings
    try:
        # The witness looks past the proxy.
        used.client = direct.client  # type: ignore[method-assign]
        yield used
    finally:
        fsspec.config.conf.pop("s3")
        if before is not None:
            fsspec.config.conf["s3"] = before
        theirs = fsspec.get_filesystem_class("s3")
        for kind in (theirs, *theirs.__subclasses__()):
            kind.clear_instance_cache()
