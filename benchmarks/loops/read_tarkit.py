"""Read a shard with tarkit; JSON with seconds and samples on stdout.

``check`` adds what was in them, untimed.
"""

import json
import sys
import time

from contents import contents

from tarkit import read_samples

path, check = sys.argv[1], sys.argv[2:] == ["check"]
count = 0
begin = time.perf_counter()
for _ in read_samples(path):
    count += 1
seconds = time.perf_counter() - begin
evidence = {"samples": count}
if check:
    evidence |= contents(read_samples(path))
json.dump({"seconds": seconds, "evidence": evidence}, sys.stdout)
