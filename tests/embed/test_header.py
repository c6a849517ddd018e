"""The C interface itself: what must not change unnoticed, and what an extension of another version is told."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from processes import Processes

import fastsup

INCLUDE = Path(fastsup.get_include())
# Of fastsup/loop.h and fastsup.h, without comments and white space, by ABI version and revision.
HASHES = {(1, 0): "6dace06370ff30e8"}


def declarations() -> str:
    text = "".join((INCLUDE / name).read_text() for name in ("fastsup/loop.h", "fastsup.h"))
    return re.sub(r"\s+", "", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))


def number(name: str) -> int:
    match = re.search(rf"#define {name} (\d+)", (INCLUDE / "fastsup.h").read_text())
    assert match
    return int(match[1])


def test_the_interface_is_what_its_version_says() -> None:
    version = number("FASTSUP_ABI_VERSION"), number("FASTSUP_ABI_REVISION")
    digest = hashlib.sha256(declarations().encode()).hexdigest()[:16]
    assert HASHES.get(version) == digest, (
        f"The C interface has changed. If something was added at the end, raise FASTSUP_ABI_REVISION; if anything else "
        f"was changed, raise FASTSUP_ABI_VERSION. Then put {digest!r} in here for it."
    )


@pytest.mark.parametrize(
    ("compiler", "flags", "source"),
    [
        ("gcc", ["-std=c11", "-pedantic"], "#include <fastsup.h>\n"),
        ("gcc", ["-std=c11", "-pedantic"], "#include <fastsup/loop.h>\n#include <fastsup.h>\n"),
        ("g++", ["-std=c++17"], "#include <fastsup.h>\n"),
    ],
)
def test_compiles_without_a_warning(
    compiler: str, flags: list[str], source: str, processes: Processes, tmp_path: Path
) -> None:
    assert shutil.which(compiler), f"no {compiler} here"
    file = tmp_path / ("user.cc" if compiler == "g++" else "user.c")
    file.write_text(source + "const fs_api *api(void) { return fastsup_import(); }\n")
    compile_it(processes, compiler, [*flags, "-isystem", sysconfig.get_path("include")], file)


def test_the_part_for_c_needs_no_python(processes: Processes, tmp_path: Path) -> None:
    file = tmp_path / "library.c"
    file.write_text(
        "#include <fastsup/loop.h>\n"
        "int step(fs_loop *loop, void *context) { loop->result = *(double *)context; return FS_GO_ON; }\n"
        "fs_step_fn checked = step;\n"
        "#ifdef Py_PYTHON_H\n#error Python\n#endif\n"
    )
    compile_it(processes, "gcc", ["-std=c11", "-pedantic"], file)


def compile_it(processes: Processes, compiler: str, flags: list[str], file: Path) -> None:
    strict = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    result = processes.run(compiler, *flags, *strict, f"-I{INCLUDE}", file)
    assert result.returncode == 0, result.stderr


OTHER_VERSION = """
#include <fastsup.h>
static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT, .m_name = "other", .m_size = -1};
PyMODINIT_FUNC PyInit_other(void) { return fastsup_import() ? PyModule_Create(&definition) : NULL; }
"""


@pytest.mark.parametrize(
    ("version", "revision", "remedy"),
    [
        (0, 0, "Compile the module against this fastsup."),
        (2, 0, "Install a newer fastsup, or compile the module against this one."),
        (1, 7, "Install a newer fastsup, or compile the module against this one."),
    ],
)
def test_a_module_of_another_version_is_refused(
    version: int, revision: int, remedy: str, processes: Processes, tmp_path: Path
) -> None:
    header = (INCLUDE / "fastsup.h").read_text()
    header = header.replace("FASTSUP_ABI_VERSION 1", f"FASTSUP_ABI_VERSION {version}")
    header = header.replace("FASTSUP_ABI_REVISION 0", f"FASTSUP_ABI_REVISION {revision}")
    (tmp_path / "fastsup.h").write_text(header)
    (tmp_path / "other.c").write_text(OTHER_VERSION)
    module = tmp_path / f"other{sysconfig.get_config_var('EXT_SUFFIX')}"
    python = sysconfig.get_path("include")
    folders = [f"-I{folder}" for folder in (tmp_path, INCLUDE, python)]
    processes.run("gcc", "-shared", "-fPIC", *folders, "-o", module, "other.c", cwd=tmp_path, check=True)
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(ImportError) as caught:
            __import__("other")
    finally:
        sys.path.remove(str(tmp_path))
    assert str(caught.value) == (
        f"this module was compiled for fastsup's C ABI {version}.{revision}, but fastsup {fastsup.__version__} has C "
        f"ABI 1.0. {remedy}"
    )
