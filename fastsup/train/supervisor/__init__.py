"""Supervisor and its parts: graph elements, sessions, services, events and checkpoints, one file each."""
