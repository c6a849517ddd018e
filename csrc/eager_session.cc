/* The C++ binding to TensorFlow's runtime: a session over the devices of the eager context.

   This is the only file in C++, because two things that it needs from TensorFlow have no C interface: the constructor
   of a session over given devices, and a call to a session whose tensors are neither copied nor made into NumPy arrays.
   It includes no TensorFlow header: the headers differ from version to version, and most installations can't compile
   them. It is given the addresses of the symbols, which are looked up by name in the loaded libraries, and assumes what
   is written at each declaration below. `fastsup/eager/tf_abi.py` opens it for tested versions of TensorFlow, after a
   self-test in a separate process.

   The state belongs to this library, which is linked into one extension. A comment next to each variable states who may
   change it.

   No C++ exception leaves a function that C or TensorFlow calls: the exception becomes a status, or the return value
   reports that memory was short. */
#include "eager_session.h"

#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace {

/* absl::Status: one word, returned in memory because its destructor isn't trivial. This file only passes it on. */
struct Status {
    uintptr_t word;
    explicit Status(uintptr_t word) : word(word) {}
    Status(const Status &other) : word(other.word) {}
    ~Status() {}
};

/* std::unique_ptr to a TensorFlow object, whose destructor isn't known here. */
struct Owned {
    void *object;
    Owned(const Owned &other) : object(other.object) {}
    ~Owned() {}
};

/* tensorflow::Tensor: 32 bytes (the shape and a pointer to the buffer), which may be read in place. */
struct Tensor {
    uint64_t words[4];
};

/* A std::string of libstdc++, as seen by functions that only read it. Its member functions would need a newer libstdc++
   than manylinux_2_17 has. */
struct Text {
    const char *characters;
    size_t length, room[2];
    explicit Text(const char *text) : characters(text), length(std::strlen(text)), room{length, 0} {}
    bool is(const char *text) const {
        return length == std::strlen(text) && std::memcmp(characters, text, length) == 0;
    }
};

/* The start of tensorflow::SessionOptions. */
struct SessionOptions {
    void *env;
    Text target;
};

using Devices = std::vector<void *>;

/* TensorFlow's SessionFactory: four virtual functions in this order. */
class SessionFactory {
  public:
    virtual Status NewSession(const SessionOptions &options, void **session) = 0;
    virtual bool AcceptsOptions(const SessionOptions &options) = 0;
    virtual Status Reset(const SessionOptions &options, const void *containers) = 0;
    virtual ~SessionFactory() {}
};

/* Space for a DynamicDeviceMgr (about 300 bytes) and a DirectSession (about 1,500). */
constexpr size_t kDeviceManagerRoom = 4096, kSessionRoom = 16384;
/* Two words precede a class's virtual functions: the offset of the object's start, and its type. */
constexpr size_t kWordsInFront = 2;
/* Error codes of absl::StatusCode. */
constexpr int kResourceExhausted = 8, kInternal = 13;

/* Addresses in TensorFlow. `fastsup_eager_open` sets them, under `opening`, before anything else reads them. */
Devices (*list_local_devices)(void *context);
Owned (*new_renamed_device)(const Text &name, void *device, bool owns, bool isolates, void *pool);
void (*make_device_manager)(void *room, Devices &&devices);
void (*make_session)(void *room, const SessionOptions &options, const void *manager, void *factory);
void (*register_factory)(const Text &name, SessionFactory *factory);
Status (*run_callable)(void *session, int64_t callable, const std::vector<Tensor> &feeds, std::vector<Tensor> *fetched,
                       void *metadata);
Status (*tensor_of_handle)(const void *handle, const Tensor **tensor);
void *(*make_local_handle)(Tensor &&tensor, void *device, void *op_device, void *context);
void (*destroy_tensor)(Tensor *tensor);
Status (*find_device)(const void *context, const char *name, void **device);
void *handle_vtable, *device_manager_vtable;

void *(*new_status)();
int (*status_code)(const void *status);
const char *(*status_message)(const void *status);
void (*set_status)(void *status, int code, const char *message);
void (*delete_status)(void *status);
void *(*allocate_tensor)(int dtype, const int64_t *dimensions, int rank, size_t bytes);
void *(*tensor_data)(const void *tensor);
void (*delete_tensor)(void *tensor);
void *(*new_handle)(void *tensor, void *status);
void (*delete_handle)(void *handle);
int (*handle_dtype)(void *handle);
int (*handle_rank)(void *handle, void *status);
int64_t (*handle_dimension)(void *handle, int index, void *status);
const char *(*handle_memory)(void *handle, void *status);

