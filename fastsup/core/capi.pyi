from typing import Any

C_API: Any
