#!/usr/bin/env bash
# Initialization action of Dataproc: installs tarkit on a node. Copy it and tarkit's wheel to one folder of a bucket,
# and pass that folder as metadata: --metadata=TARKIT_FOLDER=gs://BUCKET/FOLDER
set -euo pipefail

folder=$(/usr/share/google/get_metadata_value attributes/TARKIT_FOLDER)
wheels=$(mktemp -d)
gsutil cp "$folder/tarkit-*.whl" "$wheels"
# pyspark is there already; add what your model file imports.
pip install "$(echo "$wheels"/tarkit-*.whl)[gcs,images]"
rm -r "$wheels"
