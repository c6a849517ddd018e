"""Context managers that record steps and parts of them, for code in Python that is seldom called."""

cimport cython
from cpython.ref cimport PyObject

from fastsup.core.probe cimport Probe, fs_scope
from fastsup.profile.recording.spans cimport fs_scope_begin, fs_scope_end, fs_span_enter, fs_thread_trace
from fastsup.profile.recording.statistics cimport Recording, SpanStats, trace_of_this_thread


@cython.no_gc_clear
cdef class StepScope:
    """A context manager that records a step, or work alongside the steps."""

    cdef Recording recorder
    cdef Probe probe
    cdef fs_scope scope
    cdef bint is_step
    cdef bint entered

    def __init__(self, Recording recorder not None, Probe probe not None, is_step):
        self.recorder = recorder
        self.probe = probe
        self.is_step = is_step

    def __enter__(self):
        if self.entered:
            raise RuntimeError("It is under way already.")
        fs_scope_begin(&self.scope, trace_of_this_thread(self.recorder), <PyObject*> self.probe, self.is_step)
        self.entered = True

    def __exit__(self, *error):
        self.leave()

    def __dealloc__(self):
        self.leave()

    cdef void leave(self) noexcept:
        if self.entered:
            self.entered = False
            fs_scope_end(&self.scope)


@cython.no_gc_clear
cdef class Span(StepScope):
    """A context manager that records a span. Outside a step, the span is work alongside the steps."""

    cdef SpanStats stats

    def __init__(self, Recording recorder not None, Probe probe not None, SpanStats stats not None):
        StepScope.__init__(self, recorder, probe, False)
        self.stats = stats

    def __enter__(self):
        StepScope.__enter__(self)
        fs_span_enter(<fs_thread_trace*> self.scope.trace, &self.stats.c)
