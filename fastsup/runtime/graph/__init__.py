"""What can be read off a graph: its devices, what a step costs, what changes the global step and the variables."""
