"""``tarkit get``: download whole files and folders, and compare their lengths at the end."""

from __future__ import annotations

from collections.abc import Sequence

from tarkit.errors import UsageError
from tarkit.names.url import display_name

from ..shared.transfer import is_local, transfer_command

_EPILOG = """\b
Examples:
  tarkit get 's3://bucket/imagenet/train-{000000..000009}.tar' .
  tarkit get webhdfs://namenode:9870/imagenet ./imagenet
"""


def _check(sources: Sequence[str], target: str) -> None:
    if not is_local(target):
        raise UsageError(f"{display_name(target)} is not local; tarkit put copies to stores")


command = transfer_command("get", "SOURCE", "Copy files and folders from a store to the local disk.", _EPILOG, _check)
