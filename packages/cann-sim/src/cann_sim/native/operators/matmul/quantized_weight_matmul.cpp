// Products with a quantised right matrix, and products of permuted factors.

#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>

#include "../interface/operator.h"
#include "../quantization/quantization.h"
#include "quantized_grouped_matmul.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

// Scales of columns as [1 or groups, columns]. One dimension is one scale, or one for each column.
void RequireColumnScales(const Tensor& scale, int64_t inner, int64_t columns, int64_t group_size) {
  const int64_t groups = group_size == 0 ? 1 : (inner + group_size - 1) / group_size;
  const bool one = group_size == 0 && scale.numel() == 1;
  const bool fits = scale.rank() == 1 ? groups == 1 && scale.size(0) == columns
                                      : scale.rank() == 2 && scale.size(0) == groups && scale.size(1) == columns;
  if (!one && !fits) {
    RefuseArgument(scale.name(), "[1] or [" + std::to_string(groups) + ", " + std::to_string(columns) + "]",
                   Describe(scale.sizes()));
  }
}

// y = x @ ((weight + offset) * scale) + bias, where the product in brackets is rounded to the dtype of x; then, with a quantScale,
// y = round(y * quantScale + quantOffset).
Plan WeightQuantMatmul(const Tensor& x, const Tensor& weight, const Tensor& scale, const OptionalTensor& offset,
                       const OptionalTensor& quant_scale, const OptionalTensor& quant_offset, const OptionalTensor& bias,
                       int64_t group_size, const Tensor& y) {
  RequireDtype(x, kHalves);
  RequireRank(x, 2, 2);
  RequireDtype(weight, {ScalarType::Char, ScalarType::Int});
  RequireRank(weight, 2, 2);
  const bool transposed = IsTransposedMatrix(weight) && !weight.is_contiguous();
  const bool packed = weight.dtype() == ScalarType::Int;
  const int64_t inner = weight.size(0) * (packed && transposed ? kInt4PerInt32 : 1);
  const int64_t columns = weight.size(1) * (packed && !transposed ? kInt4PerInt32 : 1);
  if (x.size(1) != inner) {
    RefuseArgument(weight.name(), std::to_string(x.size(1)) + " rows, the width of 'x'", Describe(weight.sizes()));
  }
  if (!weight.is_contiguous() && !transposed && !weight.is_nz()) {
    RefuseArgument(weight.name(), "a contiguous matrix or its transpose", "strides " + Describe(weight.strides()));
  }
  const DtypeSet packed_scale{ScalarType::Long, ScalarType::UInt64};
  const bool integer_scale = packed_scale.contains(scale.dtype());
  RequireDtype(scale, DtypeSet{x.dtype()} | packed_scale);
  if (integer_scale && (x.dtype() != ScalarType::Half || packed)) {
    RefuseArgument(scale.name(), "the dtype of 'x' beside a bfloat16 'x' or an int4 'weight'", "int64");
  }
  if (group_size != 0 && (group_size < 32 || group_size % 32 != 0 || group_size > inner - 1)) {
    RefuseArgument("antiquantGroupSize", "0 or a multiple of 32 below " + std::to_string(inner), std::to_string(group_size));
  }
  RequireColumnScales(scale, inner, columns, group_size);
  if (offset) {
    RequireDtype(*offset, {integer_scale ? ScalarType::Int : x.dtype()});
    RequireShape(*offset, scale.sizes());
  }
  if (bias) {
    RequireDtype(*bias, {x.dtype() == ScalarType::Half ? ScalarType::Half : ScalarType::Float});
    if (bias->numel() != columns) {
      RefuseArgument(bias->name(), std::to_string(columns) + " elements", Describe(bias->sizes()));
    }
  }
  RequireShape(y, {x.size(0), columns});
  if (quant_scale) {
    RequireDtype(y, {ScalarType::Char});
    RequireDtype(*quant_scale, packed_scale);
    if (quant_scale->numel() != 1 && quant_scale->numel() != columns) {
      RefuseArgument(quant_scale.name(), "1 or " + std::to_string(columns) + " elements", Describe(quant_scale->sizes()));
    }
    if (quant_offset) {
      RequireDtype(*quant_offset, {ScalarType::Float});
    }
  } else {
    RequireSameDtype(y, x);
  }
  return [=] {
    const at::Tensor matrix = IntegerMatrix(weight, transposed);
    const auto spread = [&](const at::Tensor& parameters) {
      const at::Tensor rows = parameters.dim() == 2 ? parameters : parameters.reshape({1, -1});
      return rows.size(0) == 1 ? rows : rows.repeat_interleave(group_size, 0).narrow(0, 0, matrix.size(0));
    };
    at::Tensor wide = matrix;
    if (offset) {
      wide = at::add(wide, spread(offset->Widened()));
    }
    wide = at::mul(wide, spread(WidenScale(scale).view(scale.sizes()))).to(x.dtype()).to(at::kFloat);
    at::Tensor values = at::matmul(x.Widened(), wide);
    if (bias) {
      values = at::add(values, bias->Widened().reshape({-1}));
    }
    if (!quant_scale) {
      y.Store(values);
      return;
    }
    values = at::mul(values, WidenScale(*quant_scale).reshape({-1}));
    if (quant_offset) {
      values = at::add(values, quant_offset->Widened().reshape({-1}));
    }
    StoreRounded(y, values);
  };
}

