"""What tarproc is made of: its options as work, its folders of shards, its progress."""
