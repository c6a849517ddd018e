"""Calls that make all steps of a loop themselves, such as Keras's `fit`, in a profile."""
