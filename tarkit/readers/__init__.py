"""Sources of records for the shard service: files and tables, by shard name and record number."""
