#include "state_source.h"

#include "../interface/validation.h"

namespace cann_sim::operators {

StateSource FromNumbers(int64_t seed, int64_t offset) {
  return [state = PhiloxState{static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)}] { return state; };
}

StateSource FromTensors(const Tensor& seed, const Tensor& offset, int64_t offset_in_graph) {
  for (const Tensor* tensor : {&seed, &offset}) {
    RequireSimulated(*tensor, {c10::ScalarType::Long});
    if (tensor->numel() != 1) {
      RefuseArgument(tensor->name(), "one value", "shape " + Describe(tensor->sizes()));
    }
  }
  return [=] {
    return PhiloxState{static_cast<uint64_t>(at::Tensor(seed).item<int64_t>()),
                       static_cast<uint64_t>(at::Tensor(offset).item<int64_t>() + offset_in_graph)};
  };
}

}  // namespace cann_sim::operators