void *(*executor_of_thread)(void *context);
bool (*is_async)(void *executor);
void (*delete_executor)(void *executor);

bool (*is_eager_tensor)(const void *object);
void *(*handle_of_object)(const void *object);
void *(*object_of_handle)(void *handle, bool is_packed);
void *(*records_nothing)();
const fastsup_eager_settings *(*settings_of_context)(void *context);

/* Locked while the addresses, the context or a session are set up. */
std::mutex opening;
/* Set once, under `opening`. */
bool is_open;
uintptr_t ok_word;
size_t device_manager_words;
/* Set under `opening` before the first session is opened, and never changed afterwards. The sessions' steps read these
   variables without the lock. */
void *eager_context, *host_device;
void *manager_of_sessions;
thread_local void *last_session;

struct Symbol {
    void *address; // stores the symbol's address
    const char *name;
};

const Symbol kSymbols[] = {
    {&list_local_devices, "_ZN10tensorflow12EagerContext18ListLocalTfDevicesEv"},
    {&new_renamed_device,
     "_ZN10tensorflow13RenamedDevice16NewRenamedDeviceERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPNS_"
     "6DeviceEbbPN3tsl6thread19ThreadPoolInterfaceE"},
    {&make_device_manager,
     "_ZN10tensorflow16DynamicDeviceMgrC1EOSt6vectorISt10unique_ptrINS_6DeviceESt14default_deleteIS3_EESaIS6_EE"},
    {&make_session,
     "_ZN10tensorflow13DirectSessionC1ERKNS_14SessionOptionsEPKNS_9DeviceMgrEPNS_20DirectSessionFactoryE"},
    {&register_factory,
     "_ZN10tensorflow14SessionFactory8RegisterERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPS0_"},
    {&run_callable,
     "_ZN10tensorflow13DirectSession11RunCallableElRKSt6vectorINS_6TensorESaIS2_EEPS4_PNS_11RunMetadataE"},
    {&tensor_of_handle, "_ZNK10tensorflow12TensorHandle6TensorEPPKNS_6TensorE"},
    {&make_local_handle,
     "_ZN10tensorflow12TensorHandle17CreateLocalHandleEONS_6TensorEPNS_6DeviceES4_PNS_12EagerContextE"},
    {&destroy_tensor, "_ZN10tensorflow6TensorD1Ev"},
    {&find_device, "_ZNK10tensorflow12EagerContext18FindDeviceFromNameEPKcPPNS_6DeviceE"},
    {&handle_vtable, "_ZTVN10tensorflow12TensorHandleE"},
    {&device_manager_vtable, FASTSUP_EAGER_DEVICE_MANAGER},
    {&new_status, "TF_NewStatus"},
    {&status_code, "TF_GetCode"},
    {&status_message, "TF_Message"},
    {&set_status, "TF_SetStatus"},
    {&delete_status, "TF_DeleteStatus"},
    {&allocate_tensor, "TF_AllocateTensor"},
    {&tensor_data, "TF_TensorData"},
    {&delete_tensor, "TF_DeleteTensor"},
    {&new_handle, "TFE_NewTensorHandle"},
    {&delete_handle, "TFE_DeleteTensorHandle"},
    {&handle_dtype, "TFE_TensorHandleDataType"},
    {&handle_rank, "TFE_TensorHandleNumDims"},
    {&handle_dimension, "TFE_TensorHandleDim"},
    {&handle_memory, "TFE_TensorHandleBackingDeviceName"},
    {&executor_of_thread, "TFE_ContextGetExecutorForThread"},
    {&is_async, "TFE_ExecutorIsAsync"},
    {&delete_executor, "TFE_DeleteExecutor"},
    {&is_eager_tensor, "_Z22EagerTensor_CheckExactPK7_object"},
    {&handle_of_object, "_Z18EagerTensor_HandlePK7_object"},
    {&object_of_handle, "_Z21EagerTensorFromHandleP16TFE_TensorHandleb"},
    {&records_nothing, "_Z21TFE_Py_TapeSetIsEmptyv"},
    {&settings_of_context, "_ZN10tensorflow30GetEagerContextThreadLocalDataEP7_object"},
};

