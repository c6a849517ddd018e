"""Trains a classifier of handwritten digits in PyTorch, without TensorFlow. Kill it and run it again: it goes on.

Run `python examples/train_torch.py [folder]`.
"""

import sys

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

from fastsup.loop import train

digits = load_digits()
images, labels = (digits.data / 16).astype("float32"), digits.target
parts = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
x, test_x, y, test_y = map(torch.from_numpy, parts)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def batches(epoch):
    generator = torch.Generator().manual_seed(epoch)
    return DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True, generator=generator)


def step(images, labels):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def evaluate():
    with torch.no_grad():
        return {"accuracy": (model(test_x).argmax(dim=1) == test_y).float().mean()}


folder = sys.argv[1] if len(sys.argv) > 1 else "train-torch"
loop = train(step, batches, max_steps=5000, states={"model": model, "optimizer": optimizer}, directory=folder,
             evaluate=evaluate, metric="accuracy", mode="max", patience=20)  # fmt: skip
print(f"Step {loop.global_step}, resumed from {loop.restored_step}: test accuracy {evaluate()['accuracy']:.2%}")
