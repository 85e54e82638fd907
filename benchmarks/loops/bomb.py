"""A shard that is a compression bomb: ``bomb.py MIB OUT.tar.zst``.

The second of its samples has a member of zeros.
"""

import sys
import tarfile

from tarkit.store.publish import open_publish

mebibytes, path = int(sys.argv[1]), sys.argv[2]


def header(name: str, size: int) -> bytes:
    """Of one file; from 8 GiB on, with a size in base 256."""
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


with open_publish(path) as out:
    out.write(header("a.cls", 0) + header("b.cls", 0) + header("b.bin", mebibytes << 20))
    for _ in range(mebibytes):
        out.write(bytes(1 << 20))
    out.write(header("c.cls", 0) + bytes(1024))
