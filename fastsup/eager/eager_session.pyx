"""A session over the eager context's devices, called with EagerTensors. See csrc/eager_session.h."""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from cython cimport final
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free, malloc

import ctypes
import os

from tensorflow.python.framework import errors_impl

cdef extern from "eager_session.h" nogil:
    const char* TARGET "FASTSUP_EAGER_TARGET"
    const char* fastsup_eager_symbol(int index)
    const char* DEVICE_MANAGER "FASTSUP_EAGER_DEVICE_MANAGER"
    int fastsup_eager_open(void** addresses, size_t device_manager_size)
    int fastsup_eager_set_context(void* context)
    void* fastsup_eager_take_session()
    void* fastsup_eager_new_handle(int dtype, const int64_t* dimensions, int rank, const void* data, size_t bytes)
    void fastsup_eager_delete_handle(void* handle)
    int fastsup_eager_is_async()
    int fastsup_eager_dtype(void* handle)
    int fastsup_eager_has_shape(void* handle, const int64_t* dimensions, int rank)
    int fastsup_eager_shape(void* handle, int64_t* dimensions)
    void* fastsup_eager_device(const char* name)
    const char* fastsup_eager_memory(void* handle)
    void* fastsup_eager_run(void* session, int64_t callable, void** inputs, int input_count, void** outputs,
                            int output_count, const fastsup_eager_place* places)
    int fastsup_eager_status_code(void* status)
    const char* fastsup_eager_status_message(void* status)
    void fastsup_eager_delete_status(void* status)


cdef extern from "eager_session.h":
    void* fastsup_eager_object_handle(void* object)
    object fastsup_eager_object_from_handle(void* handle)
    object fastsup_eager_object_records_nothing()

    cdef struct fastsup_eager_settings:
        unsigned char is_eager
        PyObject* device_name
        PyObject* op_callbacks

    const fastsup_eager_settings* fastsup_eager_object_settings(void* context)


cdef enum:
    # Maximum number of fetches whose handles stay on the stack.
    FEW_OUTPUTS = 64


SESSION_TARGET = TARGET.decode()


cdef object tensor_of(object array, int dtype):
    """Returns a new EagerTensor with an array's values, in the host's memory.

    Args:
      array: a NumPy array of numbers or booleans.
      dtype: its type, as a number of TensorFlow's DataType.

    Returns:
      The tensor, with a copy of the data. None if the array isn't contiguous, or if buffers or `MOST_DIMENSIONS` don't
      support its type or rank.
    """
    cdef Py_buffer buffer
    cdef int64_t dimensions[MOST_DIMENSIONS]
    cdef void* handle
    cdef int i
    try:
        PyObject_GetBuffer(array, &buffer, PyBUF_C_CONTIGUOUS)
    except (BufferError, ValueError):
        return None
    try:
        if buffer.ndim > MOST_DIMENSIONS:
            return None
        for i in range(buffer.ndim):
            dimensions[i] = buffer.shape[i]
        handle = fastsup_eager_new_handle(dtype, dimensions, buffer.ndim, buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)
    if handle is NULL:
        raise MemoryError
    return fastsup_eager_object_from_handle(handle)


def open_binding(libraries):
    """Looks up TensorFlow's symbols. With an untested version, the process can't be trusted afterwards.

    Args:
      libraries: list of paths of loaded libraries to search.

    Raises:
      ImportError: If a symbol is missing or has the wrong size. The message names it.
    """
    # Look the symbols up here instead of in C++. Each newer libc has another version of dlsym, and a wheel would then
    # require that libc.
    loaded = [ctypes.CDLL(None), *_already_loaded(libraries)]
    addresses = []
    while fastsup_eager_symbol(len(addresses)) is not NULL:
        addresses.append(_address(fastsup_eager_symbol(len(addresses)).decode(), loaded))
    cdef size_t device_manager_size = _size(DEVICE_MANAGER.decode(), loaded)
    cdef void** array = <void**>malloc(len(addresses) * sizeof(void*))
    if array is NULL:
        raise MemoryError
    cdef Py_ssize_t i
    for i in range(len(addresses)):
        array[i] = <void*><uintptr_t>addresses[i]
    cdef int failed = fastsup_eager_open(array, device_manager_size)
    free(array)
    if failed:
        raise MemoryError


