"""A shard without an end on stdout: samples of one random "photo" of 50-100 kB and a class.

Writes the number of samples that went down the pipe to the file named by the first argument once a
second, so that it is known how much was streamed.
"""

import random
import sys
import tarfile
import time
from pathlib import Path

progress = Path(sys.argv[1])
chance = random.Random(1)
pool = chance.randbytes(1 << 20)
number = 0
last = 0.0


def member(name: str, content: bytes) -> bytes:
    """Header, content and padding of one file."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)


try:
    while True:
        start, size = chance.randrange(1 << 19), chance.randint(50_000, 100_000)
        key = f"{number:09d}"
        sys.stdout.buffer.write(member(key + ".cls", b"7") + member(key + ".jpg", pool[start : start + size]))
        number += 1
        if time.monotonic() - last > 1:
            last = time.monotonic()
            progress.write_text(str(number))
except BrokenPipeError:
    # The reader was stopped, which is how every run of this program ends.
    sys.stderr.close()
