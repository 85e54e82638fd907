"""Check shards with tarkit: ``check_shards.py SPEC [require=FIELDS] [contents] [decode=N]``.

JSON with seconds, samples and findings on stdout; with ``read`` in place of the options, the
samples are only read.
"""

import json
import sys
import time

from tarkit import read_samples
from tarkit.specs.shardspec import expand
from tarkit.steps.check import check_shards
from tarkit.steps.findings import CheckReport

spec, *words = sys.argv[1:]
options = dict(word.partition("=")[::2] for word in words)
report = CheckReport()
begin = time.perf_counter()
if "read" in options:
    evidence = {"samples": sum(1 for _ in read_samples(spec)), "findings": 0}
else:
    found = check_shards(
        expand(spec),
        require=options.get("require"),
        repeated_contents="contents" in options,
        decode="decode" in options,
        parallel=int(options.get("decode", 1)),
        report=report,
    )
    evidence = {"findings": sum(1 for _ in found), "samples": report.tally.samples}
seconds = time.perf_counter() - begin
json.dump({"seconds": seconds, "evidence": evidence}, sys.stdout)
