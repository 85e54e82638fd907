"""Write small samples with tarkit; JSON with seconds on stdout.

Timed from opening the shard to its close.
"""

import json
import sys
import time

from small import small_samples

from tarkit.writer import TarWriter

samples = list(small_samples(int(sys.argv[2])))
begin = time.perf_counter()
with TarWriter(sys.argv[1], encoder=False) as sink:
    for sample in samples:
        sink.write(sample)
    written = time.perf_counter() - begin
seconds = time.perf_counter() - begin
json.dump({"seconds": seconds, "loop_seconds": written}, sys.stdout)
