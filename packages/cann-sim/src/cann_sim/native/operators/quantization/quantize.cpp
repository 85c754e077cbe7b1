// Quantising with given scales, and with the scale of each row.

#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/div.h>
#include <ATen/ops/mul.h>

#include "../interface/operator.h"
#include "quantization.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kBlockRows = 16;
constexpr int64_t kInt4PerBlockRow = 64;

// `values`, one for all or one for each index of dimension `axis` of a tensor of `rank` dimensions, so that it broadcasts.
at::Tensor AlongAxis(const at::Tensor& values, int64_t axis, int rank) {
  std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(axis)] = values.numel();
  return values.reshape(shape);
}

void RequireOneOrAxis(const Tensor& scales, const Tensor& x, int64_t axis) {
  const int64_t size = x.size(static_cast<int>(axis));
  if (scales.numel() != 1 && scales.numel() != size) {
    RefuseArgument(scales.name(), "1 or " + std::to_string(size) + " elements, the size of dimension " +
                   std::to_string(axis) + " of '" + x.name() + "'", "shape " + Describe(scales.sizes()));
  }
}

void RequireAbsentOr(const OptionalTensor& tensor, const Tensor& reference) {
  if (tensor) {
    RequireSameDtype(*tensor, reference);
    RequireShape(*tensor, reference.sizes());
  }
}

// [E, K, N] of float32 into int4, both in the NZ format.
void RequireBlocksOfInt4(const Tensor& x, const Tensor& y) {
  RequireDtype(x, {ScalarType::Float});
  RequireRank(x, 3, 3);
  if (x.size(1) % kBlockRows != 0 || x.size(2) % kInt4PerBlockRow != 0) {
    RefuseArgument(x.name(), "whole NZ blocks of 16 rows and 64 columns", Describe(x.sizes()));
  }
  if (y.dtype() != ScalarType::Int || !y.is_nz()) {
    RefuseArgument(y.name(), "int4 (torch.quint4x2) in the NZ format, as 'x' has it", y.is_nz() ? "int8" : "a plain format");
  }
}

}  // namespace

// out = round(x / scales + zeroPoints).
CANN_SIM_OPERATOR(aclnnQuantize, (Tensor, x), (Tensor, scales), (OptionalTensor, zeroPoints), (DataType, dtype),
                  (Int, axis), (Tensor, out)) {
  RequireDtype(x, kFloats);
  RequireRank(x, 1, kMaxRank);
  RequireDtype(scales, kFloats);
  RequireRank(scales, 1, 1);
  RequireDtype(out, {ScalarType::Char, ScalarType::Byte, ScalarType::Int});
  RequireShape(out, x.sizes());
  const int64_t dim = WrapDim(axis, x.rank(), "axis");
  RequireOneOrAxis(scales, x, dim);
  const bool bfloat16 = scales.dtype() == ScalarType::BFloat16 ||
                        (zeroPoints && zeroPoints->dtype() == ScalarType::BFloat16);
  if (bfloat16) {
    RequireDtype(x, {ScalarType::BFloat16});
    RequireDtype(scales, {ScalarType::BFloat16});
  }
  if (zeroPoints) {
    RequireDtype(*zeroPoints, bfloat16 ? DtypeSet{ScalarType::BFloat16}
                                       : DtypeSet{ScalarType::Char, ScalarType::Byte, ScalarType::Int});
    RequireShape(*zeroPoints, scales.sizes());
  }
  return [=] {
    at::Tensor values = at::div(x.Widened(), AlongAxis(scales.Widened(), dim, x.rank()));
    if (zeroPoints) {
      values = at::add(values, AlongAxis(zeroPoints->Widened(), dim, x.rank()));
    }
    StoreRounded(out, values);
  };
}

