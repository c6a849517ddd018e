"""Two hundred functions, each called five times: nothing here pays for lifting."""

import tensorflow as tf

total = tf.Variable(0.0)
for number in range(200):

    @tf.function
    def add(x):
        total.assign_add(x * number)
        return total + 1.0

    for _ in range(5):
        result = add(tf.constant(0.5))
print("total", float(result).hex())
