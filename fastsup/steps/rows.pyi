from typing import Any

import numpy as np
from numpy.typing import NDArray

def take_rows(to: NDArray[np.uint8], source: NDArray[np.uint8], rows: NDArray[np.int64]) -> Any: ...
