"""pytorch-ignite's `Engine` with its own handlers."""

import sys
from pathlib import Path

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping, global_step_from_engine
from ignite.metrics import Accuracy
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

digits = load_digits()
images, labels = (digits.data / 16).astype("float32"), digits.target
parts = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
x, test_x, y, test_y = map(torch.from_numpy, parts)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
batches = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
test_batches = DataLoader(TensorDataset(test_x, test_y), batch_size=len(test_y))
trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.cross_entropy)
evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy()})


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate():
    evaluator.run(test_batches)


folder = Path(sys.argv[1] if len(sys.argv) > 1 else "train-ignite")
stopping = EarlyStopping(patience=20, score_function=lambda engine: engine.state.metrics["accuracy"], trainer=trainer)
evaluator.add_event_handler(Events.COMPLETED, stopping)
saver = DiskSaver(folder, create_dir=True, require_empty=False)
best = Checkpoint(
    {"model": model}, saver, filename_prefix="best", score_name="accuracy", n_saved=1,
    global_step_transform=global_step_from_engine(trainer),
)  # fmt: skip
evaluator.add_event_handler(Events.COMPLETED, best)
states = {"model": model, "optimizer": optimizer, "trainer": trainer, "stopping": stopping, "best": best}
trainer.add_event_handler(Events.EPOCH_COMPLETED, Checkpoint(states, saver, n_saved=2))
saved = sorted(folder.glob("checkpoint_*.pt"), key=lambda path: path.stat().st_mtime)
if saved:
    Checkpoint.load_objects(states, checkpoint=saved[-1])
trainer.run(batches, max_epochs=117)
Checkpoint.load_objects({"model": model}, checkpoint=best.last_checkpoint)
accuracy = evaluator.run(test_batches).metrics["accuracy"]
print(f"Step {trainer.state.iteration}: test accuracy {accuracy:.2%}")
