/* The kernels of the fake accelerator: TensorFlow's own for the CPU, run in the accelerator's streams on its memory.

   A kernel whose output shapes follow from its input shapes is put into the stream of its step, and returns at once;
   any other waits for the stream first. Either way its outputs are written when their turn in the stream has come.
   Which operations there are, of which types, and what of theirs lies on the host is as CUDA has it. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "memory.h"
#include "stream.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/device_factory.h"
#include "tensorflow/core/framework/node_def_builder.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorflow/core/public/version.h"

namespace tensorflow {
namespace {

using shape_inference::InferenceContext;
using shape_inference::ShapeHandle;

void must(const absl::Status &status) {
    if (status.ok()) return;
    std::fprintf(stderr, "fake accelerator: %s\n", std::string(status.message()).c_str());
    std::abort();
}

/* A device of the CPU that TensorFlow doesn't know of, for its kernels to run on. */
Device *host_device() {
    static Device *const device = [] {
        SessionOptions options;
        (*options.config.mutable_device_count())["CPU"] = 1;
        options.config.set_inter_op_parallelism_threads(1);
        options.config.set_intra_op_parallelism_threads(1);
        return DeviceFactory::NewDevice("CPU", options, "/job:accelerator/replica:0/task:0").release();
    }();
    return device;
}

std::unique_ptr<OpKernel> host_kernel(const NodeDef &node) {
    NodeDef of_host(node);
    of_host.set_device("");
    std::shared_ptr<const NodeProperties> properties;
    must(NodeProperties::CreateFromNodeDef(of_host, OpRegistry::Global(), &properties));
    OpKernel *kernel = nullptr;
    must(CreateOpKernel(DEVICE_CPU, host_device(), host_device()->GetAllocator(AllocatorAttributes()), nullptr,
                        host_device()->resource_manager(), properties, TF_GRAPH_DEF_VERSION, &kernel));
    return std::unique_ptr<OpKernel>(kernel);
}

/* Memory that somebody else owns. */
class Borrowed : public TensorBuffer {
  public:
    Borrowed(void *data, size_t bytes) : TensorBuffer(data), bytes_(bytes) {}
    size_t size() const override { return bytes_; }
    TensorBuffer *root_buffer() override { return this; }
    void FillAllocationDescription(AllocationDescription *) const override {}
    bool OwnsMemory() const override { return false; }

  private:
    size_t bytes_;
};

/* A tensor of the device as the plugin may read and write it. It doesn't keep the tensor's memory, as CUDA's kernels
   don't keep that of their arguments: what reuses it comes later in the stream. */
Tensor reachable(const Tensor &tensor) {
    auto *buffer = new Borrowed(accelerator_memory_at(tensor.data()), tensor.TotalBytes());
    Tensor made(tensor.dtype(), tensor.shape(), buffer);
    buffer->Unref();
    return made;
}

absl::Status try_on_host(OpKernel *kernel, std::vector<Tensor> inputs, std::vector<Tensor> *outputs) {
    OpKernelContext::Params params;
    std::vector<TensorValue> values;
    for (Tensor &input : inputs) values.emplace_back(&input);
    std::vector<AllocatorAttributes> of_inputs(inputs.size()), of_outputs(kernel->num_outputs());
    std::vector<int> never(kernel->num_outputs(), OpKernelContext::Params::kNeverForward);
    params.device = host_device();
    params.op_kernel = kernel;
    params.resource_manager = host_device()->resource_manager();
    params.inputs = values;
    params.input_alloc_attrs = of_inputs;
    params.output_attr_array = of_outputs.data();
    params.forward_from_array = never.data();
    OpKernelContext context(&params);
    kernel->Compute(&context);
    for (int i = 0; context.status().ok() && i < kernel->num_outputs(); ++i) {
        const TensorValue output = context.release_output(i);
        outputs->push_back(*output.tensor);
        delete output.tensor;
    }
    return context.status();
}

/* The same in a stream, where nothing can fail any more: of a bad index, CUDA's kernels make zeros. */
void write_in_stream(OpKernel *kernel, std::vector<Tensor> inputs, const std::vector<Tensor> &outputs) {
    std::vector<Tensor> made;
    const bool is_good = try_on_host(kernel, std::move(inputs), &made).ok();
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i].TotalBytes() == 0) continue;
        if (is_good) {
            std::memcpy(outputs[i].data(), made[i].data(), outputs[i].TotalBytes());
        } else {
            std::memset(outputs[i].data(), 0, outputs[i].TotalBytes());
        }
    }
}

