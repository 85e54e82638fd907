"""Tar archives: headers, members, damage. Samples are the task of the next room."""
