"""Libraries that a plain install does not have: each comes with an extra, and is loaded when it is
first needed.
"""

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
    "msgpack": "msgpack",
    "cbor": "cbor2",
    "webdataset": "webdataset",
    "k8s": "'kubernetes>=30' 'python-dateutil<3'",
    "schema": "kubernetes-validate",
    "openpai": "jsonschema",
    "parquet": "pyarrow",
    "odps": "pyodps",
    "spark": "pyspark",
    "torch": "torch",
    "tensorflow": "tensorflow",
    "service": "grpcio 'protobuf>=3.20' prometheus-client",
}
"""Extra -> what to give to pip install."""


class MissingExtraError(TarkitError, ImportError):
    """A library that is not installed is needed.

    The message names it, and the extra that brings it.
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
    """The module ``name``, which is not always installed, loaded when it is first needed.

    Raises:
        MissingExtraError: it is not installed; the message names the extra that brings it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtraError(needed_for, extra) from error
