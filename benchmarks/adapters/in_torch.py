"""PyTorch: a loop of Python, pytorch-ignite's Engine and Lightning's Trainer."""

import logging
import warnings

import numpy as np
import torch
from torch import nn
from workloads import BATCH, BUCKETS, CATEGORIES, EMBEDDING, MATMULS, SIZE, digits, glorot, wide_and_deep

__all__ = ["PEERS"]


class Model(nn.Module):
    """The variables of a workload, and its loss.

    Args:
      workload: the workload.
    """

    def __init__(self, workload):
        super().__init__()
        self._workload = workload
        if workload == "tiny":
            self.w = nn.Parameter(torch.linspace(1, 2, 10))
            return
        if workload in MATMULS:
            self.w = nn.Parameter(torch.eye(SIZE))
            return
        sizes = ((64, 32), (32, 10)) if workload == "digits" else ((8 + 4 * EMBEDDING, 64), (64, 32), (32, 1))
        self.layers = nn.ModuleList()
        for n, (rows, columns) in enumerate(sizes):
            layer = nn.Linear(rows, columns)
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(glorot(rows, columns, n).T))
                layer.bias.zero_()
            self.layers.append(layer)
        if workload == "wide_and_deep":
            self.tables = nn.ModuleList(nn.Embedding(BUCKETS, EMBEDDING, sparse=True) for _ in range(CATEGORIES))
            self.wide = nn.ModuleList(nn.Embedding(BUCKETS, 1, sparse=True) for _ in range(CATEGORIES))

    def loss(self, batch):
        """The loss of a batch, a scalar tensor."""
        if self._workload == "tiny":
            return ((self.w - 3.0) ** 2).sum()
        if self._workload in MATMULS:
            with torch.no_grad():
                product = self.w
                for _ in range(MATMULS[self._workload]):
                    product = product @ self.w
            return (product * self.w).sum() * 1e-9
        values = batch[0]
        if self._workload == "wide_and_deep":
            categories = batch[0]
            values = torch.cat([batch[1], *(table(categories[:, n]) for n, table in enumerate(self.tables))], 1)
        for layer in list(self.layers)[:-1]:
            values = torch.relu(layer(values))
        values = self.layers[-1](values)
        if self._workload == "digits":
            return nn.functional.cross_entropy(values, batch[1])
        logits = values[:, 0] + sum(table(batch[0][:, n])[:, 0] for n, table in enumerate(self.wide))
        return nn.functional.binary_cross_entropy_with_logits(logits, batch[2])


def optimizer_of(workload, model):
    """Gradient descent, or Adagrad."""
    if workload == "wide_and_deep":
        return torch.optim.Adagrad(model.parameters(), 0.05)
    return torch.optim.SGD(model.parameters(), 0.1)


class Batches(torch.utils.data.IterableDataset):
    """The batches of a workload; so many, or without end."""

    def __init__(self, workload, count=None):
        self._workload, self._count = workload, count
        if workload in BATCH:
            arrays = digits() if workload == "digits" else wide_and_deep()
            self._tensors = [
                torch.from_numpy(array if array.dtype != np.int32 else array.astype(np.int64)) for array in arrays
            ]

    def __iter__(self):
        made = 0
        size = BATCH.get(self._workload)
        while True:
            order = torch.randperm(4096)
            for start in range(0, 4096, size or 1):
                if made == self._count:
                    return
                made += 1
                yield [tensor[order[start : start + size]] for tensor in self._tensors] if size else []


class Plain:
    """A loop of Python."""

    def __init__(self, workload):
        self._workload, self._model = workload, Model(workload)
        self._optimizer = optimizer_of(workload, self._model)
        self._batches = iter(torch.utils.data.DataLoader(Batches(workload), batch_size=None))

    def step(self, batch):
        """One step."""
        self._optimizer.zero_grad()
        loss = self._model.loss(batch)
        loss.backward()
        self._optimizer.step()
        return loss

    def run(self, steps):
        """Trains so many steps."""
        for _ in range(steps):
            self.step(next(self._batches))

    def close(self):
        """Nothing to write."""


class InIgnite(Plain):
    """pytorch-ignite's Engine."""

    def run(self, steps):
        """Trains so many steps."""
        from ignite.engine import Engine, Events

        logging.getLogger("ignite").setLevel(logging.ERROR)
        engine = Engine(lambda engine, batch: self.step(batch))
        engine.add_event_handler(Events.ITERATION_COMPLETED(every=1000), lambda engine: None)
        engine.run(self._batches, max_epochs=1, epoch_length=steps)


class InLightning:
    """Lightning's Trainer, with nothing switched on but a callback."""

    def __init__(self, workload):
        from lightning.pytorch import LightningModule

        warnings.simplefilter("ignore")
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        self._workload, model = workload, Model(workload)

        class Module(LightningModule):
            def __init__(self):
                super().__init__()
                self.model = model

            def training_step(self, batch, number):
                return model.loss(batch)

            def configure_optimizers(self):
                return optimizer_of(workload, model)

        self._module = Module()

    def run(self, steps):
        """Trains so many steps."""
        from lightning.pytorch import Trainer

        trainer = Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(self._module, torch.utils.data.DataLoader(Batches(self._workload, steps), batch_size=None))

    def close(self):
        """Nothing to write."""


PEERS = {"torch": Plain, "ignite": InIgnite, "lightning": InLightning}
