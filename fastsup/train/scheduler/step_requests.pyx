"""What a hook asks for that holds the global step, which is known without the run."""

from fastsup.runtime.runner cimport StepCount


cdef class StepRequest:
    """Fetches with the global step among them: the step alone, or a list, a tuple or a dictionary of fetches."""

    cdef object build(self, object step, list values):
        """The result.

        Args:
          step: the global step.
          values: those of `rest`, if there is something to fetch.
        """
        cdef list whole
        cdef Py_ssize_t n = 0
        if self.kind is None:
            return step
        whole = []
        for is_step in self.is_step:
            if is_step:
                whole.append(step)
            else:
                whole.append(values[n])
                n += 1
        if self.kind is dict:
            return dict(zip(self.keys, whole))
        return tuple(whole) if self.kind is tuple else whole


cdef StepRequest request_for_step(StepCount count, object fetches, int fed):
    """What is left to fetch where the step is known; None where the step isn't asked for in a form that allows for it.

    Args:
      count: the session's count of the step.
      fetches: what a hook requests.
      fed: what of the step the run is fed, as `StepCount.fed_of` says: that is fetched in the run.
    """
    cdef StepRequest request = StepRequest.__new__(StepRequest)
    cdef object kind = type(fetches)
    cdef list rest = []
    if count.is_step(fetches, fed):
        return request
    if kind is not dict and kind is not list and kind is not tuple:
        return None
    request.kind = kind
    request.is_step = []
    if kind is dict:
        request.keys = list(fetches)
        fetches = list((<dict> fetches).values())
    for fetch in fetches:
        if fetch is None:
            return None  # The run says what is wrong with that.
        # Not `in`, which compares tensors.
        is_step = count.is_step(fetch, fed)
        request.is_step.append(is_step)
        if not is_step:
            rest.append(fetch)
    if len(rest) == len(request.is_step):
        return None
    request.rest = rest or None
    return request
