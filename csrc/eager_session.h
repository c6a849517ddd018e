/* A session over the devices of TensorFlow's eager context, and calls to it with eager tensors.

   See eager_session.cc. Any thread may call the functions. Functions with "object" in the name need Python's lock, the
   others need no lock. Call `fastsup_eager_open` first and `fastsup_eager_set_context` second. Pointers to TensorFlow's
   objects are `void *`. */
#ifndef FASTSUP_EAGER_SESSION_H
#define FASTSUP_EAGER_SESSION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The target of the sessions: `tf.compat.v1.Session(target="fastsup-eager")`. */
#define FASTSUP_EAGER_TARGET "fastsup-eager"

/* The highest rank of a tensor whose shape is read. TensorFlow's own limit is 254. */
#define FASTSUP_MOST_DIMENSIONS 32

/* The name of a symbol that is needed from TensorFlow's libraries, counted from 0. Null after the last one. */
const char *fastsup_eager_symbol(int index);

/* The symbol of the device manager's table of virtual functions. The size of the table is also needed. */
#define FASTSUP_EAGER_DEVICE_MANAGER "_ZTVN10tensorflow16DynamicDeviceMgrE"

/* Takes the addresses of the symbols, and registers the factory of the sessions. Further calls do nothing.

   addresses: one for each symbol, in the order of `fastsup_eager_symbol`; none is null.
   device_manager_size: bytes of the symbol FASTSUP_EAGER_DEVICE_MANAGER.
   Returns 0, or -1 if memory is short. */
int fastsup_eager_open(void *const *addresses, size_t device_manager_size);

/* Sets the eager context whose devices all sessions share. The context can't change once a session is open.
   Returns the number of its devices, -1 if memory is short, or -2 if sessions share the devices of another context. */
int fastsup_eager_set_context(void *context);

/* The session that this thread opened last; null if there is none. */
void *fastsup_eager_take_session(void);

/* The TFE_TensorHandle of a Python object that is an EagerTensor. Null if the object isn't an EagerTensor, or is a
   tensor of a custom device. */
void *fastsup_eager_object_handle(void *object);

/* Returns the handle of a new tensor in the host's memory, with a copy of the data.
   dtype: a number of TensorFlow's DataType, of numbers or booleans.
   bytes: size of the data.
   Returns null if memory is short. */
void *fastsup_eager_new_handle(int dtype, const int64_t *dimensions, int rank, const void *data, size_t bytes);

/* Returns a new EagerTensor that takes over a handle, or null, with a Python error set, after a failure. */
void *fastsup_eager_object_from_handle(void *handle);

/* Returns a new reference: Python's True if the thread has neither a gradient tape nor a forward accumulator, otherwise
   False. */
void *fastsup_eager_object_records_nothing(void);

/* The calling thread's settings of an eager context: TensorFlow's EagerContextThreadLocalData. The pointers are Python
   objects; op_callbacks is a list. */
struct fastsup_eager_settings {
    unsigned char is_eager, invokes_callbacks;
    void *device_name, *scope_name, *device_spec, *function_call_options, *executor, *op_callbacks;
};

/* The settings in a Python object that is an eager context. They belong to TensorFlow. */
const struct fastsup_eager_settings *fastsup_eager_object_settings(void *context);

/* Returns 1 if eager operations of this thread run later, otherwise 0. */
int fastsup_eager_is_async(void);

/* Deletes a handle. */
void fastsup_eager_delete_handle(void *handle);

/* The data type of a handle's tensor, as a number of TensorFlow's DataType. */
int fastsup_eager_dtype(void *handle);

/* Returns 1 if a handle's tensor has this shape, otherwise 0. A negative dimension matches any dimension, and a
   negative rank matches any shape. */
int fastsup_eager_has_shape(void *handle, const int64_t *dimensions, int rank);

/* The shape of a handle's tensor. Returns its rank, or -1 if the rank is above FASTSUP_MOST_DIMENSIONS. */
int fastsup_eager_shape(void *handle, int64_t *dimensions);

/* The device of this name in the eager context, which owns it. Null if there is none. */
void *fastsup_eager_device(const char *name);

/* The name of the device in whose memory a handle's tensor lies. The pointer is the same for all tensors in that
   memory, and belongs to TensorFlow. */
const char *fastsup_eager_memory(void *handle);

/* Where a tensor is: the device that has its memory, and the device whose operation produced it. */
struct fastsup_eager_place {
    void *memory, *device;
};

/* Runs a session's callable.

   session: the result of fastsup_eager_take_session.
   callable: the number that TF_SessionMakeCallable returned.
   inputs: handles of the feeds. Their tensors must stay alive until the function returns.
   outputs: space for the handles of the fetches, which belong to the caller afterwards.
   places: where the fetches are, as in the callable's options. Null if all are on the context's first device.
   Returns null, or a TF_Status with the error, which the caller deletes with fastsup_eager_delete_status. */
void *fastsup_eager_run(void *session, int64_t callable, void *const *inputs, int input_count, void **outputs,
                        int output_count, const struct fastsup_eager_place *places);

/* The code of an error, and its text, which belongs to the status. */
int fastsup_eager_status_code(void *status);
const char *fastsup_eager_status_message(void *status);
void fastsup_eager_delete_status(void *status);

#ifdef __cplusplus
}
#endif

#endif
