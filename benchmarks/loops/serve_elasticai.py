"""Fetch and report all shards with elasticai-api: DLROVER_MASTER_ADDR is the service.

The data set's name is given.
"""

from __future__ import annotations

import json
import sys
import time

from elasticai_api.common.data_shard_service import build_data_shard_service

service = build_data_shard_service(batch_size=10, dataset_name=sys.argv[1])
sys.stdout.write("ready\n")
sys.stdout.flush()
sys.stdin.readline()
start, number = time.perf_counter(), 0
while service.fetch_shard():
    service.report_batch_done(10)
    number += 1
sys.stdout.write(json.dumps({"seconds": time.perf_counter() - start, "evidence": {"shards": number}}) + "\n")
