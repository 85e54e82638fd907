"""Read and write files of HDFS, by Hadoop's own protocol and by its REST interface."""
