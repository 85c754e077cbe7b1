// Embedding bags, renormalised and trained embeddings, and the writes by index that go with them.

#include <ATen/ops/_embedding_bag_forward_only.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/embedding_renorm.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

// mode: 0 sum, 1 mean, 2 largest. Outputs that the caller left empty are not written.
CANN_SIM_OPERATOR(aclnnEmbeddingBag, (Tensor, weight), (Tensor, indices), (Tensor, offsets), (Bool, scaleGradByFreq),
                  (Int, mode), (Bool, sparse), (OptionalTensor, perSampleWeights), (Bool, includeLastOffset),
                  (Int, paddingIdx), (Tensor, output), (Tensor, offset2bag), (Tensor, bagSize), (Tensor, maxIndices)) {
  RequireSimulated(weight, kFloats);
  RequireRank(weight, 2, 2);
  RequireSimulated(indices, kIntegers);
  RequireSimulated(offsets, kIntegers);
  RequireRank(indices, 1, 1);
  RequireRank(offsets, 1, 1);
  if (mode < 0 || mode > 2) {
    RefuseArgument(mode.name(), "0 (sum), 1 (mean) or 2 (max)", std::to_string(mode));
  }
  RequireShape(output, {offsets.size(0) - (includeLastOffset ? 1 : 0), weight.size(1)});
  return [=] {
    const auto [sums, bags, sizes, largest] = at::_embedding_bag_forward_only(
        weight.Widened(), at::Tensor(indices).to(at::kLong), at::Tensor(offsets).to(at::kLong), scaleGradByFreq, mode,
        false, perSampleWeights.Widened(), includeLastOffset, paddingIdx);
    output.Store(sums);
    const std::pair<const Tensor*, const at::Tensor*> rest[] = {
        {&offset2bag, &bags}, {&bagSize, &sizes}, {&maxIndices, &largest}};
    for (const auto& [target, values] : rest) {
      if (target->sizes() == values->sizes()) {
        target->Store(*values);
      }
    }
  };
}

// Rows that `indices` names are scaled down to the norm `maxNorm`, once each.
CANN_SIM_OPERATOR(aclnnEmbeddingRenorm, (Tensor, selfRef), (Tensor, indices), (Double, maxNorm), (Double, normType)) {
  RequireSimulated(selfRef, kFloats);
  RequireSimulated(indices, kIndices);
  RequireRank(selfRef, 2, 2);
  return [=] {
    at::Tensor wide = selfRef.Widened().clone();
    selfRef.Store(at::embedding_renorm_(wide, at::Tensor(indices).to(at::kLong), maxNorm, normType));
  };
}

CANN_SIM_OPERATOR(aclnnEmbeddingDenseBackward, (Tensor, grad), (Tensor, indices), (Int, numWeights), (Int, paddingIdx),
                  (Bool, scaleGradByFreq), (Tensor, out)) {
  RequireSimulated(grad, kFloats);
  RequireSimulated(indices, kIndices);
  RequireShape(out, {numWeights.value(), grad.size(-1)});
  return [=] {
    out.Store(at::embedding_dense_backward(grad.Widened(), at::Tensor(indices).to(at::kLong), numWeights.value(),
                                           paddingIdx.value(), scaleGradByFreq));
  };
}

CANN_SIM_OPERATOR(aclnnInplacePut, (Tensor, selfRef), (Tensor, index), (Tensor, source), (Bool, accumulate)) {
  RequireSimulated(selfRef, kReals);
  RequireSimulated(index, kIndices);
  RequireSameDtype(source, selfRef);
  return [=] { at::Tensor(selfRef).put_(at::Tensor(index).to(at::kLong), source, accumulate); };
}

CANN_SIM_OPERATOR(aclnnIndexAddV2, (Tensor, self), (Int, dim), (Tensor, index), (Tensor, source), (Scalar, alpha),
                  (Int, mode), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireSimulated(index, kIndices);
  RequireSameDtype(source, self);
  RequireShape(out, self.sizes());
  WrapDim(dim, self.rank());
  if (self.is_floating_point()) {
    return [=] { out.Store(at::index_add(self.Widened(), dim, index, source.Widened(), alpha)); };
  }
  return [=] { out.Store(at::index_add(self, dim, index, source, alpha)); };
}

// Rows of `self` along `dim`, one for each index.
CANN_SIM_OPERATOR(aclnnGatherV3, (Tensor, self), (Int, dim), (Tensor, index), (Int, batchDims), (Int, mode),
                  (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireSimulated(index, kIndices);
  RequireSameDtype(out, self);
  if (batchDims != 0) {
    RefuseArgument(batchDims.name(), "0", std::to_string(batchDims));
  }
  const int64_t axis = WrapDim(dim, self.rank());
  return [=] {
    out.Store(at::index_select(self, axis, at::Tensor(index).reshape({-1})).view(out.sizes()));
  };
}

}  // namespace cann_sim::operators
