cdef void* function_in(object capsule, str role, str signature) except NULL
