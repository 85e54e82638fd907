"""Fetch the URLs of a file over one urllib3 pool with 64 threads, and keep nothing.

JSON with seconds, number of files and bytes on stdout. There are no retries, so a server that fails
is not for this loop.
"""

import concurrent.futures
import json
import sys
import time
from pathlib import Path

import urllib3

THREADS = 64

urls = Path(sys.argv[1]).read_text().split()
pool = urllib3.PoolManager(maxsize=THREADS)


def size(url: str) -> int:
    """The length of one body; 0 for an error."""
    answer = pool.request("GET", url)
    return len(answer.data) if answer.status == 200 else 0


begin = time.perf_counter()
with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
    sizes = list(threads.map(size, urls))
seconds = time.perf_counter() - begin
json.dump(
    {"seconds": seconds, "evidence": {"samples": sum(each > 0 for each in sizes), "bytes": sum(sizes)}}, sys.stdout
)
