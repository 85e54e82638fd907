"""Make a thumbnail of each photo of a shard with tarfile and Pillow.

JSON with seconds and samples on stdout.
"""

import io
import json
import sys
import tarfile
import time

from PIL import Image

count = 0
begin = time.perf_counter()
with tarfile.open(sys.argv[1], "r|") as shard:
    for member in shard:
        if member.name.endswith(".jpg"):
            image = Image.open(io.BytesIO(shard.extractfile(member).read()))
            image.thumbnail((160, 160))
            image.save(io.BytesIO(), "JPEG", quality=70)
            count += 1
seconds = time.perf_counter() - begin
json.dump({"seconds": seconds, "evidence": {"samples": count}}, sys.stdout)
