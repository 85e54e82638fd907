"""Elastic training jobs: a shard service, workers that come and go, and what trains beside them."""
