// A call of the older road to operators, as it goes from the operator compiler's library, which knows no torch, to this one.
#pragma once

#include <acl/acl_base_rt.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace cann_sim {

// Memory of the caller, without strides: torch_npu makes tensors contiguous on this road.
struct CompiledTensor {
  aclDataType type = ACL_DT_UNDEFINED;  // undefined where an optional input is absent
  aclFormat format = ACL_FORMAT_ND;
  std::vector<int64_t> sizes;          // of the storage
  std::vector<int64_t> view_sizes;     // what a user sees; others only in an internal format
  void* address = nullptr;
  bool on_host = false;  // then only there until the call returns
};

using CompiledAttribute = std::variant<bool, int64_t, float, std::string, aclDataType, std::vector<bool>, std::vector<int64_t>,
                                       std::vector<float>, std::vector<std::vector<int64_t>>>;

struct CompiledCall {
  std::vector<CompiledTensor> inputs;
  std::vector<CompiledTensor> outputs;
  std::map<std::string, CompiledAttribute> attributes;
};

// Before the name of an operator: the name of the function that prepares and launches it.
inline constexpr const char* kCompiledPrefix = "cann_sim_compiled_";
using CompiledOperator = aclError(const CompiledCall& call, aclrtStream stream);

}  // namespace cann_sim
