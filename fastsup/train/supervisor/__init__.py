"""Supervisor, its graph elements, and its services: sessions, events, checkpoints and threads."""
