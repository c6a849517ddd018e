"""Functions in C, passed in capsules. The capsule's name is the function's signature, as in SciPy and Cython."""

from cpython.pycapsule cimport PyCapsule_CheckExact, PyCapsule_GetName, PyCapsule_GetPointer


def normal(signature):
    """Returns a signature in one form for all spellings that mean the same in C.

    Args:
      signature: the signature, with any spaces, and `const` before or after its type.
    """
    return "".join(signature.replace("const fs_loop", "fs_loop const").split())


cdef void* function_in(object capsule, str role, str signature) except NULL:
    """Returns the function in a capsule.

    Args:
      capsule: the capsule.
      role: the role of the function, for the message: "a hook".
      signature: the signature that it must have.

    Raises:
      TypeError: `capsule` isn't a capsule, or its name is another signature.
    """
    if not PyCapsule_CheckExact(capsule):
        raise TypeError(f"{role} in C must be a capsule named {signature!r}, got {capsule!r}")
    cdef const char* name = PyCapsule_GetName(capsule)
    given = None if name is NULL else name.decode("utf-8", "replace")
    if given is None or normal(given) != normal(signature):
        raise TypeError(
            f"{role} in C has the signature {signature!r}, the capsule says {given!r}. "
            "Compile it with that signature (fastsup.h), and name the capsule by it."
        )
    return PyCapsule_GetPointer(capsule, name)
