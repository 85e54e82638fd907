"""Read objects of http and https servers with the standard library."""
