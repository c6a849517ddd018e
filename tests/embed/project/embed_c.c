/* An extension module of somebody else's, in C. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <fastsup.h>
#include <string.h>

static const fs_api *fastsup;

/* A step that counts, and can be told to fail, to end, or to raise. */
typedef struct {
    int64_t calls;
    int64_t at; /* the call at which it does what it is told; -1: never */
    const char *what;
    int held_gil; /* calls during which this thread had the GIL */
} counter;

/* Doubles as step and as hook. */
static int act(const fs_loop *loop, counter *self) {
    self->held_gil += PyGILState_Check();
    if (self->calls++ != self->at) return FS_GO_ON;
    if (strcmp(self->what, "stop") == 0) return FS_STOP;
    if (strcmp(self->what, "fail") == 0) return fastsup->fail(loop, "out of luck");
    if (strcmp(self->what, "code") == 0) return 7;
    if (strcmp(self->what, "request_stop") == 0) {
        fastsup->request_stop(loop);
        return FS_GO_ON;
    }
    if (strcmp(self->what, "fail and go on") == 0) {
        fastsup->fail(loop, "of an earlier step");
        return FS_GO_ON;
    }
    if (strcmp(self->what, "no result") == 0) return FS_GO_ON;
    /* raise, or raise and pretend nothing: what a careless function does. */
    PyGILState_STATE gil = PyGILState_Ensure();
    PyErr_SetString(PyExc_LookupError, "raised in C");
    PyGILState_Release(gil);
    return strcmp(self->what, "raise") == 0 ? -1 : FS_GO_ON;
}

static int step(fs_loop *loop, void *context) {
    if (strcmp(((counter *)context)->what, "no result") != 0) loop->result = 0.5 * (double)loop->global_step;
    return act(loop, context);
}

static int hook(const fs_loop *loop, void *context) {
    return act(loop, context);
}

/* Notes what it sees. */
typedef struct {
    int64_t n;
    int64_t global_steps[64];
    int64_t steps[64];
    double results[64];
    double clock;
} notes;

static int note(const fs_loop *loop, void *context) {
    notes *all = context;
    int64_t i = all->n++ % 64;
    all->global_steps[i] = loop->global_step;
    all->steps[i] = loop->steps;
    all->results[i] = loop->result;
    all->clock = fastsup->clock();
    return FS_GO_ON;
}

