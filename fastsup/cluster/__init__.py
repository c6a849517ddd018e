"""Clusters: what TF_CONFIG says, the server of a task, and whether the other tasks and the job are still there."""
