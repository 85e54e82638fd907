"""Record formats: one folder or module for each, from bytes to records and back."""
