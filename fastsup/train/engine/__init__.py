"""How a session with hooks runs a step: which hooks are called around which runs, and what they ask a run for."""