/* The word of a status in a TF_Status, which contains nothing else. */
uintptr_t &word_of(void *status) {
    return *static_cast<uintptr_t *>(status);
}

/* Returns the word of a new error. */
uintptr_t error_word(int code, const char *message) noexcept {
    void *status = new_status();
    set_status(status, code, message);
    const uintptr_t word = word_of(status);
    word_of(status) = ok_word; // The error belongs to the caller that gets the word.
    delete_status(status);
    return word;
}

/* Returns the word of the error for the exception that is being handled. */
uintptr_t word_of_exception() noexcept {
    try {
        throw;
    } catch (const std::bad_alloc &) {
        return error_word(kResourceExhausted, "there was no memory for a step of a lifted function");
    } catch (const std::exception &error) {
        return error_word(kInternal, error.what());
    } catch (...) {
        return error_word(kInternal, "TensorFlow's runtime has thrown an exception of an unknown type");
    }
}

void stays(void *) {}

/* The device manager of all sessions, which is never deleted. Called under `opening`.

   A session deletes its manager, and with it the devices. But an iterator of tf.data keeps the device of the session
   that has first asked it for an element, for its threads. So the manager's table of virtual functions is replaced by a
   copy in which its destructors, the first two, do nothing. */
void *device_manager() {
    if (manager_of_sessions) return manager_of_sessions;
    const Text name("/job:localhost/replica:0/task:0");
    Devices devices;
    for (void *device : list_local_devices(eager_context))
        devices.push_back(new_renamed_device(name, device, false, false, nullptr).object);
    // Don't use `new void *[]`, which needs a newer libstdc++ if the length isn't a constant.
    void **table = static_cast<void **>(::operator new(device_manager_words * sizeof(void *)));
    void *manager = ::operator new(kDeviceManagerRoom);
    make_device_manager(manager, std::move(devices));
    std::memcpy(table, device_manager_vtable, device_manager_words * sizeof(void *));
    table[kWordsInFront] = table[kWordsInFront + 1] = reinterpret_cast<void *>(&stays);
    *static_cast<void ***>(manager) = table + kWordsInFront;
    return manager_of_sessions = manager;
}

class EagerSessionFactory : public SessionFactory {
    Status NewSession(const SessionOptions &options, void **session) override {
        *session = nullptr;
        try {
            std::lock_guard<std::mutex> lock(opening);
            void *manager = device_manager();
            void *room = ::operator new(kSessionRoom);
            make_session(room, options, manager, nullptr);
            *session = last_session = room;
            return Status(ok_word);
        } catch (...) {
            return Status(word_of_exception());
        }
    }

    bool AcceptsOptions(const SessionOptions &options) override { return options.target.is(FASTSUP_EAGER_TARGET); }

    Status Reset(const SessionOptions &, const void *) override { return Status(ok_word); }
};

/* A thread's status for calls that can't fail. */
struct ScratchStatus {
    void *status = new_status();
    ~ScratchStatus() { delete_status(status); }
};

void *scratch_status() {
    thread_local ScratchStatus scratch;
    return scratch.status;
}

} // namespace

const char *fastsup_eager_symbol(int index) {
    const int count = sizeof(kSymbols) / sizeof(kSymbols[0]);
    return index < count ? kSymbols[index].name : nullptr;
}

int fastsup_eager_open(void *const *addresses, size_t device_manager_size) {
    try {
        std::lock_guard<std::mutex> lock(opening);
        if (is_open) return 0;
        for (const Symbol &symbol : kSymbols) *static_cast<void **>(symbol.address) = *addresses++;
        device_manager_words = device_manager_size / sizeof(void *);
        void *status = new_status();
        ok_word = word_of(status);
        delete_status(status);
        // The registry keeps the factory for as long as the process lives.
        register_factory(Text("FASTSUP_EAGER_SESSION"), new EagerSessionFactory());
        is_open = true;
        return 0;
    } catch (...) {
        return -1;
    }
}

int fastsup_eager_set_context(void *context) {
    try {
        std::lock_guard<std::mutex> lock(opening);
        Devices devices = list_local_devices(context);
        if (!manager_of_sessions) {
            eager_context = context;
            host_device = devices.empty() ? nullptr : devices[0];
        }
        return eager_context == context ? static_cast<int>(devices.size()) : -2;
    } catch (...) {
        return -1;
    }
}

void *fastsup_eager_take_session(void) {
    void *session = last_session;
    last_session = nullptr;
    return session;
}

