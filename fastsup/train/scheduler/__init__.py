"""The hook scheduler: which hooks of a session a run must call, decided from the step before and after it."""
