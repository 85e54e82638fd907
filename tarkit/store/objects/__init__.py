"""Read and write objects of S3, GCS and every other file system of fsspec."""
