"""Carries TensorFlow's GPU build to a machine that has a GPU and no network, in pieces of bounded size.

On a machine with a network, of the same Python version and a compiler:

    python tests/gpu/carry.py pack pieces            # downloads wheels, builds fastsup's, cuts them: pieces/0000, ...

On the other machine, with the folder of the pieces and this file:

    python carry.py unpack pieces venv               # a virtual environment with all of it, or an error
    venv/bin/python -m pytest -m gpu                 # in a checkout of fastsup

TensorFlow opens some twelve CUDA libraries. Those that the tests' operations call (`CALLED`) are carried. The others
are only opened: `unpack` makes empty libraries of their names, which needs a C compiler. `pack --all` carries them
too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

PIECE_MEGABYTES = 60
MANIFEST = "manifest.json"
# Packages of libraries that are called.
CALLED = ["nvidia-cuda-runtime-cu12", "nvidia-cublas-cu12", "nvidia-cudnn-cu12", "nvidia-cuda-nvcc-cu12"]
# Libraries that TensorFlow opens by name, and calls for FFTs, linear algebra, sparse matrices and several GPUs only.
OPENED = {
    "cufft": "libcufft.so.11",
    "curand": "libcurand.so.10",
    "cusolver": "libcusolver.so.11",
    "cusparse": "libcusparse.so.12",
    "cupti": "libcupti.so.12",
    "nccl": "libnccl.so.2",
    "nvjitlink": "libnvJitLink.so.12",
}
ROOT = Path(__file__).resolve().parents[2]


def pieces_of(path: Path, size: int) -> Iterator[bytes]:
    """The content of a file in pieces of at most `size` bytes."""
    with path.open("rb") as file:
        while piece := file.read(size):
            yield piece


def cut(files: list[Path], folder: Path, size: int) -> None:
    """Cuts files into numbered pieces, and writes the manifest that `join` reads.

    Args:
      files: the files, each of another name.
      folder: where the pieces are written; made if need be.
      size: bytes of the largest piece.
    """
    folder.mkdir(parents=True, exist_ok=True)
    manifest = []
    number = 0
    for file in files:
        pieces = []
        for piece in pieces_of(file, size):
            name = f"{number:04d}"
            (folder / name).write_bytes(piece)
            pieces.append({"name": name, "sha256": hashlib.sha256(piece).hexdigest()})
            number += 1
        manifest.append({"name": file.name, "pieces": pieces})
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def join(folder: Path, target: Path) -> list[Path]:
    """Puts the files of a manifest together again.

    Args:
      folder: the folder of the pieces.
      target: where the files are written.

    Returns:
      The files.

    Raises:
      ValueError: a piece is missing, or isn't what was cut.
    """
    joined = []
    for entry in json.loads((folder / MANIFEST).read_text(encoding="utf-8")):
        path = target / entry["name"]
        with path.open("wb") as file:
            for piece in entry["pieces"]:
                source = folder / piece["name"]
                if not source.exists():
                    raise ValueError(f"the piece {source} of {entry['name']} is missing: carry it again.")
                content = source.read_bytes()
                if hashlib.sha256(content).hexdigest() != piece["sha256"]:
                    raise ValueError(f"the piece {source} of {entry['name']} is damaged: carry it again.")
                file.write(content)
        joined.append(path)
    return joined


def make_stubs(folder: Path, names: dict[str, str]) -> None:
    """Makes empty shared libraries that can be opened and have nothing to call.

    Args:
      folder: where they are written.
      names: the file name of each, which is also its soname.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "nothing.c"
    source.write_text("int fastsup_stub;\n", encoding="utf-8")
    for soname in names.values():
        command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", str(folder / soname), str(source)]
        subprocess.run(command, check=True)


def pack(options: argparse.Namespace) -> None:
    """Downloads the wheels, builds fastsup's, and cuts them."""
    pip = [sys.executable, "-m", "pip"]
    with tempfile.TemporaryDirectory() as scratch:
        wheels = Path(scratch)
        # Without the extra [and-cuda], which would bring every library.
        wanted = [
            f"tensorflow=={options.tensorflow}",
            "pytest",
            "pytest-timeout",
            "pytest-benchmark",
            "rich",
            "hypothesis",
        ]
        subprocess.run([*pip, "download", "--quiet", "--dest", scratch, *wanted], check=True)
        cuda = ["tensorflow[and-cuda]==" + options.tensorflow] if options.all else CALLED
        # The versions that this TensorFlow was built for: those of its extra.
        constraints = wheels / "constraints.txt"
        constraints.write_text("\n".join(cuda_requirements(wheels)) + "\n", encoding="utf-8")
        subprocess.run(
            [*pip, "download", "--quiet", "--no-deps", "--dest", scratch, "--constraint", str(constraints), *cuda],
            check=True,
        )
        constraints.unlink()
        subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", scratch, str(ROOT)], check=True)
        cut(sorted(wheels.glob("*.whl")), options.folder, options.megabytes << 20)
    print(f"{len(list(options.folder.iterdir())) - 1} pieces and {MANIFEST} in {options.folder}")


def cuda_requirements(wheels: Path) -> list[str]:
    """What the extra [and-cuda] of the TensorFlow wheel in a folder requires, as lines of a constraints file."""
    with zipfile.ZipFile(next(wheels.glob("tensorflow-*.whl"))) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    required = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: nvidia")]
    return [line.split(";")[0].strip() for line in required]


def unpack(options: argparse.Namespace) -> None:
    """Makes the virtual environment."""
    venv.create(options.venv, with_pip=True)
    python = options.venv / "bin" / "python"
    with tempfile.TemporaryDirectory() as scratch:
        files = join(options.folder, Path(scratch))
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", *map(str, files)], check=True
        )
    packages = next((options.venv / "lib").glob("python3*")) / "site-packages"
    carried = {path.name for path in packages.glob("nvidia/*/lib/*.so*")}
    missing = {name: soname for name, soname in OPENED.items() if soname not in carried}
    # TensorFlow looks for each library in the folder of its package, alongside its own.
    for name, soname in missing.items():
        make_stubs(packages / "nvidia" / name / "lib", {name: soname})
    command = [python, "-c", "import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))"]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def main() -> None:
    """Packs or unpacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    packing = commands.add_parser("pack", help="download and cut")
    packing.add_argument("folder", type=Path, help="where the pieces are written")
    packing.add_argument("--tensorflow", default="2.21.0", metavar="VERSION", help="TensorFlow's version (2.21.0)")
    packing.add_argument("--megabytes", type=int, default=PIECE_MEGABYTES, help=f"of a piece ({PIECE_MEGABYTES})")
    packing.add_argument("--all", action="store_true", help="carry every CUDA library, and make no empty ones")
    packing.set_defaults(act=pack)
    unpacking = commands.add_parser("unpack", help="join and install")
    unpacking.add_argument("folder", type=Path, help="the folder of the pieces")
    unpacking.add_argument("venv", type=Path, help="the virtual environment to make")
    unpacking.set_defaults(act=unpack)
    options = parser.parse_args()
    options.act(options)


if __name__ == "__main__":
    main()
