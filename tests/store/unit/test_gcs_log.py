"""Lines that gcsfs logs while it reads through tarkit."""

import logging

import pytest

from tarkit.store.objects.gcs import without_retries


class FileSystem:
    """The part of gcsfs's file system that tarkit changes."""

    session = property(lambda _: None)

    async def _request(self) -> None: ...

    async def _get_bucket_type(self, bucket: str) -> None: ...


def test_a_fallback_to_plain_http_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    without_retries(FileSystem)
    logger = logging.getLogger("gcsfs")
    logger.warning("Could not determine bucket type for bucket name b: no credentials, falling back to GCSFileSystem")
    logger.warning("Error: Bucket b not found or you lack permissions. Falling back to GCSFileSystem.")
    logger.warning("upload failed")
    assert caplog.messages == ["upload failed"]
