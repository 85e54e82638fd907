"""A tar shard to RecordIO with tarkit: ``SHARD OUT``; JSON with seconds and records on stdout."""

import json
import sys
import time

from tarkit.formats.recordio import read_records
from tarkit.steps.convert import convert

shard, out = sys.argv[1:]
begin = time.perf_counter()
count = convert(shard, out, "recordio")
seconds = time.perf_counter() - begin
with open(shard, "rb") as tar:
    # Records joined are the tar.
    same = all(record == tar.read(len(record)) for record in read_records(out)) and not tar.read(1)
json.dump({"seconds": seconds, "evidence": {"records": count, "same": same}}, sys.stdout)
