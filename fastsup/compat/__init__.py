"""Interfaces that TensorFlow removed, for programs that run unmodified."""
