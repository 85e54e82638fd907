"""The text that names shards: braces, globs, lists, slices, and the names of outputs."""
