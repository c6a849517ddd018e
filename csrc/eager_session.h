/* A session over the devices of TensorFlow's eager context, and calls of it with eager tensors.

   See eager_session.cc. All functions may be called by any thread; those with "object" in the name need Python's lock,
   the others none. `fastsup_eager_open` comes first, `fastsup_eager_set_context` second. Pointers that belong to
   TensorFlow are `void *`. */
#ifndef FASTSUP_EAGER_SESSION_H
#define FASTSUP_EAGER_SESSION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The target of the sessions: `tf.compat.v1.Session(target="fastsup-eager")`. */
#define FASTSUP_EAGER_TARGET "fastsup-eager"

/* The highest rank of a tensor whose shape is looked at. TensorFlow's own limit is 254. */
#define FASTSUP_MOST_DIMENSIONS 32

/* The name of a symbol of TensorFlow's libraries that is needed: 0 is the first one. Null past the last one. */
const char *fastsup_eager_symbol(int index);

/* The symbol of the device manager's table of virtual functions, whose size is needed too. */
#define FASTSUP_EAGER_DEVICE_MANAGER "_ZTVN10tensorflow16DynamicDeviceMgrE"

/* Takes the addresses of the symbols, and registers the factory of the sessions. Further calls do nothing.

   addresses: one for each symbol, in the order of `fastsup_eager_symbol`; none is null.
   device_manager_size: bytes of the symbol FASTSUP_EAGER_DEVICE_MANAGER.
   Returns 0, or -1 if memory is short. */
int fastsup_eager_open(void *const *addresses, size_t device_manager_size);

/* Names the eager context whose devices all sessions share. It can't be another once a session is open.

   Returns the number of its devices, -1 if memory is short, -2 if sessions share those of another context. */
int fastsup_eager_set_context(void *context);

/* The session that this thread has opened last; null if there is none. */
void *fastsup_eager_take_session(void);

/* The TFE_TensorHandle of a Python object that is an EagerTensor. Null if the object is none, or is a tensor of a
   custom device. */
void *fastsup_eager_object_handle(void *object);

/* A handle of a new tensor in the host's memory, with a copy of the data.

   dtype: a number of TensorFlow's DataType, of numbers or booleans.
   bytes: size of the data.
   Null if memory is short. */
void *fastsup_eager_new_handle(int dtype, const int64_t *dimensions, int rank, const void *data, size_t bytes);

/* A new EagerTensor that takes over a handle. Null, with a Python error set, if that failed. */
void *fastsup_eager_object_from_handle(void *handle);

/* Python's True if the thread has neither a gradient tape nor a forward accumulator, else False: a new reference. */
void *fastsup_eager_object_records_nothing(void);

/* The calling thread's settings of an eager context: TensorFlow's EagerContextThreadLocalData. The pointers are Python
   objects; op_callbacks is a list. */
struct fastsup_eager_settings {
    unsigned char is_eager, invokes_callbacks;
    void *device_name, *scope_name, *device_spec, *function_call_options, *executor, *op_callbacks;
};

/* The settings under a Python object that is an eager context. They belong to TensorFlow. */
const struct fastsup_eager_settings *fastsup_eager_object_settings(void *context);

/* Whether eager operations of this thread run later: 1 or 0. */
int fastsup_eager_is_async(void);

/* Deletes a handle. */
void fastsup_eager_delete_handle(void *handle);

/* The data type of a handle's tensor, as a number of TensorFlow's DataType. */
int fastsup_eager_dtype(void *handle);

/* Whether a handle's tensor has this shape: 1 or 0. A negative dimension stands for any, a negative rank for any shape.
 */
int fastsup_eager_has_shape(void *handle, const int64_t *dimensions, int rank);

/* The shape of a handle's tensor. Returns its rank, or -1 if the rank is above FASTSUP_MOST_DIMENSIONS. */
int fastsup_eager_shape(void *handle, int64_t *dimensions);

/* The device of this name in the eager context, which owns it. Null if there is none. */
void *fastsup_eager_device(const char *name);

/* The name of the device in whose memory a handle's tensor lies. It is the same pointer for all tensors there, and
   belongs to TensorFlow. */
const char *fastsup_eager_memory(void *handle);

/* Where a tensor is: the device that has its memory, and the device whose operation has made it. */
struct fastsup_eager_place {
    void *memory, *device;
};

/* Runs a callable of a session.

   session: what fastsup_eager_take_session gave.
   callable: its number, which TF_SessionMakeCallable gave.
   inputs: handles of the feeds. Their tensors must stay alive until the function returns.
   outputs: room for the handles of the fetches, which belong to the caller afterwards.
   places: where the fetches are, as the callable was told. Null: on the context's first device, all of them.
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
