"""Read the last samples of a shard by its index, by streaming, or with webdataset.

JSON with seconds and contents.
"""

import itertools
import json
import sys
import time

from contents import contents

how, path, start, end = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if how == "webdataset":
    import webdataset

    begin = time.perf_counter()
    samples = list(itertools.islice(webdataset.WebDataset(path, shardshuffle=False), start, end))
else:
    from tarkit import read_samples
    from tarkit.samples.indexedshard import open_indexed

    begin = time.perf_counter()
    if how == "index":
        samples = list(open_indexed(path).samples(start, end))
    else:
        samples = list(itertools.islice(read_samples(path), start, end))
seconds = time.perf_counter() - begin
json.dump({"seconds": seconds, "evidence": {"samples": len(samples), **contents(samples)}}, sys.stdout)
