"""``tarkit put``: upload whole files and folders, and compare their lengths at the end."""

from __future__ import annotations

from collections.abc import Sequence

from tarkit.errors import UsageError
from tarkit.names.url import display_name

from ..shared.transfer import is_local, transfer_command

_EPILOG = """\b
Examples:
  tarkit put train-000000.tar s3://bucket/imagenet/
  tarkit put -p 8 shards/ hdfs://namenode:9000/imagenet
"""


def _check(sources: Sequence[str], target: str) -> None:
    for source in sources:
        if not is_local(source.removeprefix("@")):
            raise UsageError(f"{display_name(source)} is not local; tarkit get copies from stores")


command = transfer_command(
    "put", "PATH", "Copy local files and folders to a store, or to another place on the disk.", _EPILOG, _check
)
