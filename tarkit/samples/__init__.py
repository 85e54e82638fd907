"""Samples of tar shards: key rule, codecs, transforms, readers, writers and indexes."""
