"""What only users of ElasticDL need.

``zoo`` makes images with a folder of models.
"""
