"""What one call of `run` or `run_loop` asks for, and how far it is."""

from cython cimport freelist, no_gc
from libc.stdint cimport INT64_MAX


@no_gc  # One is made for each step, and nothing that it holds refers to it.
@freelist(8)
cdef class RunRequest:
    """The arguments of a call and the state of its runs. Made by `new_request`."""


cdef RunRequest new_request(object fetches, object feed_dict, object options, object run_metadata):
    cdef RunRequest request = RunRequest.__new__(RunRequest)
    request.fetches = fetches
    request.feed_dict = feed_dict
    request.options = options
    request.run_metadata = run_metadata
    request.most_steps = INT64_MAX
    return request
