"""What became of a run: the API server and the done records, looked at together."""
