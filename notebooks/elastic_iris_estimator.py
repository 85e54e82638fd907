"""Train an Estimator on iris with workers that come and go.

Usage: python elastic_iris_estimator.py IRIS MODEL_DIR EPOCHS

TensorFlow 2.15 is the last release with tf.estimator. DLROVER_MASTER_ADDR is the address of the
shard service. With TF_CONFIG, this is one process of a cluster of a chief, workers and parameter
servers.
"""

import csv
import sys

import tensorflow as tf

from tarkit.elasticdl import build_data_shard_service

COLUMNS = ("sepal_length", "sepal_width", "petal_length", "petal_width")
CLASSES = ("Iris-setosa", "Iris-versicolor", "Iris-virginica")
BATCH = 16


class ReportBatchDone(tf.estimator.SessionRunHook):
    """After each step, the service learns that one more batch is done."""

    def __init__(self, service):
        self._service = service

    def after_run(self, run_context, run_values):
        self._service.report_batch_done()


def batches(numbered_rows):
    """Batches as an Estimator takes them, of a generator of rows."""
    kinds = tf.TensorSpec([4], tf.float32), tf.TensorSpec([], tf.int32)
    found = tf.data.Dataset.from_generator(numbered_rows, output_signature=kinds).batch(BATCH)
    return found.map(lambda x, y: ({name: x[:, number] for number, name in enumerate(COLUMNS)}, y))


iris, model_dir, epochs = sys.argv[1:]
with open(iris, newline="") as file:
    rows = [([float(x) for x in row[:4]], CLASSES.index(row[4])) for row in csv.reader(file) if row]

service = build_data_shard_service(
    batch_size=BATCH,
    num_epochs=int(epochs),
    dataset_size=len(rows),
    num_minibatches_per_shard=1,
    dataset_name="iris_training_data",
    shuffle=True,
)


def training_rows():
    while shard := service.fetch_shard():
        for index in shard.indices or range(shard.start, shard.end):
            yield rows[index]


estimator = tf.estimator.DNNClassifier(
    [16],
    [tf.feature_column.numeric_column(name) for name in COLUMNS],
    n_classes=3,
    optimizer=lambda: tf.keras.optimizers.legacy.Adam(0.02),
    config=tf.estimator.RunConfig(model_dir, tf_random_seed=0),
)
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(lambda: batches(training_rows), hooks=[ReportBatchDone(service)]),
    tf.estimator.EvalSpec(lambda: batches(lambda: iter(rows)), steps=None),
)
service.close()
if service.ended_before:  # which a warning says: there was nothing left to train on
    sys.exit(3)
if estimator.config.is_chief:
    found = estimator.evaluate(lambda: batches(lambda: iter(rows)))
    print(f"steps {found['global_step']}, accuracy {found['accuracy']:.3f}")
