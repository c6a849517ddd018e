"""The same training in the loops of several libraries: lines, time per step, and what is left after a kill."""
