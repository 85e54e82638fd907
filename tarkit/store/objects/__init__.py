"""Objects of S3, GCS and every other filesystem of fsspec."""
