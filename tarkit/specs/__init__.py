"""Shard specs: patterns, lists and slices of shards, manifests, checks of outputs."""