// y = round(x * scale + offset); sqrtMode: scale twice. The kernel for NZ blocks makes whole blocks of 64 int4 out of float32, and
// has no scale: it has to be 1.
CANN_SIM_OPERATOR(aclnnAscendQuantV3, (Tensor, x), (Tensor, scale), (OptionalTensor, offset), (Bool, sqrtMode),
                  (Text, roundMode), (DataType, dstType), (Int, axis), (Tensor, y)) {
  RequireDtype(x, kFloats);
  RequireRank(x, 1, kMaxRank);
  if (x.dtype() == ScalarType::Float) {
    RequireDtype(scale, kFloats);
  } else {
    RequireSameDtype(scale, x);
  }
  RequireAbsentOr(offset, scale);
  RequireQuantized(y, x.sizes());
  if (roundMode.value() != "round") {
    RefuseArgument(roundMode.name(), "round, the only mode torch_npu asks for", roundMode.value());
  }
  const int64_t dim = WrapDim(axis, x.rank(), "axis");
  if (dim < x.rank() - 2) {
    RefuseArgument("axis", "one of the last two dimensions of shape " + Describe(x.sizes()), std::to_string(dim));
  }
  RequireOneOrAxis(scale, x, dim);
  if (scale.rank() != 1 && (scale.rank() != x.rank() || scale.numel() != scale.size(static_cast<int>(dim)))) {
    RefuseArgument(scale.name(), "1 dimension, or those of 'x' with size 1 but for dimension " + std::to_string(dim),
                   "shape " + Describe(scale.sizes()));
  }
  if (x.is_nz()) {
    RequireBlocksOfInt4(x, y);
    if (dim != x.rank() - 1) {
      RefuseArgument("axis", "-1 beside the NZ format", std::to_string(dim));
    }
    RefuseIfPresent(offset, "an offset beside the NZ format");
  }
  return [=] {
    const at::Tensor factor = AlongAxis(scale.Widened(), dim, x.rank());
    if (x.is_nz() && !factor.eq(1).all().item<bool>()) {
      throw Refusal("argument 'scale': expected 1 beside the NZ format, found other values");
    }
    at::Tensor values = at::mul(x.Widened(), factor);
    if (sqrtMode) {
      values = at::mul(values, factor);
    }
    if (offset) {
      values = at::add(values, AlongAxis(offset->Widened(), dim, x.rank()));
    }
    StoreQuantized(y, values);
  };
}

// scale = max |row| / 127, y = round(row / scale), after multiplying with the smoothing factors. Where `offset` is given the
// range of the row is used: scale = (max - min) / 255, offset = 127 - max / scale, y = round(row / scale + offset).
CANN_SIM_OPERATOR(aclnnDynamicQuantV2, (Tensor, x), (OptionalTensor, smoothScales), (OptionalTensor, groupIndex),
                  (DataType, dstType), (Tensor, y), (Tensor, scale), (OptionalTensor, offset)) {
  RequireDtype(x, kHalves);
  RequireRank(x, 2, kMaxRank);
  RequireQuantized(y, x.sizes());
  const c10::IntArrayRef rows = x.sizes().slice(0, static_cast<size_t>(x.rank()) - 1);
  RequireDtype(scale, {ScalarType::Float});
  RequireShape(scale, rows);
  if (offset) {
    RequireSameDtype(*offset, scale);
    RequireShape(*offset, rows);
  }
  if (smoothScales) {
    RequireSameDtype(*smoothScales, x);
    if (groupIndex) {
      RequireDtype(*groupIndex, {ScalarType::Int});
      RequireRank(*groupIndex, 1, 1);
      RequireShape(*smoothScales, {groupIndex->size(0), x.size(-1)});
    } else {
      RequireShape(*smoothScales, {x.size(-1)});
    }
  } else if (groupIndex) {
    RefuseArgument(groupIndex.name(), "smoothScales beside it", "none");
  }
  return [=] {
    at::Tensor values = x.Widened();
    if (groupIndex) {
      const at::Tensor flat = values.reshape({-1, x.size(-1)});
      const at::Tensor factors = SpreadGroups(smoothScales->Widened(), *groupIndex, flat.size(0), 1);
      values = at::mul(flat, factors).view(x.sizes());
    } else if (smoothScales) {
      values = at::mul(values, smoothScales->Widened());
    }
    if (values.numel() == 0) {
      return;
    }
    if (!offset) {
      const ScaledRows scaled = ScaleRows(values, LargestQuantized(y));
      StoreQuantized(y, scaled.values);
      scale.Store(scaled.scale);
      return;
    }
    const double largest = LargestQuantized(y);
    const at::Tensor most = at::amax(values, {-1}, true);
    // The device's kernel does not let the scale fall below 1e-12.
    const at::Tensor step = most.sub(at::amin(values, {-1}, true)).div_(2 * largest + 1).clamp_min_(1e-12);
    const at::Tensor shift = at::div(most, step).neg_().add_(largest);
    StoreQuantized(y, at::add(at::mul(values, step.reciprocal()), shift));
    scale.Store(step.squeeze(-1));
    offset->Store(shift.squeeze(-1));
  };
}

}  // namespace cann_sim::operators
