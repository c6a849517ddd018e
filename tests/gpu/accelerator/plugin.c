/* A PluggableDevice for a TensorFlow without a GPU: what TensorFlow calls, in terms of memory.h and
   stream.h. ACCELERATOR_DEVICES says how many devices there are (1). After a call of `accelerator_go_away` the devices
   are gone: nothing is copied any more, and waiting for them fails.

   The interface: https://github.com/tensorflow/community/blob/master/rfcs/20200612-stream-executor-c-api.md */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "stream.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/tf_status.h"

static int devices = 1;
static atomic_int gone, copies;

/* How often something was copied between the host's memory and a device's. */
int accelerator_copies(void) {
    return atomic_load(&copies);
}

void accelerator_go_away(void) {
    atomic_store(&gone, 1);
}

static void succeed(TF_Status *status) {
    TF_SetStatus(status, TF_OK, "");
}

/* The status of what needs the device. */
static void succeed_if_there(TF_Status *status) {
    if (atomic_load(&gone)) {
        TF_SetStatus(status, TF_INTERNAL, "the fake accelerator has gone away");
    } else {
        succeed(status);
    }
}

static void stream_new(const SP_Device *device, SP_Stream *stream, TF_Status *status) {
    *stream = accelerator_stream_new();
    succeed(status);
}

static void stream_delete(const SP_Device *device, SP_Stream stream) {
    accelerator_stream_delete(stream);
}

static void stream_after(const SP_Device *device, SP_Stream dependent, SP_Stream other, TF_Status *status) {
    accelerator_event *event = accelerator_event_new();
    accelerator_event_record(event, other);
    accelerator_event_await(event, dependent);
    accelerator_event_delete(event);
    succeed(status);
}

static void stream_status(const SP_Device *device, SP_Stream stream, TF_Status *status) {
    succeed_if_there(status);
}

static void stream_wait(const SP_Device *device, SP_Stream stream, TF_Status *status) {
    accelerator_stream_wait(stream);
    succeed_if_there(status);
}

static void event_new(const SP_Device *device, SP_Event *event, TF_Status *status) {
    *event = accelerator_event_new();
    succeed(status);
}

static void event_delete(const SP_Device *device, SP_Event event) {
    accelerator_event_delete(event);
}

static SE_EventStatus event_status(const SP_Device *device, SP_Event event) {
    return accelerator_event_is_pending(event) ? SE_EVENT_PENDING : SE_EVENT_COMPLETE;
}

static void event_record(const SP_Device *device, SP_Stream stream, SP_Event event, TF_Status *status) {
    accelerator_event_record(event, stream);
    succeed(status);
}

static void event_await(const SP_Device *device, SP_Stream stream, SP_Event event, TF_Status *status) {
    accelerator_event_await(event, stream);
    succeed(status);
}

static void event_wait(const SP_Device *device, SP_Event event, TF_Status *status) {
    accelerator_event_wait(event);
    succeed(status);
}

/* A copy, or the filling of memory if there is no source. */
struct transfer {
    void *to;
    const void *from;
    uint64_t bytes;
    int pattern;
};

static void transfer_now(void *argument) {
    struct transfer *transfer = argument;
    void *to = accelerator_memory_at(transfer->to);
    if (transfer->from == NULL) {
        memset(to, transfer->pattern, transfer->bytes);
    } else {
        memcpy(to, accelerator_memory_at(transfer->from), transfer->bytes);
    }
    free(transfer);
}

static void transfer_in(SP_Stream stream, void *to, const void *from, uint64_t bytes, int pattern, TF_Status *status) {
    struct transfer *transfer = malloc(sizeof *transfer);
    if (transfer == NULL) abort();
    *transfer = (struct transfer){to, from, bytes, pattern};
    accelerator_stream_put(stream, transfer_now, transfer);
    succeed_if_there(status);
}

static void to_host(const SP_Device *device, SP_Stream stream, void *to, const SP_DeviceMemoryBase *from,
                    uint64_t bytes, TF_Status *status) {
    atomic_fetch_add(&copies, 1);
    transfer_in(stream, to, from->opaque, bytes, 0, status);
}

static void to_device(const SP_Device *device, SP_Stream stream, SP_DeviceMemoryBase *to, const void *from,
                      uint64_t bytes, TF_Status *status) {
    /* For a constant of a function, TensorFlow doesn't wait for the kernels that may still use the memory that the
       constant gets. For CUDA it does. */
    accelerator_stream_after_all(stream);
    atomic_fetch_add(&copies, 1);
    transfer_in(stream, to->opaque, from, bytes, 0, status);
}

