// Joining, repeating and rearranging tensors. Exact in every dtype.

#include <ATen/ops/_chunk_cat.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/channel_shuffle.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/unfold_backward.h>

#include <algorithm>

#include "../interface/operator.h"

namespace cann_sim::operators {

CANN_SIM_OPERATOR(aclnnCat, (TensorList, tensors), (Int, dim), (Tensor, out)) {
  if (tensors.size() == 0) {
    RefuseArgument(tensors.name(), "at least one tensor", "an empty list");
  }
  const int64_t axis = WrapDim(dim, out.rank());
  std::vector<int64_t> expected;
  for (const OptionalTensor& tensor : tensors) {
    if (!tensor || tensor->is_placeholder()) {
      continue;
    }
    if (expected.empty()) {
      expected = tensor->sizes().vec();
      if (expected.size() <= static_cast<size_t>(axis)) {
        RefuseArgument(tensors.name(), "tensors of " + std::to_string(out.rank()) + " dimensions",
                       "shape " + Describe(tensor->sizes()));
      }
    } else {
      std::vector<int64_t> joined = expected;
      if (tensor->rank() == static_cast<int>(expected.size())) {
        expected[static_cast<size_t>(axis)] += tensor->size(static_cast<int>(axis));
        joined[static_cast<size_t>(axis)] = tensor->size(static_cast<int>(axis));
      }
      if (tensor->sizes() != c10::IntArrayRef(joined)) {
        RefuseArgument(tensors.name(), "shapes that agree with " + Describe(joined) + " but for dimension " +
                                           std::to_string(axis), Describe(tensor->sizes()));
      }
    }
  }
  if (!expected.empty()) {
    RequireShape(out, expected);
  }
  return [=] { out.Store(at::cat(tensors.AtTensors(), dim)); };
}

CANN_SIM_OPERATOR(aclnnStack, (TensorList, tensors), (Int, dim), (Tensor, out)) {
  if (tensors.size() == 0) {
    RefuseArgument(tensors.name(), "at least one tensor", "an empty list");
  }
  std::vector<int64_t> expected = tensors[0]->sizes().vec();
  for (const OptionalTensor& tensor : tensors) {
    RequireShape(*tensor, expected);
  }
  const int64_t axis = WrapDim(dim, static_cast<int>(expected.size()) + 1);
  expected.insert(expected.begin() + axis, static_cast<int64_t>(tensors.size()));
  RequireShape(out, expected);
  return [=] { out.Store(at::stack(tensors.AtTensors(), axis)); };
}

CANN_SIM_OPERATOR(aclnnSplitWithSize, (Tensor, self), (IntArray, splitSize), (Int, dim), (TensorList, out)) {
  WrapDim(dim, self.rank());
  if (out.size() != splitSize.values().size()) {
    RefuseArgument(out.name(), std::to_string(splitSize.values().size()) + " tensors", std::to_string(out.size()));
  }
  return [=] {
    const std::vector<at::Tensor> pieces = at::split_with_sizes(self, splitSize, dim);
    for (size_t index = 0; index < pieces.size(); ++index) {
      out[index]->Store(pieces[index]);
    }
  };
}

CANN_SIM_OPERATOR(aclnnRepeat, (Tensor, self), (IntArray, repeats), (Tensor, out)) {
  const std::vector<int64_t>& times = repeats.values();
  if (times.size() < static_cast<size_t>(self.rank())) {
    RefuseArgument(repeats.name(), "at least " + std::to_string(self.rank()) + " numbers", Describe(times));
  }
  std::vector<int64_t> expected = times;
  const size_t lead = times.size() - static_cast<size_t>(self.rank());
  for (int dim = 0; dim < self.rank(); ++dim) {
    expected[lead + static_cast<size_t>(dim)] *= self.size(dim);
  }
  RequireShape(out, expected);
  return [=] { out.Store(at::Tensor(self).repeat(repeats)); };
}

CANN_SIM_OPERATOR(aclnnRepeatInterleaveInt, (Tensor, self), (Int, repeats), (Int, outputSize), (Tensor, out)) {
  return [=] { out.Store(at::repeat_interleave(self, repeats.value())); };
}
CANN_SIM_OPERATOR(aclnnRepeatInterleaveIntWithDim, (Tensor, self), (Int, repeats), (Int, dim), (Int, outputSize),
                  (Tensor, out)) {
  WrapDim(dim, self.rank());
  return [=] { out.Store(at::repeat_interleave(self, repeats.value(), dim.value())); };
}
CANN_SIM_OPERATOR(aclnnRepeatInterleave, (Tensor, self), (Tensor, repeats), (Int, outputSize), (Tensor, out)) {
  RequireSimulated(repeats, kIndices);
  return [=] { out.Store(at::repeat_interleave(self, at::Tensor(repeats))); };
}
CANN_SIM_OPERATOR(aclnnRepeatInterleaveWithDim, (Tensor, self), (Tensor, repeats), (Int, dim), (Int, outputSize),
                  (Tensor, out)) {
  RequireSimulated(repeats, kIndices);
  WrapDim(dim, self.rank());
  return [=] { out.Store(at::repeat_interleave(self, at::Tensor(repeats), dim.value())); };
}

CANN_SIM_OPERATOR(aclnnFlip, (Tensor, self), (IntArray, dims), (Tensor, out)) {
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::flip(self, dims)); };
}

