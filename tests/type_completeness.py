"""How many of the public names have a type that every type checker knows, as pyright counts them. Fails below FLOOR.

What is missing comes from TensorFlow, which has no types: base classes, and the names that are TensorFlow's own.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FLOOR = 94.5

spec = importlib.util.find_spec("fastsup")
if spec is None or spec.origin is None:
    sys.exit("fastsup isn't installed.")
package = Path(spec.origin).parent
# With the package's folder on the path, pyright finds one that is installed in place too. It has its warnings switched
# off, since it would look for a newer version of itself first; and an empty folder, since it would read its settings.
environment = {**os.environ, "PYTHONPATH": str(package.parent), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
with tempfile.TemporaryDirectory() as folder:
    done = subprocess.run(
        [*command, "--verifytypes", "fastsup", "--ignoreexternal"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
try:
    report = json.loads(done.stdout)["typeCompleteness"]
except (ValueError, KeyError):
    sys.exit(f"pyright has ended with status {done.returncode}, without a report:\n{done.stdout}")
if Path(report["packageRootDirectory"]).resolve() != package.resolve():
    sys.exit(f"pyright has read {report['packageRootDirectory'] or 'nothing'} in the place of {package}.")

score = 100 * report["completenessScore"]
counts = report["exportedSymbolCounts"]
print(
    f"Type completeness score: {score:.2f}% (at least {FLOOR}%). {sum(counts.values()):,} public names in {package}, "
    f"{counts['withUnknownType']} unknown, {counts['withAmbiguousType']} ambiguous"
)
if score < FLOOR:
    for symbol in report["symbols"]:
        for found in symbol["diagnostics"]:
            if symbol["isExported"] and found["severity"] == "error":
                print(f"{symbol['name']}: {found['message']}")
    sys.exit(1)
