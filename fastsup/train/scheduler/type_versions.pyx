"""Notices that a class was changed while the program runs, at the cost of a comparison for each class."""

from cpython.object cimport PyObject
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    /* CPython gives a type a new number when it or one of its bases has changed; 0 means that it has none now. */
    #define fs_type_version(type) (((PyTypeObject *)(type))->tp_version_tag)
    """
    unsigned int fs_type_version(PyObject* type) noexcept


cdef class TypeVersions:
    """The versions that some classes have now."""

    def __cinit__(self, types):
        self.types = list(dict.fromkeys(types))
        self.versions = <unsigned int*> malloc(max(len(self.types), 1) * sizeof(unsigned int))
        if self.versions is NULL:
            raise MemoryError()
        for i, kind in enumerate(self.types):
            # Looking something up makes CPython give the type a number.
            getattr(kind, "after_run", None)
            self.versions[i] = fs_type_version(<PyObject*> kind)

    def __dealloc__(self):
        free(self.versions)

    cdef bint changed(self) noexcept:
        """Whether one of the classes isn't what it was; also when that can't be told."""
        cdef Py_ssize_t i
        cdef unsigned int version
        for i in range(len(self.types)):
            version = fs_type_version(<PyObject*> self.types[i])
            if version != self.versions[i] or version == 0:
                return True
        return False
