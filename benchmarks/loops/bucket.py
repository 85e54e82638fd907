"""The bucket that both publishing loops write to, and what they answer."""

import contextlib
import hashlib
import json
import sys
from typing import Any

import fsspec

BUCKET = "benchmarks"
NAME = f"{BUCKET}/object"


def connected(endpoint: str, key: str, secret: str) -> Any:
    """The filesystem, with the bucket in it and nothing under the name. s3:// URLs lead there as
    well.
    """
    fsspec.config.conf["s3"] = {"endpoint_url": endpoint, "key": key, "secret": secret}
    fs = fsspec.filesystem("s3")
    with contextlib.suppress(FileExistsError):
        fs.mkdir(BUCKET)
    with contextlib.suppress(FileNotFoundError):
        fs.rm(NAME)
    return fs


def answer(fs: Any, seconds: float, check: bool) -> None:
    """JSON on stdout: what is in the bucket now, as the store tells it."""
    fs.invalidate_cache()
    evidence: dict[str, int | str] = {"bytes": int(fs.info(NAME)["size"])}
    if check:
        digest = hashlib.sha256()
        with fs.open(NAME, "rb", cache_type="readahead") as file:
            while data := file.read(8 << 20):
                digest.update(data)
        evidence["checksum"] = digest.hexdigest()
    json.dump({"seconds": seconds, "evidence": evidence}, sys.stdout)