void *fastsup_eager_object_handle(void *object) {
    if (!is_eager_tensor(object)) return nullptr;
    void *handle = handle_of_object(object);
    // The first word of an object with virtual functions points past the first two words of its class's table.
    if (!handle || *static_cast<void **>(handle) != static_cast<void **>(handle_vtable) + kWordsInFront) return nullptr;
    return handle;
}

void *fastsup_eager_new_handle(int dtype, const int64_t *dimensions, int rank, const void *data, size_t bytes) {
    void *tensor = allocate_tensor(dtype, dimensions, rank, bytes);
    if (!tensor) return nullptr;
    std::memcpy(tensor_data(tensor), data, bytes);
    void *handle = new_handle(tensor, scratch_status());
    delete_tensor(tensor);
    return handle;
}

void *fastsup_eager_object_from_handle(void *handle) {
    return object_of_handle(handle, false);
}

void *fastsup_eager_object_records_nothing(void) {
    return records_nothing();
}

const fastsup_eager_settings *fastsup_eager_object_settings(void *context) {
    return settings_of_context(context);
}

int fastsup_eager_is_async(void) {
    void *executor = executor_of_thread(eager_context);
    const bool answer = is_async(executor);
    delete_executor(executor);
    return answer;
}

void fastsup_eager_delete_handle(void *handle) {
    delete_handle(handle);
}

int fastsup_eager_dtype(void *handle) {
    return handle_dtype(handle);
}

int fastsup_eager_has_shape(void *handle, const int64_t *dimensions, int rank) {
    if (rank < 0) return 1;
    void *status = scratch_status();
    if (handle_rank(handle, status) != rank) return 0;
    for (int i = 0; i < rank; ++i)
        if (dimensions[i] >= 0 && handle_dimension(handle, i, status) != dimensions[i]) return 0;
    return 1;
}

int fastsup_eager_shape(void *handle, int64_t *dimensions) {
    void *status = scratch_status();
    const int rank = handle_rank(handle, status);
    if (rank > FASTSUP_MOST_DIMENSIONS) return -1;
    for (int i = 0; i < rank; ++i) dimensions[i] = handle_dimension(handle, i, status);
    return rank;
}

void *fastsup_eager_device(const char *name) {
    void *device = nullptr;
    try {
        if (find_device(eager_context, name, &device).word != ok_word) return nullptr;
    } catch (...) {
        return nullptr;
    }
    return device;
}

const char *fastsup_eager_memory(void *handle) {
    return handle_memory(handle, scratch_status());
}

void *fastsup_eager_run(void *session, int64_t callable, void *const *inputs, int input_count, void **outputs,
                        int output_count, const fastsup_eager_place *places) {
    uintptr_t word = ok_word;
    int made = 0;
    try {
        std::vector<Tensor> feeds, fetched;
        feeds.reserve(input_count);
        for (int i = 0; i < input_count && word == ok_word; ++i) {
            const Tensor *tensor = nullptr;
            word = tensor_of_handle(inputs[i], &tensor).word;
            // Copy the words of the tensor without a reference to its buffer, because the handle outlives the run.
            if (word == ok_word) feeds.push_back(*tensor);
        }
        if (word == ok_word) word = run_callable(session, callable, feeds, &fetched, nullptr).word;
        const bool as_many = fetched.size() == static_cast<size_t>(output_count);
        // In this case, a tensor isn't as large as declared above, and the content of the vector can't be deleted.
        if (word == ok_word && !as_many)
            word = error_word(kInternal, "the runtime has not returned one tensor for each fetch of a lifted function");
        for (int i = 0; as_many && i < output_count; ++i) {
            if (word == ok_word) {
                void *memory = places ? places[i].memory : host_device;
                void *device = places ? places[i].device : host_device;
                outputs[i] = make_local_handle(std::move(fetched[i]), memory, device, eager_context);
                made = i + 1;
            }
            destroy_tensor(&fetched[i]);
        }
    } catch (...) {
        while (made > 0) delete_handle(outputs[--made]);
        word = word_of_exception();
    }
    if (word == ok_word) return nullptr;
    void *status = new_status();
    word_of(status) = word;
    return status;
}

int fastsup_eager_status_code(void *status) {
    return status_code(status);
}

const char *fastsup_eager_status_message(void *status) {
    return status_message(status);
}

void fastsup_eager_delete_status(void *status) {
    delete_status(status);
}
