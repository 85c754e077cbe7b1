#include "arguments.h"

#include <algorithm>

#include "../operators/interface/launch_accesses.h"
#include "../operators/interface/validation.h"

namespace cann_sim::atb_library {

namespace {

using operators::RefuseArgument;

aclTensor ViewOf(const atb::Tensor& tensor, void* data, const char* name) {
  if (tensor.desc.shape.dimNum > static_cast<uint64_t>(operators::kMaxRank)) {
    RefuseArgument(name, "at most 8 dimensions", std::to_string(tensor.desc.shape.dimNum));
  }
  aclTensor view;
  view.data = data;
  view.type = tensor.desc.dtype;
  view.format = tensor.desc.format;
  view.sizes.Assign(tensor.desc.shape.dims, tensor.desc.shape.dimNum);
  view.strides = operators::ContiguousStrides(view.sizes);
  return view;
}

bool IsAbsent(const atb::Tensor& tensor) { return tensor.desc.dtype == ACL_DT_UNDEFINED; }

operators::Tensor OnDevice(const atb::Tensor& tensor, const char* name) {
  if (IsAbsent(tensor)) {
    RefuseArgument(name, "a tensor", "none");
  }
  if (tensor.hostData != nullptr) {
    RefuseArgument(name, "memory of the device", "a CPU tensor");
  }
  const aclTensor view = ViewOf(tensor, tensor.deviceData, name);
  return operators::Tensor(&view, name);
}

}  // namespace

void Arguments::RequireCounts(size_t inputs, size_t outputs) const {
  if (tensors_.inTensors.size() != inputs || tensors_.outTensors.size() != outputs) {
    throw operators::Refusal("expected " + std::to_string(inputs) + " inputs and " + std::to_string(outputs) +
                             " outputs, found " + std::to_string(tensors_.inTensors.size()) + " and " +
                             std::to_string(tensors_.outTensors.size()));
  }
}

operators::Tensor Arguments::Input(size_t index, const char* name) const {
  return OnDevice(tensors_.inTensors[index], name);
}

operators::OptionalTensor Arguments::OptionalInput(size_t index, const char* name) const {
  const atb::Tensor& tensor = tensors_.inTensors[index];
  if (IsAbsent(tensor)) {
    return {nullptr, name};
  }
  OnDevice(tensor, name);
  const aclTensor view = ViewOf(tensor, tensor.deviceData, name);
  return {&view, name};
}

operators::Tensor Arguments::Output(size_t index, const char* name) const {
  operators::Tensor output = OnDevice(tensors_.outTensors[index], name);
  operators::NoteWritten(name);
  return output;
}

std::vector<int64_t> Arguments::HostInput(size_t index, const char* name) const {
  const atb::Tensor& tensor = tensors_.inTensors[index];
  if (IsAbsent(tensor) || tensor.hostData == nullptr) {
    RefuseArgument(name, "a CPU tensor, which is read when the launch is made",
                   IsAbsent(tensor) ? "none" : "a tensor on the device");
  }
  const aclTensor view = ViewOf(tensor, tensor.hostData, name);
  return HostValues(operators::Tensor(&view, name));
}

std::vector<int64_t> HostValues(const operators::Tensor& tensor) {
  operators::RequireDtype(tensor, {c10::ScalarType::Int});
  operators::RequireContiguous(tensor);
  const at::Tensor values = tensor;
  const auto* first = values.data_ptr<int32_t>();
  return {first, first + values.numel()};
}

}  // namespace cann_sim::atb_library