accelerator_stream *stream_of(OpKernelContext *context) {
    TF_Status *status = TF_NewStatus();
    SP_Stream stream = TF_GetStream(reinterpret_cast<TF_OpKernelContext *>(context), status);
    if (TF_GetCode(status) != TF_OK) std::abort();
    TF_DeleteStatus(status);
    return stream;
}

void call_and_delete(void *argument) {
    std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()> *>(argument));
    (*work)();
}

void put(accelerator_stream *stream, std::function<void()> work) {
    accelerator_stream_put(stream, call_and_delete, new std::function<void()>(std::move(work)));
}

void copy_into(const Tensor &to, const Tensor &from) {
    if (from.TotalBytes() > 0) std::memcpy(to.data(), from.data(), from.TotalBytes());
}

Tensor reachable_input(OpKernelContext *context, int i) {
    const Tensor &input = context->input(i);
    return context->input_memory_type(i) == HOST_MEMORY ? input : reachable(input);
}

/* Gives a kernel's outputs, which lie on the host, to its context. */
void set_outputs(OpKernelContext *context, accelerator_stream *stream, const std::vector<Tensor> &made) {
    for (size_t i = 0; i < made.size(); ++i) {
        if (context->output_memory_type(i) == HOST_MEMORY) {
            context->set_output(i, made[i]);
            continue;
        }
        Tensor *output = nullptr;
        OP_REQUIRES_OK(context, context->allocate_output(i, made[i].shape(), &output));
        const Tensor to = reachable(*output), from = made[i];
        put(stream, [to, from] { copy_into(to, from); });
    }
}

class OnStream : public OpKernel {
  public:
    explicit OnStream(OpKernelConstruction *construction)
        : OpKernel(construction), kernel_(host_kernel(construction->def())) {}

    void Compute(OpKernelContext *context) override {
        std::vector<Tensor> inputs;
        for (int i = 0; i < context->num_inputs(); ++i) inputs.push_back(reachable_input(context, i));
        accelerator_stream *stream = stream_of(context);
        std::vector<TensorShape> shapes;
        if (has_known_shapes(context, &shapes)) {
            std::vector<Tensor> outputs;
            for (int i = 0; i < context->num_outputs(); ++i) {
                Tensor *output = nullptr;
                OP_REQUIRES_OK(context, context->allocate_output(i, shapes[i], &output));
                outputs.push_back(reachable(*output));
            }
            put(stream, [kernel = kernel_, inputs, outputs] { write_in_stream(kernel.get(), inputs, outputs); });
            return;
        }
        accelerator_stream_wait(stream);
        std::vector<Tensor> made;
        OP_REQUIRES_OK(context, try_on_host(kernel_.get(), inputs, &made));
        set_outputs(context, stream, made);
    }

  private:
    /* Whether the shapes of the outputs, which must lie on the device, follow from those of the inputs. */
    bool has_known_shapes(OpKernelContext *context, std::vector<TensorShape> *shapes) {
        const OpRegistrationData *registered = nullptr;
        if (!OpRegistry::Global()->LookUp(type_string(), &registered).ok() || !registered->shape_inference_fn)
            return false;
        std::vector<PartialTensorShape> inputs;
        std::vector<const Tensor *> values;
        for (int i = 0; i < context->num_inputs(); ++i) {
            inputs.emplace_back(context->input(i).shape());
            values.push_back(context->input_memory_type(i) == HOST_MEMORY ? &context->input(i) : nullptr);
        }
        InferenceContext inference(TF_GRAPH_DEF_VERSION, AttrSlice(def()), registered->op_def, inputs, values, {}, {});
        if (!inference.construction_status().ok() || !inference.Run(registered->shape_inference_fn).ok()) return false;
        for (int i = 0; i < context->num_outputs(); ++i) {
            const ShapeHandle shape = inference.output(i);
            if (context->output_memory_type(i) == HOST_MEMORY || !inference.FullyDefined(shape)) return false;
            TensorShape known;
            for (int j = 0; j < inference.Rank(shape); ++j) known.AddDim(inference.Value(inference.Dim(shape, j)));
            shapes->push_back(known);
        }
        return true;
    }

    std::shared_ptr<OpKernel> kernel_;
};

class AssignVariable : public OpKernel {
  public:
    using OpKernel::OpKernel;

