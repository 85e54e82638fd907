"""Steps over whole shards, each a function over streams."""