def _already_loaded(libraries):
    """Returns the libraries in a list of paths that this process has loaded."""
    for path in libraries:
        try:
            yield ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue


def _address(name, loaded):
    """Returns the address of a symbol in the first library that has it."""
    for library in loaded:
        try:
            return ctypes.addressof(ctypes.c_char.in_dll(library, name))
        except ValueError:
            continue
    raise ImportError(f"TensorFlow's libraries have no symbol {name}.")


class _Info(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


class _Symbol(ctypes.Structure):
    """Elf64_Sym of elf.h."""

    _fields_ = [("name", ctypes.c_uint32), ("info", ctypes.c_ubyte), ("other", ctypes.c_ubyte),
                ("section", ctypes.c_uint16), ("value", ctypes.c_uint64), ("size", ctypes.c_uint64)]


_RTLD_DL_SYMENT = 1


def _size(name, loaded):
    """Returns the size of a symbol in bytes, from the symbol table of the library that has it."""
    info, symbol = _Info(), ctypes.POINTER(_Symbol)()
    address = ctypes.c_void_p(_address(name, loaded))
    found = loaded[0].dladdr1(address, ctypes.byref(info), ctypes.byref(symbol), _RTLD_DL_SYMENT)
    if not found or not symbol or info.name != name.encode() or symbol.contents.size < 4 * sizeof(void*):
        raise ImportError(f"TensorFlow's libraries don't say how large {name} is.")
    return symbol.contents.size


def share_context(capsule):
    """Sets the eager context whose devices new sessions share.

    Args:
      capsule: the capsule of the context, `context.context()._handle`.

    Returns:
      The number of its local devices.

    Raises:
      RuntimeError: If there are sessions over the devices of another context.
    """
    count = fastsup_eager_set_context(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)))
    if count == -1:
        raise MemoryError
    if count < 0:
        raise RuntimeError("lifted functions share the devices of another eager context, which was replaced.")
    return count


cdef void* handle_of(object value) noexcept:
    """Returns the handle of an EagerTensor, or null for another value."""
    return fastsup_eager_object_handle(<void*>value)


cdef bint records_gradients() except -1:
    """Returns True if this thread has a gradient tape or a forward accumulator."""
    return fastsup_eager_object_records_nothing() is not True


cdef bint is_async() noexcept:
    return fastsup_eager_is_async()


cdef PyObject* scope_of_plain_thread(object context) except? NULL:
    """Returns the device name of this thread's `tf.device` scope, as a borrowed reference to a str. Empty without a scope.

    Null, without an error, if the thread doesn't execute eagerly and synchronously, or callbacks observe it.
    """
    cdef const fastsup_eager_settings* settings = fastsup_eager_object_settings(<void*>context)
    if settings is NULL or not settings.is_eager or <object>settings.op_callbacks or is_async():
        return NULL
    return settings.device_name


def has_callbacks(context):
    """Returns True if callbacks observe the calling thread's eager operations.

    Args:
      context: the eager context.

    Returns:
      True or False.
    """
    return bool(<object>fastsup_eager_object_settings(<void*>context).op_callbacks)


def settings(context):
    """Reads the calling thread's settings of an eager context from TensorFlow's memory.

    Args:
      context: the eager context.

    Returns:
      Whether it executes eagerly, the device's name, and whether operations run later.
    """
    cdef const fastsup_eager_settings* found = fastsup_eager_object_settings(<void*>context)
    return bool(found.is_eager), <object>found.device_name, is_async()


cdef int dtype_of(void* handle) noexcept:
    return fastsup_eager_dtype(handle)


cdef bint has_shape(void* handle, const int64_t* dimensions, int rank) noexcept:
    return fastsup_eager_has_shape(handle, dimensions, rank)


cdef int shape_of(void* handle, int64_t* dimensions) noexcept:
    return fastsup_eager_shape(handle, dimensions)


cdef const char* memory_of(void* handle) noexcept:
    """Returns the name of the device with a tensor's memory. The pointer is the same for all its tensors."""
    return fastsup_eager_memory(handle)


