"""Two graphs: a MonitoredTrainingSession runs the default one, and a Session the one that it is given."""

from __future__ import print_function

import json

import tensorflow as tf


def example():
    g1 = tf.Graph()
    with g1.as_default():
        # Define operations and tensors in `g`.
        c1 = tf.constant(42)
        assert c1.graph is g1

    g2 = tf.Graph()
    with g2.as_default():
        # Define operations and tensors in `g`.
        c2 = tf.constant(3.14)
        assert c2.graph is g2

    values, errors = [], []
    # MonitoredTrainingSession example
    with g1.as_default():
        with tf.train.MonitoredTrainingSession() as sess:
            values.append(int(c1.eval(session=sess)))
            try:
                values.append(float(c2.eval(session=sess)))
            except ValueError as e:
                errors.append(str(e))

    # Session example
    with tf.Session(graph=g2) as sess:
        values.append(round(float(c2.eval(session=sess)), 2))
        try:
            values.append(int(c1.eval(session=sess)))
        except ValueError as e:
            errors.append(str(e))
    return values, errors


if __name__ == "__main__":
    values, errors = example()
    print(json.dumps({"values": values, "errors": errors}))
