"""Supervisor, its services, and the graph elements that it needs."""
