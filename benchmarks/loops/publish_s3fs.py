"""Publish a file with s3fs as it is; JSON with seconds on stdout."""

import sys
import time

from bucket import NAME, answer, connected

path, endpoint, key, secret, check = sys.argv[1:]
fs = connected(endpoint, key, secret)
begin = time.perf_counter()
fs.put_file(path, NAME)
seconds = time.perf_counter() - begin
answer(fs, seconds, check == "check")
