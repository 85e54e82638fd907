"""Write the rows of a Parquet file with webdataset's ShardWriter, as its documentation does."""

import json
import os
import sys
import time

import pyarrow.parquet
from webdataset import ShardWriter

source, folder = sys.argv[1:]
begin = time.perf_counter()
with ShardWriter(f"{folder}/out-%06d.tar", maxcount=10_000, verbose=0) as sink:
    for batch in pyarrow.parquet.ParquetFile(source).iter_batches(1000):
        for row in batch.to_pylist():
            sink.write({"__key__": row["id"], "jpg": row["jpg"], "cls": row["cls"], "caption.txt": row["caption"]})
os.sync()
json.dump({"seconds": time.perf_counter() - begin}, sys.stdout)
