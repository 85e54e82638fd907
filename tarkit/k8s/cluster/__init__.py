"""Status of a run, from the API server and the done records together."""