static void on_device(const SP_Device *device, SP_Stream stream, SP_DeviceMemoryBase *to,
                      const SP_DeviceMemoryBase *from, uint64_t bytes, TF_Status *status) {
    transfer_in(stream, to->opaque, from->opaque, bytes, 0, status);
}

static void to_host_now(const SP_Device *device, void *to, const SP_DeviceMemoryBase *from, uint64_t bytes,
                        TF_Status *status) {
    memcpy(to, accelerator_memory_at(from->opaque), bytes);
    succeed(status);
}

static void to_device_now(const SP_Device *device, SP_DeviceMemoryBase *to, const void *from, uint64_t bytes,
                          TF_Status *status) {
    accelerator_streams_wait();
    memcpy(accelerator_memory_at(to->opaque), from, bytes);
    succeed(status);
}

static void on_device_now(const SP_Device *device, SP_DeviceMemoryBase *to, const SP_DeviceMemoryBase *from,
                          uint64_t bytes, TF_Status *status) {
    memcpy(accelerator_memory_at(to->opaque), accelerator_memory_at(from->opaque), bytes);
    succeed(status);
}

static void fill_zero(const SP_Device *device, SP_Stream stream, SP_DeviceMemoryBase *to, uint64_t bytes,
                      TF_Status *status) {
    transfer_in(stream, to->opaque, NULL, bytes, 0, status);
}

static void fill_byte(const SP_Device *device, SP_Stream stream, SP_DeviceMemoryBase *to, uint8_t pattern,
                      uint64_t bytes, TF_Status *status) {
    transfer_in(stream, to->opaque, NULL, bytes, pattern, status);
}

static void fill_word(const SP_Device *device, SP_Stream stream, SP_DeviceMemoryBase *to, uint32_t pattern,
                      uint64_t bytes, TF_Status *status) {
    if (pattern % 0x01010101u != 0) abort(); /* Nothing asks for another one. */
    transfer_in(stream, to->opaque, NULL, bytes, (int)(pattern & 0xff), status);
}

struct callback {
    SE_StatusCallbackFn function;
    void *argument;
};

static void call_back(void *argument) {
    struct callback *callback = argument;
    TF_Status *status = TF_NewStatus();
    callback->function(callback->argument, status);
    TF_DeleteStatus(status);
    free(callback);
}

static TF_Bool host_callback(const SP_Device *device, SP_Stream stream, SE_StatusCallbackFn function, void *argument) {
    struct callback *callback = malloc(sizeof *callback);
    if (callback == NULL) abort();
    *callback = (struct callback){function, argument};
    accelerator_stream_put(stream, call_back, callback);
    return 1;
}

static void allocate(const SP_Device *device, uint64_t bytes, int64_t space, SP_DeviceMemoryBase *memory) {
    memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
    memory->opaque = accelerator_memory_take(device->ordinal, bytes);
    memory->size = memory->opaque == NULL ? 0 : bytes;
}

static void deallocate(const SP_Device *device, SP_DeviceMemoryBase *memory) {}

static void *host_allocate(const SP_Device *device, uint64_t bytes) {
    return aligned_alloc(256, (bytes + 255) / 256 * 256); /* what TensorFlow's allocator of buffers asks for */
}

static void host_deallocate(const SP_Device *device, void *memory) {
    free(memory);
}

static TF_Bool allocator_stats(const SP_Device *device, SP_AllocatorStats *stats) {
    return 0;
}

static TF_Bool memory_usage(const SP_Device *device, int64_t *free_bytes, int64_t *total_bytes) {
    *free_bytes = *total_bytes = ACCELERATOR_BYTES - 4096;
    return 1;
}

static void timer_new(const SP_Device *device, SP_Timer *timer, TF_Status *status) {
    *timer = NULL;
    succeed(status);
}

static void timer_delete(const SP_Device *device, SP_Timer timer) {}

static void timer_set(const SP_Device *device, SP_Stream stream, SP_Timer timer, TF_Status *status) {
    succeed(status);
}

static void synchronize(const SP_Device *device, TF_Status *status) {
    accelerator_streams_wait();
    succeed_if_there(status);
}

static uint64_t timer_nanoseconds(SP_Timer timer) {
    return 0;
}

