"""What the peers train, in NumPy: data, sizes and first values that all of them share."""

import numpy as np

__all__ = [
    "BATCH",
    "BUCKETS",
    "CATEGORIES",
    "EMBEDDING",
    "MATMULS",
    "SIZE",
    "WORKLOADS",
    "digits",
    "glorot",
    "wide_and_deep",
]

# tiny: gradient descent on ten numbers. digits: images of 8 x 8, a hidden layer, batches of 32. wide_and_deep: four
# categories and eight numbers, batches of 128, Adagrad. one_ms, twenty_ms: so many products of 256 x 256 matrices. The
# gradient is their result: a loop that needs no loss can't leave them out.
WORKLOADS = ("tiny", "digits", "wide_and_deep", "one_ms", "twenty_ms")
MATMULS = {"one_ms": 8, "twenty_ms": 160}
SIZE = 256
BATCH = {"digits": 32, "wide_and_deep": 128}
CATEGORIES, BUCKETS, EMBEDDING, NUMBERS = 4, 1000, 8, 8
ROWS = 4096


def digits():
    """Images, float32 of [4096, 64], and their classes, int32 of [4096]: noise around ten centres."""
    random = np.random.default_rng(0)
    classes = random.integers(0, 10, ROWS).astype(np.int32)
    centres = random.normal(size=(10, 64))
    return (centres[classes] + random.normal(size=(ROWS, 64))).astype(np.float32), classes


def wide_and_deep():
    """Categories, int32 of [4096, 4]; numbers, float32 of [4096, 8]; labels, float32 of [4096]."""
    random = np.random.default_rng(0)
    categories = random.integers(0, BUCKETS, (ROWS, CATEGORIES)).astype(np.int32)
    numbers = random.normal(size=(ROWS, NUMBERS)).astype(np.float32)
    labels = (numbers.sum(1) + random.normal(size=ROWS) > 0).astype(np.float32)
    return categories, numbers, labels


def glorot(rows, columns, seed):
    """First values of a layer's weights, float32 of [rows, columns]."""
    limit = np.sqrt(6.0 / (rows + columns))
    return np.random.default_rng(seed).uniform(-limit, limit, (rows, columns)).astype(np.float32)
