"""One sample through a command or a Python function: pools, workers, scratch folders."""
