#include "compiled_operator.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "../interface/data_type.h"
#include "../interface/launch_accesses.h"

namespace cann_sim::operators {

namespace {

const CompiledTensor& Located(const std::vector<CompiledTensor>& tensors, size_t index, const char* name) {
  if (index >= tensors.size() || tensors[index].type == ACL_DT_UNDEFINED) {
    throw Refusal(std::string("argument '") + name + "': expected a tensor, found none");
  }
  return tensors[index];
}

// A tensor without gaps in memory.
aclTensor Described(const CompiledTensor& tensor, const char* name) {
  const std::vector<int64_t>& sizes = tensor.format == ACL_FORMAT_FRACTAL_NZ ? tensor.view_sizes : tensor.sizes;
  if (std::max(sizes.size(), tensor.sizes.size()) > static_cast<size_t>(kMaxRank)) {
    throw Refusal(std::string("argument '") + name + "': expected at most " + std::to_string(kMaxRank) +
                  " dimensions, found " + std::to_string(tensor.sizes.size()));
  }
  aclTensor view;
  view.data = tensor.address;
  view.type = tensor.type;
  view.format = tensor.format;
  view.sizes.Assign(sizes.data(), sizes.size());
  view.strides = ContiguousStrides(view.sizes);
  view.storage_sizes.Assign(tensor.sizes.data(), tensor.sizes.size());
  return view;
}

Tensor OnDevice(const std::vector<CompiledTensor>& tensors, size_t index, const char* name) {
  const CompiledTensor& tensor = Located(tensors, index, name);
  if (tensor.on_host) {
    throw Refusal(std::string("argument '") + name + "': expected memory of the device, found memory of the host");
  }
  const aclTensor view = Described(tensor, name);
  return Tensor(&view, name);
}

}  // namespace

Tensor CompiledArguments::Input(size_t index, const char* name) const { return OnDevice(call_.inputs, index, name); }

OptionalTensor CompiledArguments::OptionalInput(size_t index, const char* name) const {
  if (index >= call_.inputs.size() || call_.inputs[index].type == ACL_DT_UNDEFINED) {
    return OptionalTensor(nullptr, name);
  }
  return Input(index, name);
}

at::Tensor CompiledArguments::HostInput(size_t index, const char* name) const {
  const CompiledTensor& tensor = Located(call_.inputs, index, name);
  if (!tensor.on_host) {
    throw Refusal(std::string("argument '") + name + "': expected memory of the host, found memory of the device");
  }
  return at::from_blob(tensor.address, tensor.sizes, at::TensorOptions().dtype(ScalarTypeOf(tensor.type))).clone();
}

std::vector<int64_t> CompiledArguments::HostIntegers(size_t index, const char* name) const {
  const at::Tensor values = HostInput(index, name).to(c10::ScalarType::Long);
  return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()};
}

Tensor CompiledArguments::Output(size_t index, const char* name) const {
  Tensor output = OnDevice(call_.outputs, index, name);
  NoteWritten(name);
  return output;
}

void CompiledArguments::RefuseMissing(const char* name) {
  throw Refusal(std::string("attribute '") + name + "': expected a value, found none");
}

void CompiledArguments::RefuseKind(const char* name) {
  throw Refusal(std::string("attribute '") + name + "': found a value of another kind than expected");
}

aclError RunCompiled(const char* name, const CompiledCall& call, aclrtStream stream,
                     Plan (*prepare)(const CompiledArguments&)) {
  uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  const int status = Prepare(name, &workspace, &executor, [&] { return prepare(CompiledArguments(call)); });
  if (status != kStatusOk) {
    return ACL_ERROR_GE_FAILURE;
  }
  return Launch(workspace, executor, stream);
}

}  // namespace cann_sim::operators
