"""A function of TF 2 under a MonitoredSession, with its hooks, recovery and services."""
