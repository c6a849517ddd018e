"""The routes of one function: which lifted graph the calls of a pattern go to."""

import weakref

from cpython.object cimport PyObject

from fastsup.eager.argument_pattern cimport CallTensors, digest_of_call
from fastsup.eager.call_pattern cimport CallPattern
from fastsup.eager.lifted_step cimport LiftedStep

cdef enum:
    # Routes of one digest that are kept.
    MOST_OF_ONE_DIGEST = 64
    # A full table takes one of this many new routes, so that it follows a program that changes its shapes, and costs
    # nothing where a program has more shapes than the table has room for.
    REFUSED_IN_TURN = 16


cdef class Route:
    """Where the calls of one pattern go.

    Args:
      pattern: the CallPattern.
      step: the LiftedStep; None if TensorFlow runs these calls.
      boxed: list of pairs of a Box and the tensor that it holds in these calls.
      entry: what the function knows of the trace, if it isn't lifted and may be later; else None.
    """

    def __init__(self, CallPattern pattern, LiftedStep step, list boxed, entry=None):
        self.pattern = pattern
        self.step = step
        self.boxed = boxed
        self.entry = entry
        self.watched = tuple([weakref.ref(known(), lambda gone: release(boxed)) for known in pattern.objects if boxed])

    cdef bint may_be_taken(self) except -1:
        """Whether a call can still fit its pattern: all objects of the pattern are there."""
        for known in self.pattern.objects:
            if known() is None:
                return False
        return True


cdef class RouteTable:
    """The routes of one function. A full table forgets those that were used the longest time ago.

    A call of one shape finds its route by a number, its digest, whatever the count of routes is. Routes with open
    dimensions, of which each trace has few, are compared one by one.

    Args:
      most: the most routes that it keeps of each kind.
    """

    def __init__(self, Py_ssize_t most):
        self.most = most
        self.by_digest = {}
        self.open_routes = ()
        self.kinds = {}
        self.look_at = MOST_OF_ONE_DIGEST

    def __len__(self):
        return self.count + len(self.open_routes)

    cdef Route find(self, PyObject* scope, tuple args, dict kwargs, CallTensors* tensors, list kept):
        """The route of a call in a scope of devices, or None. Writes the handles of its tensors: see CallPattern.fits."""
        cdef Route route
        cdef Py_ssize_t i
        cdef tuple routes
        if self.count:
            digest = digest_of_call(args, kwargs, self.kinds)
            routes = self.by_digest.get(digest, ())
            for i in range(len(routes) - 1, -1, -1):
                route = routes[i]
                if route.pattern.is_of(scope) and route.pattern.fits(args, kwargs, tensors, kept):
                    # Another thread, or a comparison of two values, may have changed the table.
                    now = self.by_digest.pop(digest, None)
                    if now is not None:
                        self.by_digest[digest] = now
                    return route
        routes = self.open_routes
        for i in range(len(routes) - 1, -1, -1):
            route = routes[i]
            if route.pattern.is_of(scope) and route.pattern.fits(args, kwargs, tensors, kept):
                return route
        return None

    def takes_more(self):
        """Whether a new route is worth making: if there is room, or now and then."""
        if self.count < self.most and len(self.open_routes) < self.most:
            return True
        self.refused += 1
        return self.refused % REFUSED_IN_TURN == 0

    def add(self, Route route, tuple args, dict kwargs):
        """Adds a route.

        Args:
          route: the route.
          args: the positional arguments of a call that takes it.
          kwargs: the keyword arguments.
        """
        if route.pattern.is_open:
            self.open_routes = (*_living(self.open_routes)[-(self.most - 1):], route)
            return
        digest = digest_of_call(args, kwargs, self.kinds)
        routes = self.by_digest.pop(digest, ())
        kept = (*_living(routes)[-(MOST_OF_ONE_DIGEST - 1):], route)
        self.by_digest[digest] = kept
        self.count += len(kept) - len(routes)
        if self.count >= self.look_at:
            self.keep(_living)
            self.look_at = max(2 * self.count, MOST_OF_ONE_DIGEST)
        while self.count > self.most and self.by_digest:
            self.count -= len(self.by_digest.pop(next(iter(self.by_digest))))

    def drop(self, step=None, entry=None):
        """Forgets the routes to a step, or those of an entry; all routes if neither is given."""
        def others(routes):
            if step is None and entry is None:
                return ()
            return tuple([
                route for route in routes
                if not (step is not None and (<Route>route).step is step)
                and not (entry is not None and (<Route>route).entry is entry)
            ])

        self.keep(others)
        self.open_routes = others(self.open_routes)

    def keep(self, chosen):
        """Keeps, of the routes of each digest, those that a function chooses."""
        # Objects that go meanwhile may let another thread run.
        kept = {digest: chosen(routes) for digest, routes in list(self.by_digest.items())}
        self.by_digest = {digest: routes for digest, routes in kept.items() if routes}
        self.count = sum([len(routes) for routes in self.by_digest.values()])


cdef tuple _living(tuple routes):
    return tuple([route for route in routes if (<Route>route).may_be_taken()])


def release(list boxed):
    """Empties boxes of tensors that no later call needs, and the list of them.

    Args:
      boxed: list of pairs of a Box and a tensor.
    """
    pairs = list(boxed)
    boxed.clear()
    for box, tensor in pairs:
        box.release(tensor)
