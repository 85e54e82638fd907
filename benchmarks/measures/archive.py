"""What is in a tar that one of the sides wrote, found out by programs that are not ours."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

from environments import call, system_program
from rounds import Evidence, MeasureError


def listed(path: Path) -> Evidence:
    """Samples, bytes and a checksum of names and sizes, as GNU tar lists them.

    Nothing is read but headers.
    """
    text = call([system_program("tar", "tar"), "-tvf", path], variables={"LC_ALL": "C"})
    entries = sorted((words[5], int(words[2])) for words in (line.split(None, 5) for line in text.splitlines()))
    return {
        "samples": len({name.partition(".")[0] for name, _ in entries}),
        "members": len(entries),
        "field_bytes": sum(size for _, size in entries),
        "listing": hashlib.sha256(repr(entries).encode()).hexdigest(),
    }


def pictures_in_tar(path: Path) -> Evidence:
    """Number, bytes and a checksum of the ``.ppm`` files of a shard, whatever their order."""
    digests: dict[str, str] = {}
    total = 0
    with tarfile.open(path) as shard:
        for info in shard:
            if info.name.endswith(".ppm"):
                stream = shard.extractfile(info)
                if stream is None or info.name in digests:
                    raise MeasureError(f"{info.name} is not a file, or is twice in the output")
                digests[info.name] = hashlib.sha256(stream.read()).hexdigest()
                total += info.size
    return _pictures(digests, total)


def pictures_in_folder(folder: Path) -> Evidence:
    """The same of the ``.ppm`` files in a folder."""
    digests: dict[str, str] = {}
    total = 0
    for path in folder.glob("*.ppm"):
        content = path.read_bytes()
        digests[path.name] = hashlib.sha256(content).hexdigest()
        total += len(content)
    return _pictures(digests, total)


def _pictures(digests: dict[str, str], total: int) -> Evidence:
    checksum = hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()
    return {"samples": len(digests), "ppm_bytes": total, "checksum": checksum}
