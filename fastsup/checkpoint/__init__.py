"""Checkpoints: which there are and which are whole, how one is restored, and how one is saved in the background."""
