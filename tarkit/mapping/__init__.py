"""Run a command or a Python function over samples: pools, workers, scratch folders."""
