"""What a trainer imports: ``ShardClient``, records of its shards, and the service objects of ElasticDL's clients."""

from tarkit.service.datashards import DataShardService as DataShardService
from tarkit.service.datashards import build_data_shard_service as build_data_shard_service
from tarkit.service.heldshard import HeldShard as HeldShard
from tarkit.service.leases import NoShard as NoShard
from tarkit.service.recordindices import RecordIndexService as RecordIndexService
from tarkit.service.served import ServedRecord as ServedRecord
from tarkit.service.served import acknowledge as acknowledge
from tarkit.service.served import read_shards as read_shards
from tarkit.service.served import served_records as served_records
from tarkit.service.shardclient import ShardClient as ShardClient
