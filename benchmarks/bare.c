/* The floor of StepLoop: loops that call a step and do nothing else. And a step and a hook for both. */
#include <fastsup.h>

int bench_step(fs_loop *loop, void *context) {
    loop->result += (double)loop->global_step;
    return context == NULL ? FS_GO_ON : FS_STOP;
}

int bench_hook(const fs_loop *loop, void *context) {
    *(int64_t *)context += loop->global_step;
    return FS_GO_ON;
}

void bare_c(fs_step_fn step, int64_t steps) {
    fs_loop loop = {0, 0, 0.0};
    while (loop.steps < steps && step(&loop, NULL) == FS_GO_ON) {
        ++loop.steps;
        ++loop.global_step;
    }
}

int bare_python(PyObject *step, int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
        PyObject *result = PyObject_CallNoArgs(step);
        if (result == NULL) return -1;
        Py_DECREF(result);
    }
    return 0;
}
