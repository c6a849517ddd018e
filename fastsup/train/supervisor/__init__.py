"""Supervisor: its graph elements, sessions, threads, services, events and checkpoints, one file each."""