CANN_SIM_OPERATOR(aclnnRoll, (Tensor, self), (IntArray, shifts), (IntArray, dims), (Tensor, out)) {
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::roll(self, shifts, dims)); };
}

CANN_SIM_OPERATOR(aclnnConstantPadNd, (Tensor, self), (IntArray, pad), (Scalar, value), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireSameDtype(out, self);
  if (pad.values().size() % 2 != 0 || pad.values().size() / 2 > static_cast<size_t>(self.rank())) {
    RefuseArgument(pad.name(), "two numbers for each padded dimension", Describe(pad));
  }
  return [=] { out.Store(at::constant_pad_nd(self, pad, value)); };
}

// The index of each row as often as `repeats` says.
CANN_SIM_OPERATOR(aclnnRepeatInterleaveTensor, (Tensor, repeats), (Int, outputSize), (Tensor, out)) {
  RequireSimulated(repeats, kIndices);
  RequireRank(repeats, 1, 1);
  return [=] { out.Store(at::repeat_interleave(at::Tensor(repeats))); };
}

CANN_SIM_OPERATOR(aclnnChannelShuffle, (Tensor, self), (Int, groups), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireRank(self, 3, 7);
  RequireShape(out, self.sizes());
  if (groups <= 0 || self.size(1) % groups != 0) {
    RefuseArgument(groups.name(), "a divisor of the " + std::to_string(self.size(1)) + " channels",
                   std::to_string(groups));
  }
  return [=] { out.Store(at::channel_shuffle(self, groups.value())); };
}

CANN_SIM_OPERATOR(aclnnChunkCat, (TensorList, tensors), (Int, dim), (Int, numChunks), (Tensor, out)) {
  if (tensors.size() == 0) {
    RefuseArgument(tensors.name(), "at least one tensor", "an empty list");
  }
  return [=] { out.Store(at::_chunk_cat(tensors.AtTensors(), dim, numChunks)); };
}

CANN_SIM_OPERATOR(aclnnInplaceFillDiagonal, (Tensor, selfRef), (Scalar, fillValue), (Bool, wrap)) {
  RequireSimulated(selfRef, kReals);
  RequireRank(selfRef, 2, kMaxRank);
  return [=] { at::Tensor(selfRef).fill_diagonal_(fillValue, wrap); };
}

CANN_SIM_OPERATOR(aclnnIm2col, (Tensor, self), (IntArray, kernelSize), (IntArray, dilation), (IntArray, padding),
                  (IntArray, stride), (Tensor, out)) {
  RequireSimulated(self, kFloats);
  RequireRank(self, 3, 4);
  RequireSameDtype(out, self);
  return [=] { out.Store(at::im2col(self, kernelSize, dilation, padding, stride)); };
}

// Overlapping patches are added in float32.
CANN_SIM_OPERATOR(aclnnIm2colBackward, (Tensor, gradOutput), (IntArray, inputSize), (IntArray, kernelSize),
                  (IntArray, dilation), (IntArray, padding), (IntArray, stride), (Tensor, out)) {
  RequireSimulated(gradOutput, kFloats);
  RequireRank(gradOutput, 2, 3);
  return [=] { out.Store(at::col2im(gradOutput.Widened(), inputSize, kernelSize, dilation, padding, stride)); };
}

CANN_SIM_OPERATOR(aclnnUnfoldGrad, (Tensor, gradOut), (IntArray, inputSizes), (Int, dim), (Int, size), (Int, step),
                  (Tensor, gradIn)) {
  RequireSimulated(gradOut, kFloats);
  RequireShape(gradIn, inputSizes);
  return [=] { gradIn.Store(at::unfold_backward(gradOut.Widened(), inputSizes, dim, size, step)); };
}

}  // namespace cann_sim::operators
