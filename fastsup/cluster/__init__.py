"""Clusters: TF_CONFIG, the server of a task, the liveness of its peers, and the completion of the job."""