    void Compute(OpKernelContext *context) override {
        const Tensor &value = context->input(1);
        core::RefCountPtr<Var> variable;
        OP_REQUIRES_OK(context,
                       LookupOrCreateResource<Var>(context, HandleFromInput(context, 0), &variable, [&](Var **made) {
                           *made = new Var(value.dtype());
                           return absl::OkStatus();
                       }));
        mutex_lock lock(*variable->mu());
        *variable->tensor() = value;
        variable->is_initialized = true;
    }
};

/* Adds to a variable, or subtracts from it, in new memory: what was read before stays as it is. */
class UpdateVariable : public OpKernel {
  public:
    explicit UpdateVariable(OpKernelConstruction *construction) : OpKernel(construction) {
        NodeDef node;
        DataType dtype;
        OP_REQUIRES_OK(construction, construction->GetAttr("dtype", &dtype));
        must(NodeDefBuilder("update", type_string() == "AssignAddVariableOp" ? "AddV2" : "Sub")
                 .Input("a", 0, dtype)
                 .Input("b", 0, dtype)
                 .Finalize(&node));
        kernel_ = host_kernel(node);
    }

    void Compute(OpKernelContext *context) override {
        core::RefCountPtr<Var> variable;
        OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, 0), &variable));
        mutex_lock lock(*variable->mu());
        const Tensor &value = context->input(1), &before = *variable->tensor();
        OP_REQUIRES(context, before.shape().IsSameSize(value.shape()),
                    errors::InvalidArgument("Cannot update variable with shape ", before.shape().DebugString(),
                                            " using a Tensor with shape ", value.shape().DebugString(),
                                            ", shapes must be equal."));
        Tensor after;
        OP_REQUIRES_OK(context, context->allocate_temp(before.dtype(), before.shape(), &after));
        const Tensor to = reachable(after), left = reachable(before), right = reachable(value);
        put(stream_of(context),
            [kernel = kernel_, to, left, right] { write_in_stream(kernel.get(), {left, right}, {to}); });
        *variable->tensor() = after;
    }

  private:
    std::shared_ptr<OpKernel> kernel_;
};

/* The handle of a variable that holds a tensor, for a kernel of the host. */
Tensor handle_of(Var *variable) {
    Tensor handle(DT_RESOURCE, TensorShape({}));
    variable->Ref();
    handle.scalar<ResourceHandle>()() = ResourceHandle::MakeRefCountingHandle(variable, host_device()->name());
    return handle;
}

/* Changes variables in some other way, in new memory as well: optimizers, scattered updates. */
class ChangeVariables : public OpKernel {
  public:
    explicit ChangeVariables(OpKernelConstruction *construction)
        : OpKernel(construction), kernel_(host_kernel(construction->def())) {}

    void Compute(OpKernelContext *context) override {
        struct Change {
            int input;
            Tensor before, after;
        };
        std::vector<Tensor> inputs;
        std::vector<Change> changes;
        /* Where the change isn't put into the stream: nobody else may get the memory before it has been read. */
        std::vector<Tensor> held;
        for (int i = 0; i < context->num_inputs(); ++i) {
            if (context->input_dtype(i) != DT_RESOURCE) {
                inputs.push_back(reachable_input(context, i));
                continue;
            }
            core::RefCountPtr<Var> variable;
            OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, i), &variable));
            mutex_lock lock(*variable->mu());
            const Tensor before = *variable->tensor();
            Tensor after;
            OP_REQUIRES_OK(context, context->allocate_temp(before.dtype(), before.shape(), &after));
            held.push_back(before);
            changes.push_back({i, reachable(before), reachable(after)});
            inputs.emplace_back();
            *variable->tensor() = after;
        }
        auto change_all = [kernel = kernel_, inputs, changes]() mutable {
            std::vector<core::RefCountPtr<Var>> variables;
            for (const Change &change : changes) {
                copy_into(change.after, change.before);
                variables.emplace_back(new Var(change.after.dtype()));
                *variables.back()->tensor() = change.after;
                variables.back()->is_initialized = true;
                inputs[change.input] = handle_of(variables.back().get());
            }
            std::vector<Tensor> made;
            const bool is_good = try_on_host(kernel.get(), inputs, &made).ok();
            for (size_t i = 0; is_good && i < changes.size(); ++i)
                if (variables[i]->tensor()->data() != changes[i].after.data())
                    copy_into(changes[i].after, *variables[i]->tensor());
            return made;
        };
        accelerator_stream *stream = stream_of(context);
        if (context->num_outputs() == 0) {
            put(stream, change_all);
        } else {
            accelerator_stream_wait(stream);
            set_outputs(context, stream, change_all());
        }
    }

  private:
    std::shared_ptr<OpKernel> kernel_;
};

