"""Read a shard with webdataset, undecoded; the same JSON as ``read_tarkit.py``."""

import json
import sys
import time

import webdataset
from contents import contents

path, check = sys.argv[1], sys.argv[2:] == ["check"]
count = 0
begin = time.perf_counter()
for _ in webdataset.WebDataset(path, shardshuffle=False):
    count += 1
seconds = time.perf_counter() - begin
evidence = {"samples": count}
if check:
    evidence |= contents(webdataset.WebDataset(path, shardshuffle=False))
json.dump({"seconds": seconds, "evidence": evidence}, sys.stdout)
