"""Importing fastsup and its core takes milliseconds and leaves TensorFlow out. Run on its own, in a fresh process."""

import sys
import time

started = time.perf_counter()
import fastsup  # noqa: E402
import fastsup.core  # noqa: E402

took = time.perf_counter() - started
loaded = sorted(name for name in ("tensorflow", "numpy", "keras") if name in sys.modules)
print(f"import fastsup, fastsup.core: {took * 1000:.1f} ms, from {fastsup.__file__}")
print(f"loaded alongside it: {', '.join(loaded) or 'nothing'}")
sys.exit(1 if loaded else 0)
