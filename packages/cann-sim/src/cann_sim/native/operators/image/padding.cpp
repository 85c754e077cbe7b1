// Padding by reflection and by repetition of the edge, and the gradients: exact forwards, added in float32 backwards.

#include <ATen/ops/reflection_pad1d.h>
#include <ATen/ops/reflection_pad1d_backward.h>
#include <ATen/ops/reflection_pad2d.h>
#include <ATen/ops/reflection_pad2d_backward.h>
#include <ATen/ops/reflection_pad3d.h>
#include <ATen/ops/reflection_pad3d_backward.h>
#include <ATen/ops/replication_pad1d.h>
#include <ATen/ops/replication_pad1d_backward.h>
#include <ATen/ops/replication_pad2d.h>
#include <ATen/ops/replication_pad2d_backward.h>
#include <ATen/ops/replication_pad3d.h>
#include <ATen/ops/replication_pad3d_backward.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

void RequirePadding(const Tensor& self, const IntArray& padding, int dims) {
  RequireRank(self, dims + 1, dims + 2);
  if (padding.values().size() != static_cast<size_t>(2 * dims)) {
    RefuseArgument(padding.name(), std::to_string(2 * dims) + " numbers", Describe(padding));
  }
}

}  // namespace

#define CANN_SIM_PADDING(Name, function, dims)                                                                        \
  CANN_SIM_OPERATOR(aclnn##Name, (Tensor, self), (IntArray, padding), (Tensor, out)) {                                \
    RequireSimulated(self, kFloats | kDouble | kIntegers);                                                                \
    RequireSameDtype(out, self);                                                                                      \
    RequirePadding(self, padding, dims);                                                                              \
    return [=] { out.Store(at::function(self, padding)); };                                                           \
  }                                                                                                                   \
  CANN_SIM_OPERATOR(aclnn##Name##Backward, (Tensor, gradOutput), (Tensor, self), (IntArray, padding),                 \
                    (Tensor, gradInput)) {                                                                            \
    RequireSimulated(gradOutput, kFloats | kDouble);                                                                      \
    RequirePadding(self, padding, dims);                                                                              \
    RequireShape(gradInput, self.sizes());                                                                            \
    return [=] { gradInput.Store(at::function##_backward(gradOutput.Widened(), self.Widened(), padding)); };          \
  }

CANN_SIM_PADDING(ReflectionPad1d, reflection_pad1d, 1)
CANN_SIM_PADDING(ReflectionPad2d, reflection_pad2d, 2)
CANN_SIM_PADDING(ReflectionPad3d, reflection_pad3d, 3)
CANN_SIM_PADDING(ReplicationPad1d, replication_pad1d, 1)
CANN_SIM_PADDING(ReplicationPad2d, replication_pad2d, 2)
CANN_SIM_PADDING(ReplicationPad3d, replication_pad3d, 3)

}  // namespace cann_sim::operators
