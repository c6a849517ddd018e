"""PyTorch Lightning's `Trainer` with its own callbacks."""

import sys

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

digits = load_digits()
images, labels = (digits.data / 16).astype("float32"), digits.target
parts = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
x, test_x, y, test_y = map(torch.from_numpy, parts)
lightning.seed_everything(0)


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def training_step(self, batch, number):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, number):
        images, labels = batch
        self.log("accuracy", (self.model(images).argmax(dim=1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


folder = sys.argv[1] if len(sys.argv) > 1 else "train-lightning"
batches = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
test_batches = DataLoader(TensorDataset(test_x, test_y), batch_size=len(test_y))
best = ModelCheckpoint(folder, monitor="accuracy", mode="max")
newest = ModelCheckpoint(f"{folder}/newest", save_last=True)
stopping = EarlyStopping("accuracy", mode="max", patience=20)
trainer = lightning.Trainer(max_epochs=117, callbacks=[best, newest, stopping], default_root_dir=folder)
trainer.fit(Classifier(), batches, test_batches, ckpt_path="last")
(results,) = trainer.validate(dataloaders=test_batches, ckpt_path="best", verbose=False)
print(f"Step {trainer.global_step}: test accuracy {results['accuracy']:.2%}")
