"""Train a linear model on a folder of RecordIO files: python train_tensorflow.py FOLDER EPOCHS."""

import random
import sys

import tensorflow as tf

from tarkit.readers.create import create_data_reader
from tarkit.readers.reader import Task, TaskShard, shards_of
from tarkit.trainers.lasterror import release_at_exit

FEATURES = {"image": tf.io.FixedLenFeature([28 * 28], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
reader = create_data_reader(sys.argv[1], records_per_task=32)
shards = shards_of(reader)
random.seed(0)
release_at_exit()  # or TensorFlow may wait for ever when an error ends the program


def records():
    """Those of an epoch: the tasks in a new order each time."""
    for name, start, count in random.sample(shards, len(shards)):
        yield from reader.read_records(Task(TaskShard(name, start, start + count)))


batches = tf.data.Dataset.from_generator(records, output_signature=tf.TensorSpec([], tf.string)).batch(32)
weights, bias = tf.Variable(tf.zeros([28 * 28, 10])), tf.Variable(tf.zeros([10]))
for epoch in range(int(sys.argv[2])):
    seen = total = 0
    for batch in batches:
        examples = tf.io.parse_example(batch, FEATURES)
        with tf.GradientTape() as tape:
            logits = examples["image"] / 255 @ weights + bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(examples["label"], logits)
        for variable, gradient in zip((weights, bias), tape.gradient(losses, (weights, bias)), strict=True):
            variable.assign_sub(0.02 / len(losses) * gradient)
        seen, total = seen + len(losses), total + float(tf.reduce_sum(losses))
    print(f"epoch {epoch}: {seen} records, loss {total / seen:.4f}")
