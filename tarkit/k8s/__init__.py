"""Manifests of Jobs over shards, their status in a cluster, and runs of them on this machine."""
