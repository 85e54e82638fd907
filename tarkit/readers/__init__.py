"""What a trainer's shard service hands out ranges of: records of files and tables, by shard name
and number.
"""
