"""Bytes to records and back: one folder or module for each format."""
