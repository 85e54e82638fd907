"""Read the members of a shard at known offsets, each into new bytes; the floor of every reader.

JSON with seconds and samples on stdout. ``check`` adds the bytes of their contents.
"""

import json
import os
import sys
import tarfile
import time

from tarkit.store.allocator import keep_freed_memory

path, check = sys.argv[1], sys.argv[2:] == ["check"]
with tarfile.open(path) as archive:
    members = [(member.offset_data, member.size) for member in archive]
    samples = len({member.name.partition(".")[0] for member in archive})
# So that the system clears no new pages for each, as in tarkit.
keep_freed_memory()
total = 0
pread = os.pread
begin = time.perf_counter()
file = os.open(path, os.O_RDONLY)
for offset, size in members:
    total += len(pread(file, size, offset))
os.close(file)
seconds = time.perf_counter() - begin
evidence = {"samples": samples}
if check:
    evidence["field_bytes"] = total
json.dump({"seconds": seconds, "evidence": evidence}, sys.stdout)
