"""Write TFRecords one by one: tarkit|tensorflow PATH COUNT SIZE.

JSON with seconds from open to close.
"""

import json
import random
import sys
import time

way, path, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
draw = random.Random(20240229)
records = [draw.randbytes(size) for _ in range(count)]
if way == "tarkit":
    from tarkit.formats.tfrecord import RecordWriter as Writer
else:
    from tensorflow.io import TFRecordWriter as Writer

begin = time.perf_counter()
with Writer(path) as sink:
    write = sink.write
    for record in records:
        write(record)
seconds = time.perf_counter() - begin
json.dump({"seconds": seconds}, sys.stdout)