/* Looks rows of a variable up. */
class GatherFromVariable : public OpKernel {
  public:
    explicit GatherFromVariable(OpKernelConstruction *construction)
        : OpKernel(construction), kernel_(host_kernel(construction->def())) {}

    void Compute(OpKernelContext *context) override {
        core::RefCountPtr<Var> variable;
        OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, 0), &variable));
        mutex_lock lock(*variable->mu());
        TensorShape shape = context->input(1).shape();
        for (int i = 1; i < variable->tensor()->dims(); ++i) shape.AddDim(variable->tensor()->dim_size(i));
        Tensor *output = nullptr;
        OP_REQUIRES_OK(context, context->allocate_output(0, shape, &output));
        const Tensor to = reachable(*output), rows = reachable(*variable->tensor());
        const Tensor indices = reachable_input(context, 1);
        put(stream_of(context), [kernel = kernel_, to, rows, indices] {
            core::RefCountPtr<Var> held(new Var(rows.dtype()));
            *held->tensor() = rows;
            held->is_initialized = true;
            write_in_stream(kernel.get(), {handle_of(held.get()), indices}, {to});
        });
    }

  private:
    std::shared_ptr<OpKernel> kernel_;
};

class SyncDevice : public OpKernel {
  public:
    using OpKernel::OpKernel;

    void Compute(OpKernelContext *context) override { accelerator_stream_wait(stream_of(context)); }
};

template <class Kernel> OpKernel *make(OpKernelConstruction *construction) {
    return new Kernel(construction);
}

/* `attribute`: the one that has the types; null if the operation has no other type. */
struct Registration {
    const char *operation, *attribute;
    std::vector<DataType> types;
    std::vector<const char *> on_host;
    OpKernel *(*maker)(OpKernelConstruction *) = &make<OnStream>;
};

const std::vector<DataType> kReal = {DT_FLOAT, DT_HALF, DT_DOUBLE};
const std::vector<DataType> kNumbers = {DT_FLOAT, DT_HALF, DT_DOUBLE, DT_INT64};
const std::vector<DataType> kAny = {DT_FLOAT, DT_HALF, DT_DOUBLE, DT_INT64, DT_BOOL};

