"""Objects of http and https servers, read with the standard library."""
