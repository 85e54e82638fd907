"""Code that all three programs share."""
