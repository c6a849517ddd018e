"""Properties of a graph: its devices, the cost of a step, the writers of the global step and the variables."""
