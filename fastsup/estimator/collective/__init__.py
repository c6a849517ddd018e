"""Training with MultiWorkerMirroredStrategy: one task of a job of collectives."""
