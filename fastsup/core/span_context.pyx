"""Context managers that record steps and spans, for code in Python that is seldom called."""

cimport cython
from cpython.ref cimport PyObject

from fastsup.core.recording cimport Recording, SpanStats, trace_of_this_thread
from fastsup.core.spans cimport fs_scope, fs_scope_begin, fs_scope_end, fs_scope_of_thread, fs_span_enter, fs_thread


@cython.no_gc_clear
cdef class StepScope:
    """A context manager that records a step, or work beside the steps."""

    cdef Recording recorder
    cdef fs_scope scope
    cdef bint is_step
    cdef bint entered

    def __init__(self, Recording recorder not None, is_step):
        self.recorder = recorder
        self.is_step = is_step

    def __enter__(self):
        if self.entered:
            raise RuntimeError("It is under way already.")
        cdef fs_scope* around = fs_scope_of_thread(self.recorder.log.open_scopes[0], fs_thread())
        fs_scope_begin(&self.scope, trace_of_this_thread(self.recorder), <PyObject*> self.recorder, self.is_step)
        # Within a step of the same recorder, it belongs to the same session.
        self.scope.caller = 0 if around is NULL or around.recorder is not <PyObject*> self.recorder else around.caller
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
    """A context manager that records a span. Outside a step, the span is work beside the steps."""

    cdef SpanStats stats

    def __init__(self, Recording recorder not None, SpanStats stats not None):
        StepScope.__init__(self, recorder, False)
        self.stats = stats

    def __enter__(self):
        StepScope.__enter__(self)
        fs_span_enter(self.scope.trace, &self.stats.c)


cdef class EmptyContext:
    """A context manager that does nothing, at less cost than `contextlib.nullcontext`."""

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


empty_context = EmptyContext()