void register_all() {
    const std::vector<Registration> registrations = {
        {"Add", "T", kNumbers},
        {"SyncDevice", nullptr, {DT_FLOAT}, {}, &make<SyncDevice>},
        {"AddV2", "T", kNumbers},
        {"Sub", "T", kNumbers},
        {"Mul", "T", kNumbers},
        {"RealDiv", "T", kReal},
        {"FloorDiv", "T", kNumbers},
        {"FloorMod", "T", {DT_INT64}},
        {"Maximum", "T", kNumbers},
        {"Minimum", "T", kNumbers},
        {"Pow", "T", kReal},
        {"SquaredDifference", "T", kReal},
        {"AddN", "T", kReal},
        {"Neg", "T", kNumbers},
        {"Abs", "T", kNumbers},
        {"Sign", "T", kReal},
        {"Square", "T", kReal},
        {"Sqrt", "T", kReal},
        {"Rsqrt", "T", kReal},
        {"Exp", "T", kReal},
        {"Log", "T", kReal},
        {"Tanh", "T", kReal},
        {"TanhGrad", "T", kReal},
        {"Sigmoid", "T", kReal},
        {"SigmoidGrad", "T", kReal},
        {"Relu", "T", kReal},
        {"ReluGrad", "T", kReal},
        {"IsFinite", "T", kReal},
        {"IsNan", "T", kReal},
        {"Sin", "T", kReal},
        {"Cos", "T", kReal},
        {"Erf", "T", kReal},
        {"Floor", "T", kReal},
        {"Softplus", "T", kReal},
        {"Log1p", "T", kReal},
        {"Cumsum", "T", kReal, {"axis"}},
        {"BatchMatMulV2", "T", kReal},
        {"Conv2D", "T", kReal},
        {"Softmax", "T", kReal},
        {"LogSoftmax", "T", kReal},
        {"SoftmaxCrossEntropyWithLogits", "T", kReal},
        {"BiasAdd", "T", kReal},
        {"BiasAddGrad", "T", kReal},
        {"MatMul", "T", kReal},
        {"Reciprocal", "T", kReal},
        {"DivNoNan", "T", kReal},
        {"SparseSoftmaxCrossEntropyWithLogits", "T", kReal},
        {"Equal", "T", kNumbers},
        {"NotEqual", "T", kNumbers},
        {"Less", "T", kNumbers},
        {"LessEqual", "T", kNumbers},
        {"Greater", "T", kNumbers},
        {"GreaterEqual", "T", kNumbers},
        {"LogicalAnd", nullptr, {DT_BOOL}},
        {"LogicalOr", nullptr, {DT_BOOL}},
        {"LogicalNot", nullptr, {DT_BOOL}},
        {"All", nullptr, {DT_BOOL}, {"reduction_indices"}},
        {"Any", nullptr, {DT_BOOL}, {"reduction_indices"}},
        {"SelectV2", "T", kAny},
        {"Cast", "SrcT", kAny},
        {"ZerosLike", "T", kAny},
        {"OnesLike", "T", kAny},
        {"ArgMax", "T", kReal, {"dimension"}},
        {"Sum", "T", kNumbers, {"reduction_indices"}},
        {"Mean", "T", kReal, {"reduction_indices"}},
        {"Prod", "T", kNumbers, {"reduction_indices"}},
        {"Max", "T", kNumbers, {"reduction_indices"}},
        {"Min", "T", kNumbers, {"reduction_indices"}},
        {"Fill", "T", kAny, {"dims"}},
        {"BroadcastTo", "T", kAny, {"shape"}},
        {"Tile", "T", kAny, {"multiples"}},
        {"Pack", "T", kAny},
        {"ConcatV2", "T", kAny, {"axis"}},
        {"Slice", "T", kAny, {"begin", "size"}},
        {"StridedSlice", "T", kAny, {"begin", "end", "strides"}},
        {"Transpose", "T", kAny, {"perm"}},
        {"GatherV2", "Tparams", kAny, {"axis"}},
        {"AssignVariableOp", "dtype", kAny, {"resource"}, &make<AssignVariable>},
        {"AssignAddVariableOp", "dtype", kNumbers, {"resource"}, &make<UpdateVariable>},
        {"AssignSubVariableOp", "dtype", kNumbers, {"resource"}, &make<UpdateVariable>},
        {"ResourceGather", "dtype", kAny, {"resource"}, &make<GatherFromVariable>},
        {"ResourceScatterAdd", "dtype", kNumbers, {"resource"}, &make<ChangeVariables>},
        {"ResourceScatterSub", "dtype", kNumbers, {"resource"}, &make<ChangeVariables>},
        {"ResourceScatterUpdate", "dtype", kAny, {"resource"}, &make<ChangeVariables>},
        {"ResourceApplyGradientDescent", "T", kReal, {"var"}, &make<ChangeVariables>},
        {"ResourceApplyMomentum", "T", kReal, {"var", "accum"}, &make<ChangeVariables>},
        {"ResourceApplyKerasMomentum", "T", kReal, {"var", "accum"}, &make<ChangeVariables>},
        {"ResourceApplyAdagradV2", "T", kReal, {"var", "accum"}, &make<ChangeVariables>},
        {"ResourceApplyRMSProp", "T", kReal, {"var", "ms", "mom"}, &make<ChangeVariables>},
        {"ResourceApplyAdam", "T", kReal, {"var", "m", "v"}, &make<ChangeVariables>},
        {"RngReadAndSkip", nullptr, {DT_INT64}, {"resource", "alg", "delta"}, &make<ChangeVariables>},
        {"RandomUniform", "dtype", kReal, {"shape"}},
        {"RandomStandardNormal", "dtype", kReal, {"shape"}},
        {"TruncatedNormal", "dtype", kReal, {"shape"}},
        {"StatelessRandomUniformV2", "dtype", kReal, {"shape", "key", "counter", "alg"}},
        {"StatelessRandomNormalV2", "dtype", kReal, {"shape", "key", "counter", "alg"}},
        {"StatelessTruncatedNormalV2", "dtype", kReal, {"shape", "key", "counter", "alg"}},
    };
    for (const Registration &registration : registrations) {
        for (DataType type : registration.types) {
            KernelDefBuilder builder(registration.operation);
            builder.Device(ACCELERATOR_TYPE);
            if (registration.attribute) builder.TypeConstraint(registration.attribute, type);
            for (const char *argument : registration.on_host) builder.HostMemory(argument);
            // The registry keeps what it is given for as long as the process lives.
            new kernel_factory::OpKernelRegistrar(builder.Build(), registration.operation, registration.maker);
        }
    }
}

} // namespace
} // namespace tensorflow

/* TensorFlow calls it when it loads the library, and some versions twice. */
extern "C" void TF_InitKernel() {
    static const bool once = (tensorflow::register_all(), true);
    (void)once;
}
