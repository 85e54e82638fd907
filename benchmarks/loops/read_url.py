"""Read a URL to its end with tarkit, 1 MiB at most at a time.

JSON with seconds and bytes on stdout.

``check`` adds a checksum, untimed: the bytes are read once more for it.
"""

import hashlib
import json
import sys
import time

from tarkit.store.read import open_read

url, check = sys.argv[1], sys.argv[2:] == ["check"]
count = 0
begin = time.perf_counter()
with open_read(url, compression=None) as stream:
    while data := stream.read(1 << 20):
        count += len(data)
seconds = time.perf_counter() - begin
evidence: dict[str, int | str] = {"bytes": count}
if check:
    digest = hashlib.sha256()
    with open_read(url, compression=None) as stream:
        while data := stream.read(1 << 20):
            digest.update(data)
    evidence["checksum"] = digest.hexdigest()
json.dump({"seconds": seconds, "evidence": evidence}, sys.stdout)