static void free_memory(PyObject *capsule) {
    PyMem_Free(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
}

/* Zeroed memory, owned by a capsule. */
static PyObject *memory(size_t size, const char *name, void **pointer) {
    *pointer = PyMem_Calloc(1, size);
    if (*pointer == NULL) return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(*pointer, name, free_memory);
    if (capsule == NULL) PyMem_Free(*pointer);
    return capsule;
}

static PyObject *new_counter(PyObject *module, PyObject *arguments) {
    (void)module;
    long long at = -1;
    const char *what = "";
    if (!PyArg_ParseTuple(arguments, "|Ls", &at, &what)) return NULL;
    void *pointer;
    PyObject *capsule = memory(sizeof(counter), "counter", &pointer);
    if (capsule == NULL) return NULL;
    counter *self = pointer;
    self->at = at;
    const char *known[] = {
        "", "stop", "fail", "code", "request_stop", "raise", "raise and go on", "fail and go on", "no result"};
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
        if (strcmp(what, known[i]) == 0) self->what = known[i];
    return capsule;
}

static PyObject *read_counter(PyObject *module, PyObject *capsule) {
    (void)module;
    const counter *self = PyCapsule_GetPointer(capsule, "counter");
    return self == NULL ? NULL : Py_BuildValue("Li", (long long)self->calls, self->held_gil);
}

/* loop(counter, hooks, max_steps, initial_step): fastsup's StepLoop around the step above. */
static PyObject *new_loop(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *capsule, *hooks = NULL;
    long long max_steps = -1, initial_step = 0;
    if (!PyArg_ParseTuple(arguments, "O|OLL", &capsule, &hooks, &max_steps, &initial_step)) return NULL;
    void *context = PyCapsule_GetPointer(capsule, "counter");
    return context == NULL ? NULL : fastsup->loop_new(step, context, hooks, max_steps, initial_step, capsule);
}

/* hook(counter, every_steps, every_secs) */
static PyObject *new_hook(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *capsule;
    fs_schedule schedule = {1, 0.0};
    long long every_steps = 1;
    if (!PyArg_ParseTuple(arguments, "O|Ld", &capsule, &every_steps, &schedule.every_secs)) return NULL;
    schedule.every_steps = every_steps;
    void *context = PyCapsule_GetPointer(capsule, "counter");
    return context == NULL ? NULL : fastsup->hook_new(hook, context, &schedule, capsule);
}

/* noting_hook(every_steps): (hook, capsule for read_notes) */
static PyObject *noting_hook(PyObject *module, PyObject *arguments) {
    (void)module;
    fs_schedule schedule = {1, 0.0};
    long long every_steps = 1;
    if (!PyArg_ParseTuple(arguments, "|L", &every_steps)) return NULL;
    schedule.every_steps = every_steps;
    void *context;
    PyObject *capsule = memory(sizeof(notes), "notes", &context);
    if (capsule == NULL) return NULL;
    PyObject *made = fastsup->hook_new(note, context, &schedule, capsule);
    return made == NULL ? NULL : Py_BuildValue("NN", made, capsule);
}

/* ([(global step, steps, result), ...], clock at the last call) */
static PyObject *read_notes(PyObject *module, PyObject *capsule) {
    (void)module;
    const notes *all = PyCapsule_GetPointer(capsule, "notes");
    if (all == NULL) return NULL;
    PyObject *list = PyList_New(0);
    for (int64_t i = 0; list != NULL && i < all->n && i < 64; ++i) {
        PyObject *row =
            Py_BuildValue("LLd", (long long)all->global_steps[i], (long long)all->steps[i], all->results[i]);
        if (row == NULL || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list == NULL ? NULL : Py_BuildValue("Nd", list, all->clock);
}

/* Capsules that work without fastsup's functions: the signature and the context are all there is to them. */
static PyObject *step_capsule(PyObject *module, PyObject *counter_capsule) {
    (void)module;
    PyObject *capsule = PyCapsule_New((void *)step, FASTSUP_STEP_SIGNATURE, NULL);
    if (capsule != NULL) PyCapsule_SetContext(capsule, PyCapsule_GetPointer(counter_capsule, "counter"));
    return capsule;
}

static PyObject *hook_capsule(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyCapsule_New((void *)hook, FASTSUP_HOOK_SIGNATURE, NULL);
}

static PyObject *run(PyObject *module, PyObject *loop) {
    (void)module;
    if (fastsup->loop_run(loop) < 0) return NULL;
    const fs_loop *state = fastsup->loop_state(loop);
    return state == NULL ? NULL
                         : Py_BuildValue("LLd", (long long)state->global_step, (long long)state->steps, state->result);
}

static PyObject *without_function(PyObject *module, PyObject *what) {
    (void)module;
    return PyObject_IsTrue(what) ? fastsup->loop_new(NULL, NULL, NULL, -1, 0, NULL)
                                 : fastsup->hook_new(NULL, NULL, NULL, NULL);
}

static PyMethodDef methods[] = {
    {"counter", new_counter, METH_VARARGS, NULL},
    {"read_counter", read_counter, METH_O, NULL},
    {"loop", new_loop, METH_VARARGS, NULL},
    {"hook", new_hook, METH_VARARGS, NULL},
    {"noting_hook", noting_hook, METH_VARARGS, NULL},
    {"read_notes", read_notes, METH_O, NULL},
    {"step_capsule", step_capsule, METH_O, NULL},
    {"hook_capsule", hook_capsule, METH_NOARGS, NULL},
    {"run", run, METH_O, NULL},
    {"without_function", without_function, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "embed_c", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_embed_c(void) {
    fastsup = fastsup_import();
    return fastsup == NULL ? NULL : PyModule_Create(&definition);
}