@final
cdef class EagerSession:
    """Opens a session and creates its callables.

    Args:
      open_session: function without arguments that opens a `tf.compat.v1.Session` with the target SESSION_TARGET.

    Raises:
      RuntimeError: If `open_session` opened another kind of session.
    """

    cdef readonly object session
    cdef void* pointer

    def __init__(self, open_session):
        fastsup_eager_take_session()
        self.session = open_session()
        self.pointer = fastsup_eager_take_session()
        if self.pointer is NULL:
            raise RuntimeError(f"the session {self.session!r} isn't one over the eager context's devices.")

    def callable(self, owner, int64_t number, int input_count, int output_count, places=()):
        """Creates a callable that takes and returns EagerTensors.

        Args:
          owner: the session's own callable, which frees the handle when it is deleted.
          number: the handle of the session's own callable.
          input_count: number of feeds.
          output_count: number of fetches.
          places: for each fetch, the names of the device with its memory and the device that computes it. If empty, all
            are on the context's first device.

        Returns:
          An EagerCallable.

        Raises:
          ValueError: If the eager context has no such device.
        """
        cdef EagerCallable made = EagerCallable.__new__(EagerCallable)
        if places:
            made.take_places(places)
        made.owner = owner
        made.session = self.session
        made.pointer = self.pointer
        made.number = number
        made.input_count = input_count
        made.output_count = output_count
        return made


cdef void* device_named(str name) except NULL:
    cdef void* device = fastsup_eager_device(name.encode())
    if device is NULL:
        raise ValueError(f"the eager context has no device {name!r}.")
    return device


@final
cdef class EagerCallable:
    """A compiled step of an EagerSession."""

    def __dealloc__(self):
        free(self.places)

    cdef int take_places(self, places) except -1:
        cdef Py_ssize_t i
        self.places = <fastsup_eager_place*>malloc(max(1, len(places)) * sizeof(fastsup_eager_place))
        if self.places is NULL:
            raise MemoryError
        for i, (memory, device) in enumerate(places):
            self.places[i].memory = device_named(memory)
            self.places[i].device = device_named(device)
        return 0

    def __call__(self, *tensors):
        """Runs the step.

        Args:
          *tensors: an EagerTensor for each feed.

        Returns:
          A list of EagerTensors, one for each fetch.

        Raises:
          TypeError: If the arguments aren't one EagerTensor per feed.
          tf.errors.OpError: If the step failed.
        """
        if len(tensors) != self.input_count:
            raise TypeError(f"the step has {self.input_count} feeds, got {len(tensors)} tensors.")
        cdef void** inputs = <void**>malloc(max(1, self.input_count) * sizeof(void*))
        if inputs is NULL:
            raise MemoryError
        cdef int i
        try:
            for i in range(self.input_count):
                inputs[i] = handle_of(tensors[i])
                if inputs[i] is NULL:
                    raise TypeError(f"feed {i} must be an EagerTensor, got {tensors[i]!r}.")
            return self.run(inputs)
        finally:
            free(inputs)

    cdef list run(self, void** inputs):
        """Runs the step with handles whose tensors the caller keeps alive."""
        cdef void* few[FEW_OUTPUTS]
        cdef void** outputs = few
        cdef int i = 0, count = self.output_count
        cdef void* status
        cdef list tensors
        if count > FEW_OUTPUTS:
            outputs = <void**>malloc(count * sizeof(void*))
            if outputs is NULL:
                raise MemoryError
        try:
            with nogil:
                status = fastsup_eager_run(
                    self.pointer, self.number, inputs, self.input_count, outputs, count, self.places
                )
            if status is not NULL:
                raise_status(status)
            tensors = []
            try:
                while i < count:
                    i += 1
                    tensors.append(fastsup_eager_object_from_handle(outputs[i - 1]))
            finally:
                while i < count:
                    fastsup_eager_delete_handle(outputs[i])
                    i += 1
            return tensors
        finally:
            if outputs is not few:
                free(outputs)


cdef int raise_status(void* status) except -1:
    """Raises the error of a status, and deletes the status."""
    try:
        code = fastsup_eager_status_code(status)
        message = fastsup_eager_status_message(status).decode(errors="replace")
    finally:
        fastsup_eager_delete_status(status)
    raise errors_impl.exception_type_from_error_code(code)(None, None, message)
