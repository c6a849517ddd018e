"""Copies rows of a batch."""

from libc.stdint cimport int64_t


cdef extern from "rows.h":
    void fs_take_rows(char* to, const char* source, size_t row_bytes, const int64_t* rows, size_t n) nogil


def take_rows(unsigned char[:, ::1] to, const unsigned char[:, ::1] source, const int64_t[::1] rows):
    """Copies rows from one array to another.

    Args:
      to: destination, as bytes, of shape [number of rows to take, bytes per row].
      source: source, as bytes, of shape [number of rows, bytes per row].
      rows: numbers of the rows to take, int64, of shape [number of rows to take].

    Raises:
      ValueError: If the shapes don't match, or a row doesn't exist.
    """
    cdef Py_ssize_t i
    cdef int64_t count = source.shape[0]
    cdef bint exist = True
    if to.shape[0] != rows.shape[0] or to.shape[1] != source.shape[1]:
        raise ValueError(
            f"{rows.shape[0]} rows of {source.shape[1]} bytes don't fit into {to.shape[0]} rows of {to.shape[1]} bytes."
        )
    if rows.shape[0] == 0 or to.shape[1] == 0:
        return
    with nogil:
        for i in range(rows.shape[0]):
            exist &= 0 <= rows[i] < count
        if exist:
            fs_take_rows(<char*> &to[0, 0], <const char*> &source[0, 0], to.shape[1], &rows[0], rows.shape[0])
    if not exist:
        raise ValueError(f"rows must lie between 0 and {count - 1}, got {min(rows)} to {max(rows)}.")
