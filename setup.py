"""Compiles the step loop. What the package is stands in pyproject.toml.

Switches, as environment variables set to 1: DEBUG (assertions, no optimisation), SANITIZE (address and undefined
behaviour), COVERAGE (line tracing in the Cython code, gcov in the C code), CORE_ONLY (nothing that needs TensorFlow).
"""

import os
import shutil
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

SWITCHES = ("DEBUG", "SANITIZE", "COVERAGE", "CORE_ONLY")
DEBUG, SANITIZE, COVERAGE, CORE_ONLY = (os.environ.get(name) == "1" for name in SWITCHES)

compile_args = ["-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
compile_args += ["-O0", "-g"] if DEBUG else ["-O3", "-g0"]
link_args = []
macros = [] if DEBUG else [("NDEBUG", "1")]
if SANITIZE:
    sanitizers = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
    compile_args += sanitizers
    link_args += sanitizers
if COVERAGE:
    macros += [("CYTHON_TRACE", "1")]
    compile_args += ["--coverage"]
    link_args += ["--coverage"]

# The C files hold no state but a constant of the clock, so each extension that needs them links its own copy. They are
# compiled once, before all extensions: these may be compiled at the same time.
c_sources = sorted(str(path) for path in Path("csrc").glob("*.c"))
# The C++ binding to TensorFlow's runtime is C++, and holds state: this one extension uses it. It needs no
# libstdc++ newer than that of manylinux_2_17.
cpp_args = ["-std=c++17", "-fno-sized-deallocation", *(arg for arg in compile_args if arg != "-std=c11")]
cpp_library = "-lc++" if sys.platform == "darwin" else "-lstdc++"
WITHOUT_TENSORFLOW = ("fastsup/core/", "fastsup/common/", "fastsup/profile/", "fastsup/steps/rows.pyx")
BINDING = Path("fastsup/eager/eager_session.pyx")
headers = sorted(str(path) for folder in ("csrc", "fastsup/include") for path in Path(folder).rglob("*.h"))


def library(name, sources, flags):
    """A static library that the extensions link where they use it."""
    settings = {"sources": sources, "obj_deps": {"": headers}, "include_dirs": ["csrc", "fastsup/include"]}
    return name, {**settings, "macros": macros, "cflags": [*flags, "-fPIC"]}


extensions = [
    Extension(
        ".".join(path.with_suffix("").parts),
        [str(path)],
        include_dirs=["csrc", "fastsup/include"],
        define_macros=macros,
        extra_compile_args=compile_args,
        extra_link_args=[*link_args, cpp_library] if path == BINDING else link_args,
        # With the C files: an extension isn't linked anew for a library that has changed.
        depends=[*headers, *c_sources, "csrc/eager_session.cc"] if path == BINDING else [*headers, *c_sources],
    )
    for path in sorted(Path("fastsup").rglob("*.pyx"))
    if not CORE_ONLY or str(path).startswith(WITHOUT_TENSORFLOW)
]


class BuildWithC(build_ext):
    """Brings the C files up to date first: an extension over an older struct of theirs would crash.

    Extensions are compiled at the same time, unless `--parallel` says how many.
    """

    def finalize_options(self):
        super().finalize_options()
        if self.parallel is None:
            # The largest extension takes gcc 140 MB and three seconds.
            self.parallel = min(os.cpu_count() or 1, 8)

    def run(self):
        self.run_command("build_clib")
        super().run()


class BuildWithPages(build_py):
    """Puts the pages of the documentation into the package: `python -m fastsup docs` shows them."""

    def run(self):
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib, "fastsup", "docs")
            folder.mkdir(parents=True, exist_ok=True)
            for page in sorted(Path("docs").glob("*.md")):
                shutil.copy(page, folder)


setup(
    cmdclass={"build_ext": BuildWithC, "build_py": BuildWithPages},
    libraries=[library("fastsup_c", c_sources, compile_args)]
    + ([] if CORE_ONLY else [library("fastsup_cc", ["csrc/eager_session.cc"], cpp_args)]),
    ext_modules=cythonize(
        extensions,
        annotate=DEBUG,
        gdb_debug=DEBUG,
        compiler_directives={
            "language_level": 3,
            "binding": True,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
            "linetrace": COVERAGE,
            "always_allow_keywords": True,
            "auto_pickle": False,
            "autotestdict": False,
        },
    ),
)
