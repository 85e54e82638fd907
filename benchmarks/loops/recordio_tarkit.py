"""RecordIO with tarkit: ``read PATH [check]`` or ``write PATH COUNT SIZE``.

JSON with seconds and records on stdout.
"""

import json
import sys
import time

from records import evidence, records

from tarkit.formats.recordio import RecordWriter, read_records

action, path, *rest = sys.argv[1:]
if action == "write":
    some = records(int(rest[0]), int(rest[1]))
    begin = time.perf_counter()
    with RecordWriter(path) as writer:
        for record in some:
            writer.write(record)
    seconds = time.perf_counter() - begin
    found = evidence(read_records(path))
else:
    count = 0
    begin = time.perf_counter()
    for _ in read_records(path):
        count += 1
    seconds = time.perf_counter() - begin
    found = evidence(read_records(path)) if rest else {"records": count}
json.dump({"seconds": seconds, "evidence": found}, sys.stdout)
