"""Functions in C that come as capsules: the capsule's name is the function's signature, as SciPy and Cython have it."""

from cpython.pycapsule cimport PyCapsule_CheckExact, PyCapsule_GetName, PyCapsule_GetPointer


def normal(signature):
    """A signature without what C doesn't care about: spaces, and on which side of the type `const` stands."""
    return "".join(signature.replace("const fs_loop", "fs_loop const").split())


cdef void* function_in(object capsule, str what, str signature) except NULL:
    """The function in a capsule.

    Args:
      capsule: the capsule.
      what: what the function is to be used as, for the message.
      signature: the signature that it must have.

    Raises:
      TypeError: it is no capsule, or its name is another signature.
    """
    if not PyCapsule_CheckExact(capsule):
        raise TypeError(f"{what} in C must be a capsule named {signature!r}, got {capsule!r}")
    cdef const char* name = PyCapsule_GetName(capsule)
    given = None if name is NULL else name.decode("utf-8", "replace")
    if given is None or normal(given) != normal(signature):
        raise TypeError(
            f"{what} in C has the signature {signature!r}, the capsule says {given!r}. "
            "Compile it with that signature (fastsup.h), and name the capsule by it."
        )
    return PyCapsule_GetPointer(capsule, name)
