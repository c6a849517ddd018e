"""Functions that are recorded as phases of what calls them, and as nothing outside of what is recorded."""

import functools

from fastsup.profile.recording.recorder_probe cimport RecorderProbe, recorded_here
from fastsup.profile.recording.statistics import SESSION
from fastsup.profile.recording.statistics cimport SpanStats


def timed(function, str phase, detail_of=None, bint of_session=False):
    """Any function: a phase of the callback that calls it, or of the session itself. Once if it calls itself.

    Args:
      function: the function.
      phase: name of the phase.
      detail_of: function that gets the phase around the call, or "", and then the same arguments, and returns the detail
        of the row; None for none.
      of_session: True for a phase of the session, also within a callback.
    """
    @functools.wraps(function)
    def timed_function(*args, **kwargs):
        cdef RecorderProbe here = recorded_here()
        cdef SpanStats around
        if here is None:
            return function(*args, **kwargs)
        around = here.recorder.enclosing_span()
        if around is not None and around.phase == phase:
            return function(*args, **kwargs)
        owner = SESSION if around is None or of_session else around.owner
        detail = "" if detail_of is None else detail_of("" if around is None else around.phase, *args, **kwargs)
        return here.call(here.recorder.stats_of(here.session, owner, phase, detail), function, args, kwargs)

    return timed_function
