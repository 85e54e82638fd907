"""Train a network on iris with workers that come and go.

Usage: python elastic_iris_torch.py IRIS MODEL EPOCHS

DLROVER_MASTER_ADDR is the address of the shard service. The parameters are in the file MODEL, which
all workers map into their memory and change in place.
"""

import csv
import os
import sys
from contextlib import suppress

import torch

from tarkit.elasticdl import build_data_shard_service

CLASSES = ("Iris-setosa", "Iris-versicolor", "Iris-virginica")
BATCH = 16

iris, shared, epochs = sys.argv[1:]
with open(iris, newline="") as file:
    rows = [([float(x) for x in row[:4]], CLASSES.index(row[4])) for row in csv.reader(file) if row]
features, labels = (torch.tensor(column) for column in zip(*rows, strict=True))
features = (features - features.mean(0)) / features.std(0)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
parameters = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
if not os.path.exists(shared):
    parameters.numpy().tofile(f"{shared}.{os.getpid()}")
    with suppress(FileExistsError):  # another worker was first
        os.link(f"{shared}.{os.getpid()}", shared)
    os.remove(f"{shared}.{os.getpid()}")
parameters = torch.from_file(shared, shared=True, size=len(parameters))
torch.nn.utils.vector_to_parameters(parameters, model.parameters())
optimizer = torch.optim.SGD(model.parameters(), 0.1)

steps = 0
with build_data_shard_service(
    batch_size=BATCH,
    num_epochs=int(epochs),
    dataset_size=len(rows),
    num_minibatches_per_shard=1,
    dataset_name="iris_training_data",
    shuffle=True,
) as service:
    while shard := service.fetch_shard():
        batch = list(shard.indices or range(shard.start, shard.end))
        loss = torch.nn.functional.cross_entropy(model(features[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        service.report_batch_done(len(batch))
        steps += 1
if service.ended_before:  # which a warning says: there was nothing left to train on
    sys.exit(3)
accuracy = (model(features).argmax(1) == labels).float().mean().item()
print(f"steps {steps}, accuracy {accuracy:.3f}")
