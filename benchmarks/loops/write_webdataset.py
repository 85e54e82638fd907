"""Write small samples with webdataset; the same JSON as ``write_tarkit.py``."""

import json
import sys
import time

from small import small_samples
from webdataset import TarWriter

samples = list(small_samples(int(sys.argv[2])))
begin = time.perf_counter()
with TarWriter(sys.argv[1], encoder=False) as sink:
    for sample in samples:
        sink.write(sample)
    written = time.perf_counter() - begin
seconds = time.perf_counter() - begin
json.dump({"seconds": seconds, "loop_seconds": written}, sys.stdout)
