"""Bytes by URL, in and out: a local disk, a command, HTTP, HDFS, and all that fsspec reaches."""
