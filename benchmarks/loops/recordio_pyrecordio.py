"""The same as ``recordio_tarkit.py``, with pyrecordio."""

import json
import sys
import time

from recordio import File
from records import evidence, records

action, path, *rest = sys.argv[1:]
if action == "write":
    some = records(int(rest[0]), int(rest[1]))
    begin = time.perf_counter()
    with File(path, "w") as writer:
        for record in some:
            writer.write(record)
    seconds = time.perf_counter() - begin
    with File(path, "r") as reader:
        found = evidence(reader)
else:
    count = 0
    begin = time.perf_counter()
    with File(path, "r") as reader:
        for _ in reader:
            count += 1
    seconds = time.perf_counter() - begin
    if rest:
        with File(path, "r") as reader:
            found = evidence(reader)
    else:
        found = {"records": count}
json.dump({"seconds": seconds, "evidence": found}, sys.stdout)
