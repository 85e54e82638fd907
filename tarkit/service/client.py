"""What a trainer imports: ``from tarkit.service.client import ShardClient``."""

from tarkit.service.ledger import NoShard as NoShard
from tarkit.service.session import HeldShard as HeldShard
from tarkit.service.shardclient import ShardClient as ShardClient