static void device_count(const SP_Platform *platform, int *count, TF_Status *status) {
    *count = devices;
    succeed(status);
}

static void create_device(const SP_Platform *platform, SE_CreateDeviceParams *params, TF_Status *status) {
    static const char *const addresses[ACCELERATOR_MOST_DEVICES] = {"0000:00:00.0", "0000:01:00.0", "0000:02:00.0",
                                                                    "0000:03:00.0"};
    params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
    params->device->ordinal = params->ordinal;
    params->device->hardware_name = "fake accelerator";
    params->device->device_vendor = "fastsup's tests";
    params->device->pci_bus_id = addresses[params->ordinal];
    succeed(status);
}

static void destroy_device(const SP_Platform *platform, SP_Device *device) {}

static void create_device_functions(const SP_Platform *platform, SE_CreateDeviceFnsParams *params, TF_Status *status) {
    params->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
    succeed(status);
}

static void destroy_device_functions(const SP_Platform *platform, SP_DeviceFns *functions) {}

static void create_executor(const SP_Platform *platform, SE_CreateStreamExecutorParams *params, TF_Status *status) {
    *params->stream_executor = (SP_StreamExecutor){
        .struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE,
        .allocate = allocate,
        .deallocate = deallocate,
        .host_memory_allocate = host_allocate,
        .host_memory_deallocate = host_deallocate,
        .get_allocator_stats = allocator_stats,
        .device_memory_usage = memory_usage,
        .create_stream = stream_new,
        .destroy_stream = stream_delete,
        .create_stream_dependency = stream_after,
        .get_stream_status = stream_status,
        .create_event = event_new,
        .destroy_event = event_delete,
        .get_event_status = event_status,
        .record_event = event_record,
        .wait_for_event = event_await,
        .create_timer = timer_new,
        .destroy_timer = timer_delete,
        .start_timer = timer_set,
        .stop_timer = timer_set,
        .memcpy_dtoh = to_host,
        .memcpy_htod = to_device,
        .memcpy_dtod = on_device,
        .sync_memcpy_dtoh = to_host_now,
        .sync_memcpy_htod = to_device_now,
        .sync_memcpy_dtod = on_device_now,
        .block_host_for_event = event_wait,
        .block_host_until_done = stream_wait,
        .synchronize_all_activity = synchronize,
        .mem_zero = fill_zero,
        .memset = fill_byte,
        .memset32 = fill_word,
        .host_callback = host_callback,
    };
    succeed(status);
}

static void destroy_executor(const SP_Platform *platform, SP_StreamExecutor *executor) {}

static void create_timer_functions(const SP_Platform *platform, SP_TimerFns *functions, TF_Status *status) {
    functions->nanoseconds = timer_nanoseconds;
    succeed(status);
}

static void destroy_timer_functions(const SP_Platform *platform, SP_TimerFns *functions) {}

static void destroy_platform(SP_Platform *platform) {}

static void destroy_platform_functions(SP_PlatformFns *functions) {}

/* TensorFlow calls it when it loads the library. */
void SE_InitPlugin(SE_PlatformRegistrationParams *params, TF_Status *status) {
    const char *wanted = getenv("ACCELERATOR_DEVICES");
    devices = wanted == NULL ? 1 : atoi(wanted);
    if (devices < 1 || devices > ACCELERATOR_MOST_DEVICES || accelerator_memory_open(devices) != 0) {
        TF_SetStatus(status, TF_FAILED_PRECONDITION, "The fake accelerator can't have its memory.");
        return;
    }
    params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
    params->platform->name = "FAKE_ACCELERATOR";
    params->platform->type = ACCELERATOR_TYPE;
    params->platform->use_bfc_allocator = 1;
    params->platform->force_memory_growth = 1;
    params->platform_fns->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
    params->platform_fns->get_device_count = device_count;
    params->platform_fns->create_device = create_device;
    params->platform_fns->destroy_device = destroy_device;
    params->platform_fns->create_device_fns = create_device_functions;
    params->platform_fns->destroy_device_fns = destroy_device_functions;
    params->platform_fns->create_stream_executor = create_executor;
    params->platform_fns->destroy_stream_executor = destroy_executor;
    params->platform_fns->create_timer_fns = create_timer_functions;
    params->platform_fns->destroy_timer_fns = destroy_timer_functions;
    params->destroy_platform = destroy_platform;
    params->destroy_platform_fns = destroy_platform_functions;
    succeed(status);
}
