"""How shards are cut into slices, where their list is kept, how long a run takes and what it costs."""
