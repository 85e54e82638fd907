"""Shards in, shards out: counts, failed samples, done records, resuming, retrying, status."""
