"""Interfaces that TensorFlow removed. Programs that were written for them run unmodified."""
