"""PyTorch: `torch.save`, ignite's `Checkpoint`, Lightning's `ModelCheckpoint`. Each step adds 1 to each weight."""

import functools
import logging
import os
import re
import warnings

import ignite.engine
import ignite.handlers
import lightning
import lightning.pytorch.callbacks
import torch
from job import EVERY, SIZE


class _Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(SIZE))

    def forward(self):
        return -self.weights.sum()


def _step(model, optimizer):
    optimizer.zero_grad()
    model().backward()
    optimizer.step()


def save(job):
    """A dictionary in one file, as in PyTorch's tutorial on general checkpoints."""
    model = _Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    path = os.path.join(job.folder, "model.pt")
    number = 0
    if os.listdir(job.folder):
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model_state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
        number = checkpoint["step"]
    job.started(number, model.weights.detach().numpy())
    while number < job.last:
        _step(model, optimizer)
        number += 1
        if number % EVERY == 0 or number == job.last:
            states = {"model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict()}
            torch.save({"step": number, **states}, path)
            job.returned(number)
        job.rested()


def in_ignite(job):
    """`Checkpoint` with a `DiskSaver`, by default atomic. The newest is that with the greatest number."""
    model = _Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    trainer = ignite.engine.Engine(lambda engine, batch: _step(model, optimizer))
    to_save = {"trainer": trainer, "model": model, "optimizer": optimizer}
    saver = ignite.handlers.Checkpoint(
        to_save,
        ignite.handlers.DiskSaver(job.folder, require_empty=False),
        n_saved=1,
        global_step_transform=lambda engine, event: engine.state.iteration,
    )
    iteration = ignite.engine.Events.ITERATION_COMPLETED
    trainer.add_event_handler(iteration(every=EVERY), saver)
    trainer.add_event_handler(iteration(every=EVERY), lambda engine: job.returned(engine.state.iteration))
    trainer.add_event_handler(iteration, lambda engine: job.rested())
    found = [re.fullmatch(r"checkpoint_(\d+)\.pt", name) for name in os.listdir(job.folder)]
    numbers = [int(match[1]) for match in found if match]
    if numbers:
        checkpoint = torch.load(os.path.join(job.folder, f"checkpoint_{max(numbers)}.pt"))
        ignite.handlers.Checkpoint.load_objects(to_save, checkpoint)
    job.started(trainer.state.iteration, model.weights.detach().numpy())
    # An epoch is an iteration: so the training ends after any number of them.
    trainer.run([0], max_epochs=job.last)


class _Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = _Model()

    def training_step(self, batch, batch_idx):
        return self.model()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


class _Steps(lightning.Callback):
    """Lightning calls the callbacks that save after all others: so a save has returned when the next step begins."""

    def __init__(self, job):
        self._job = job

    def on_train_start(self, trainer, module):
        self._job.started(trainer.global_step, module.model.weights.detach().numpy())

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.has_returned(trainer)
        self._job.rested()

    def has_returned(self, trainer):
        self._job.returned(trainer.global_step // EVERY * EVERY)


def in_lightning(job, save_last=True):
    """`ModelCheckpoint` with `save_last`, and `fit` with `ckpt_path="last"`."""
    steps = _Steps(job)
    saver = lightning.pytorch.callbacks.ModelCheckpoint(job.folder, every_n_train_steps=EVERY, save_last=save_last)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=job.last,
        callbacks=[saver, steps],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = torch.utils.data.DataLoader(torch.zeros(1_000, 1))
    trainer.fit(_Module(), data, ckpt_path="last")
    steps.has_returned(trainer)


warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)

PROGRAMS = {
    "torch_save": save,
    "ignite": in_ignite,
    "lightning": in_lightning,
    "lightning_link": functools.partial(in_lightning, save_last="link"),
}
