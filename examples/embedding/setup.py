"""Builds the two modules: python setup.py build_ext --inplace"""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

import fastsup

include = [fastsup.get_include()]
# Where Cython finds fastsup's .pxd files, of an editable install too, which isn't on sys.path.
packages = [str(Path(fastsup.__file__).parents[1])]
setup(
    name="fastsup-embedding-example",
    ext_modules=[
        Extension("sgd", ["sgd.c"], include_dirs=include, extra_compile_args=["-std=c11"]),
        *cythonize([Extension("best", ["best.pyx"], include_dirs=include)], include_path=packages, language_level=3),
    ],
)
