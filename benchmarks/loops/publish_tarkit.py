"""Publish a file with tarkit, 1 MiB at a time; JSON with seconds on stdout.

Timed from opening to committed.
"""

import sys
import time

from bucket import NAME, answer, connected

from tarkit.store.publish import open_publish

path, endpoint, key, secret, check = sys.argv[1:]
fs = connected(endpoint, key, secret)
begin = time.perf_counter()
with open(path, "rb", buffering=0) as file, open_publish(f"s3://{NAME}", compression=None) as out:
    while data := file.read(1 << 20):
        out.write(data)
seconds = time.perf_counter() - begin
answer(fs, seconds, check == "check")
