"""Two extension modules of somebody else's, built against the installed fastsup."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

import fastsup

flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2"]
links = []
if os.environ.get("SANITIZE") == "1":
    links = ["-fsanitize=address,undefined"]
    flags += [*links, "-fno-omit-frame-pointer"]


def extension(name: str, source: str, *more: str) -> Extension:
    return Extension(
        name,
        [source],
        include_dirs=[fastsup.get_include()],
        extra_compile_args=[*flags, *more],
        extra_link_args=links,
    )


setup(
    name="embed",
    ext_modules=[
        extension("embed_c", "embed_c.c", "-Wno-cast-function-type"),
        # What Cython writes isn't free of everything that -Wextra finds.
        *cythonize(
            [extension("embed_cython", "embed_cython.pyx", "-Wno-unused-parameter", "-Wno-missing-field-initializers")],
            language_level=3,
        ),
    ],
)
