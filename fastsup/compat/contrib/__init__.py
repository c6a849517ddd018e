"""The training parts of `tf.contrib`. Their public names are those of `fastsup.contrib`."""
