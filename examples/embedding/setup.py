"""Builds the two modules: python setup.py build_ext --inplace"""

from Cython.Build import cythonize
from setuptools import Extension, setup

import fastsup

include = [fastsup.get_include()]
setup(
    name="fastsup-embedding-example",
    ext_modules=[
        Extension("sgd", ["sgd.c"], include_dirs=include, extra_compile_args=["-std=c11"]),
        *cythonize([Extension("best", ["best.pyx"], include_dirs=include)], language_level=3),
    ],
)
