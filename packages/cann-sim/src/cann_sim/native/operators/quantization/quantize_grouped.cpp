// Quantising rows with the scales of their groups.

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>

#include "../interface/operator.h"
#include "quantization.h"

namespace cann_sim::operators {

// y = round(x * scale of the row's group + offset); groupIndex holds the end of each group, the last of them that of x.
CANN_SIM_OPERATOR(aclnnGroupQuant, (Tensor, x), (Tensor, scale), (Tensor, groupIndex), (OptionalTensor, offset),
                  (DataType, dstType), (Tensor, y)) {
  RequireDtype(x, kFloats);
  RequireRank(x, 2, 2);
  RequireDtype(scale, kFloats);
  RequireRank(scale, 2, 2);
  RequireDtype(groupIndex, kIndices);
  RequireShape(groupIndex, {scale.size(0)});
  RequireShape(scale, {scale.size(0), x.size(1)});
  if (offset) {
    RequireSameDtype(*offset, scale);
    if (offset->numel() != 1) {
      RefuseArgument(offset.name(), "one element", Describe(offset->sizes()));
    }
  }
  RequireQuantized(y, x.sizes());
  return [=] {
    const at::Tensor ends = groupIndex;
    int64_t before = 0;
    for (int64_t group = 0; group < ends.size(0); ++group) {
      const int64_t end = ends[group].item<int64_t>();
      if (end < before || end > x.size(0) || (group + 1 == ends.size(0) && end != x.size(0))) {
        throw Refusal("argument 'groupIndex': expected ends that never fall, the last of them " +
                      std::to_string(x.size(0)) + ", found " + std::to_string(end));
      }
      before = end;
    }
    at::Tensor values = at::mul(x.Widened(), SpreadGroups(scale.Widened(), ends, x.size(0), 1));
    if (offset) {
      values = at::add(values, offset->Widened().reshape({}));
    }
    StoreQuantized(y, values);
  };
}

}  // namespace cann_sim::operators
