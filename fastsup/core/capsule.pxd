cdef void* function_in(object capsule, str what, str signature) except NULL
