"""Read, write and list bytes by URL: local disk, command, HTTP, HDFS, and fsspec's stores."""
