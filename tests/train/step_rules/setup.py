"""The rules by which the global step makes hooks due, compiled for the tests."""

from Cython.Build import cythonize
from setuptools import Extension, setup

import fastsup

setup(
    name="step_rules",
    ext_modules=cythonize(
        [Extension("step_rules", ["step_rules.pyx"], include_dirs=[fastsup.get_include()])], language_level=3
    ),
)
