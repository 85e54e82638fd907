"""Plan of a run over shards: its slices, the place of its list, its duration and cost."""