// Batches of products of permuted factors, with the result permuted: [b, m, n] as [m, b, n], or cut into pieces of b.
Plan TransposedBatchMatmul(const Tensor& x1, const Tensor& x2, const OptionalTensor& bias, const OptionalTensor& scale,
                           const IntArray& permX1, const IntArray& permX2, const IntArray& permY, int64_t batchSplitFactor,
                           const Tensor& out) {
  RequireDtype(x1, kFloats);
  RequireSameDtype(x2, x1);
  RequireRank(x1, 3, 3);
  RequireRank(x2, 3, 3);
  RefuseIfPresent(bias, "a bias");
  const std::vector<int64_t> kept{0, 1, 2}, batch_inside{1, 0, 2}, transposed{0, 2, 1};
  if (permX1.values() != kept && permX1.values() != batch_inside) {
    RefuseArgument(permX1.name(), "[0, 1, 2] or [1, 0, 2]", Describe(permX1));
  }
  if (permX2.values() != kept && permX2.values() != transposed) {
    RefuseArgument(permX2.name(), "[0, 1, 2] or [0, 2, 1]", Describe(permX2));
  }
  if (permX2.values() == transposed && (scale || batchSplitFactor != 1 || permX1.values() != batch_inside)) {
    RefuseArgument(permX2.name(), "[0, 1, 2] beside a scale, pieces, or a permX1 other than [1, 0, 2]", Describe(permX2));
  }
  if (permY.values() != batch_inside) {
    RefuseArgument(permY.name(), "[1, 0, 2]", Describe(permY));
  }
  const auto size = [](const Tensor& x, const IntArray& order, size_t dim) {
    return x.size(static_cast<int>(order.values()[dim]));
  };
  const int64_t batch = size(x1, permX1, 0);
  const int64_t rows = size(x1, permX1, 1);
  const int64_t columns = size(x2, permX2, 2);
  if (size(x2, permX2, 0) != batch || size(x2, permX2, 1) != size(x1, permX1, 2)) {
    RefuseArgument(x2.name(), "a batch of " + std::to_string(batch) + " matrices with " + std::to_string(size(x1, permX1, 2)) +
                                  " rows", Describe(x2.sizes()));
  }
  const int64_t pieces = batchSplitFactor;
  if (pieces <= 0 || batch % pieces != 0 || (scale && pieces != 1)) {
    RefuseArgument("batchSplitFactor", "a divisor of " + std::to_string(batch) + ", 1 beside a scale",
                   std::to_string(pieces));
  }
  if (scale) {
    RequireDtype(*scale, {ScalarType::Long, ScalarType::UInt64});
    RequireShape(*scale, {batch * columns});
    RequireDtype(x1, {ScalarType::Half});
    RequireDtype(out, kFloats | DtypeSet{ScalarType::Char});
    RequireShape(out, {rows, 1, batch * columns});
  } else {
    RequireSameDtype(out, x1);
    if (pieces == 1) {
      RequireShape(out, {rows, batch, columns});
    } else {
      RequireShape(out, {pieces, rows, batch * columns / pieces});
    }
  }
  return [=] {
    const at::Tensor product =
        at::matmul(x1.Widened().permute(permX1.values()), x2.Widened().permute(permX2.values())).transpose(0, 1);
    if (scale) {
      // The kernel's own result is int8; torch_npu requests it in the dtype of the factors.
      StoreRounded(out, at::mul(product.reshape({rows, 1, -1}), WidenScale(*scale)));
    } else if (pieces == 1) {
      out.Store(product);
    } else {
      out.Store(product.reshape({rows, pieces, -1}).transpose(0, 1));
    }
  };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnWeightQuantBatchMatmulV2, (Tensor, x), (Tensor, weight), (Tensor, antiquantScale),
                  (OptionalTensor, antiquantOffset), (OptionalTensor, quantScale), (OptionalTensor, quantOffset),
                  (OptionalTensor, bias), (Int32, antiquantGroupSize), (Tensor, y)) {
  return WeightQuantMatmul(x, weight, antiquantScale, antiquantOffset, quantScale, quantOffset, bias, antiquantGroupSize, y);
}

CANN_SIM_OPERATOR(aclnnWeightQuantBatchMatmulV3, (Tensor, x), (Tensor, weight), (Tensor, antiquantScale),
                  (OptionalTensor, antiquantOffset), (OptionalTensor, quantScale), (OptionalTensor, quantOffset),
                  (OptionalTensor, bias), (Int32, antiquantGroupSize), (Int32, innerPrecise), (Tensor, y)) {
  if (innerPrecise != 0 && innerPrecise != 1) {
    RefuseArgument(innerPrecise.name(), "0 or 1", std::to_string(innerPrecise));
  }
  return WeightQuantMatmul(x, weight, antiquantScale, antiquantOffset, quantScale, quantOffset, bias, antiquantGroupSize, y);
}

#define CANN_SIM_TRANSPOSED_PRODUCT                                                                                    \
  (Tensor, x1), (Tensor, x2), (OptionalTensor, bias), (OptionalTensor, scale), (IntArray, permX1), (IntArray, permX2), \
      (IntArray, permY), (Int8, cubeMathType), (Int32, batchSplitFactor), (Tensor, out)

CANN_SIM_OPERATOR(aclnnTransposeBatchMatMul, CANN_SIM_TRANSPOSED_PRODUCT) {
  return TransposedBatchMatmul(x1, x2, bias, scale, permX1, permX2, permY, batchSplitFactor, out);
}

// The second factor is in the NZ format, which reads as the plain one.
CANN_SIM_OPERATOR(aclnnTransposeBatchMatMulWeightNz, CANN_SIM_TRANSPOSED_PRODUCT) {
  RequireDtype(x1, kHalves);
  RequireSameDtype(out, x1);
  return TransposedBatchMatmul(x1, x2, bias, scale, permX1, permX2, permY, batchSplitFactor, out);
}

}  // namespace cann_sim::operators
