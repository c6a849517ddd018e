"""Training with MultiWorkerMirroredStrategy: one task of a collective job."""
