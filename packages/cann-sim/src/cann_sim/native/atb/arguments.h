// The tensors of one ATB call as an operation's definition sees them.
#pragma once

#include <cstdint>
#include <vector>

#include "../operators/interface/argument.h"
#include "interface.h"

namespace cann_sim::atb_library {

// The tensors of a call by position, each with the name that messages give it. Reads host memory at once; the memory of the
// device stays the caller's, as that of every launch.
class Arguments {
 public:
  explicit Arguments(const atb::VariantPack& tensors) : tensors_(tensors) {}

  // Refuses another number of tensors.
  void RequireCounts(size_t inputs, size_t outputs) const;

  operators::Tensor Input(size_t index, const char* name) const;
  // Absent where the caller gave no tensor.
  operators::OptionalTensor OptionalInput(size_t index, const char* name) const;
  operators::Tensor Output(size_t index, const char* name) const;
  // The values of an int32 tensor in host memory, as lengths are given: they become part of the launch.
  std::vector<int64_t> HostInput(size_t index, const char* name) const;

 private:
  const atb::VariantPack& tensors_;
};

// The values of an int32 tensor of `torch_npu` in host memory.
std::vector<int64_t> HostValues(const operators::Tensor& tensor);

}  // namespace cann_sim::atb_library
