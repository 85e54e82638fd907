"""What all three programs share."""
