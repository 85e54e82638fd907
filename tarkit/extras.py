"""Import libraries that come with an extra, when they are first needed."""

from __future__ import annotations

import importlib
from typing import Any

from tarkit.errors import EXIT_USAGE, TarkitError

PACKAGES = {
    "s3": "s3fs",
    "gcs": "gcsfs",
    "azure": "adlfs",
    "hdfs": "hdfs-native",
    "hf": "'huggingface_hub>=0.36'",
    "images": "pillow numpy",
    "jpeg": "simplejpeg",
    "audio": "soundfile",
    "video": "torchcodec",
    "msgpack": "msgpack",
    "cbor": "cbor2",
    "webdataset": "webdataset",
    "k8s": "'kubernetes>=30' 'python-dateutil<3'",
    "schema": "kubernetes-validate",
    "openpai": "jsonschema",
    "parquet": "pyarrow",
    "mds": "mosaicml-streaming",
    "dedup": "imagehash",
    "download": "'aiohttp>=3.10'",
    "gzip": "indexed_gzip",
    "odps": "pyodps",
    "spark": "pyspark",
    "torch": "torch",
    "tensorflow": "tensorflow",
    "service": "grpcio 'protobuf>=3.20' prometheus-client",
}
"""The arguments of ``pip install`` for each extra."""


class MissingExtraError(TarkitError, ImportError):
    """A library that is needed is not installed.

    The message names the library and the extra that installs it.
    """

    exit_code = EXIT_USAGE

    def __init__(self, needed_for: str, extra: str) -> None:
        super().__init__(
            f"{needed_for} needs a library that is not installed: pip install {PACKAGES[extra]} "
            f"(or tarkit with its extra {extra!r})"
        )
        self.needed_for = needed_for
        self.extra = extra


def library(name: str, needed_for: str, extra: str) -> Any:
    """Import and return the module ``name``, which comes with an extra.

    Args:
        name: name of the module.
        needed_for: name of the feature that needs it, at the beginning of the message.
        extra: the extra that installs it, a key of ``PACKAGES``.

    Raises:
        MissingExtraError: the module is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtraError(needed_for, extra) from error
