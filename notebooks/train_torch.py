"""Train a linear model on a folder of RecordIO files: python train_torch.py FOLDER EPOCHS."""

import sys

import torch

from tarkit.formats.example import decode_example
from tarkit.readers.create import create_data_reader
from tarkit.readers.reader import Task, TaskShard, shards_of


class Batches(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.reader = create_data_reader(folder, records_per_task=32)
        self.shards = shards_of(self.reader)

    def __len__(self):
        return len(self.shards)

    def __getitem__(self, number):
        name, start, count = self.shards[number]
        records = self.reader.read_records(Task(TaskShard(name, start, start + count)))
        images, labels = zip(*((each["image"], each["label"][0]) for each in map(decode_example, records)), strict=True)
        return torch.tensor(images) / 255, torch.tensor(labels)


torch.manual_seed(0)
model = torch.nn.Linear(28 * 28, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
batches = torch.utils.data.DataLoader(Batches(sys.argv[1]), batch_size=None, shuffle=True, num_workers=2)
for epoch in range(int(sys.argv[2])):
    seen = total = 0
    for images, labels in batches:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen, total = seen + len(labels), total + loss.item() * len(labels)
    print(f"epoch {epoch}: {seen} records, loss {total / seen:.4f}")
