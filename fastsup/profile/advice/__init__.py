"""Advice from the numbers of a report: possible changes, and the time that each saves."""
