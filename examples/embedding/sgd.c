/* Linear regression by stochastic gradient descent: the step and a hook in C, the loop fastsup's. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <fastsup.h>

#define SIZE 8
#define RATE 0.02

static const fs_api *fastsup;

typedef struct {
    double weights[SIZE];
    double average; /* of the loss, with the last steps counting most */
    uint64_t random;
} model;

static double uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0 - 0.5;
}

/* One step: a sample, its error, a move against the gradient. The true weights are 0, 1, 2, ... */
static int step(fs_loop *loop, void *context) {
    model *self = context;
    double features[SIZE], error = 0.0;
    for (int i = 0; i < SIZE; ++i) {
        features[i] = uniform(&self->random);
        error += features[i] * (self->weights[i] - i);
    }
    for (int i = 0; i < SIZE; ++i) self->weights[i] -= RATE * error * features[i];
    loop->result = error * error;
    /* Hooks in Python and Cython see it as loop.result. */
    return loop->result < 1e300 ? FS_GO_ON : fastsup->fail(loop, "the loss has exploded");
}

/* A hook that is due after every step: some nanoseconds. */
static int average(const fs_loop *loop, void *context) {
    model *self = context;
    self->average += 0.001 * (loop->result - self->average);
    return FS_GO_ON;
}

static void free_model(PyObject *capsule) {
    PyMem_Free(PyCapsule_GetPointer(capsule, "sgd.model"));
}

static PyObject *new_model(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    model *self = PyMem_Calloc(1, sizeof *self);
    if (self == NULL) return PyErr_NoMemory();
    self->random = 1;
    return PyCapsule_New(self, "sgd.model", free_model);
}

static PyObject *read_model(PyObject *module, PyObject *capsule) {
    (void)module;
    model *self = PyCapsule_GetPointer(capsule, "sgd.model");
    if (self == NULL) return NULL;
    PyObject *weights = PyList_New(SIZE);
    for (int i = 0; weights != NULL && i < SIZE; ++i) {
        PyObject *weight = PyFloat_FromDouble(self->weights[i]);
        if (weight == NULL) Py_CLEAR(weights);
        else PyList_SET_ITEM(weights, i, weight);
    }
    return weights == NULL ? NULL : Py_BuildValue("Nd", weights, self->average);
}

/* The model is the context of both functions: as their owner, it lives as long as they may be called. */
static PyObject *averaging_hook(PyObject *module, PyObject *capsule) {
    (void)module;
    model *self = PyCapsule_GetPointer(capsule, "sgd.model");
    fs_schedule every_step = {1, 0.0};
    return self == NULL ? NULL : fastsup->hook_new(average, self, &every_step, capsule);
}

static PyObject *training_loop(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *capsule, *hooks;
    long long max_steps;
    if (!PyArg_ParseTuple(arguments, "OOL", &capsule, &hooks, &max_steps)) return NULL;
    model *self = PyCapsule_GetPointer(capsule, "sgd.model");
    return self == NULL ? NULL : fastsup->loop_new(step, self, hooks, max_steps, 0, capsule);
}

static PyMethodDef methods[] = {
    {"new_model", new_model, METH_NOARGS, "new_model() -> model"},
    {"read_model", read_model, METH_O, "read_model(model) -> (weights, average loss)"},
    {"averaging_hook", averaging_hook, METH_O, "averaging_hook(model) -> fastsup.core.NativeHook"},
    {"training_loop", training_loop, METH_VARARGS, "training_loop(model, hooks, max_steps) -> fastsup.core.StepLoop"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "sgd", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_sgd(void) {
    fastsup = fastsup_import(); /* NULL: an ImportError is set, which names both versions */
    return fastsup == NULL ? NULL : PyModule_Create(&definition);
}
