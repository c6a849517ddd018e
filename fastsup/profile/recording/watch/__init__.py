"""Records calls that run all steps of a loop themselves, such as Keras's `fit`."""
