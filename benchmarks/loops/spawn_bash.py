"""For each sample: make a folder, write the sample's files, spawn ``bash -c :`` there.

That is what anybody's first script does, without reading anything back and without removing
anything; the samples are in memory before the clock starts.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from small import small_samples

target, count = Path(sys.argv[1]), int(sys.argv[2])
samples = list(small_samples(count))
done = 0
begin = time.perf_counter()
for number, sample in enumerate(samples):
    folder = target / f"{number:08d}"
    folder.mkdir()
    (folder / "__key__").write_text(sample["__key__"])
    (folder / "__source__").write_text("-")
    for field in ("cls", "json"):
        (folder / f"sample.{field}").write_bytes(sample[field])
    subprocess.run(["bash", "-c", ":"], cwd=folder, stdin=subprocess.DEVNULL, check=True)
    done += 1
seconds = time.perf_counter() - begin
json.dump({"seconds": seconds, "evidence": {"samples": done}}, sys.stdout)
