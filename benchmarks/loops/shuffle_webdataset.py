"""Shuffle shards with webdataset: shuffle_webdataset.py FOLDER MAXCOUNT SHARD...: all samples in a
list.
"""

import json
import os
import random
import sys
import time

from webdataset import ShardWriter, WebDataset

folder, most, *shards = sys.argv[1:]
begin = time.perf_counter()
samples = [*WebDataset(shards, shardshuffle=False)]
random.Random(0).shuffle(samples)
with ShardWriter(f"{folder}/out-%06d.tar", maxcount=int(most), verbose=0, encoder=False) as sink:
    for sample in samples:
        sink.write({name: value for name, value in sample.items() if name not in ("__url__", "__local_path__")})
os.sync()
json.dump({"seconds": time.perf_counter() - begin}, sys.stdout)
