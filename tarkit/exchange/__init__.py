"""Steps that need all samples at once: shuffle, sort, join, reduce, dedup; scatter and gather."""
