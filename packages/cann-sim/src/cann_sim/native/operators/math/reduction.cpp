// Reductions. Half precisions are accumulated in float32 and rounded once.

#include <ATen/ops/all.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/any.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/cummin.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/max.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/median.h>
#include <ATen/ops/min.h>
#include <ATen/ops/nanmedian.h>
#include <ATen/ops/nansum.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/renorm.h>
#include <ATen/ops/std.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var.h>

#include "../interface/data_type.h"
#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

void RequireReduced(const Tensor& self, c10::IntArrayRef dims, bool keep_dims, const Tensor& out) {
  RequireShape(out, ReducedShape(self.sizes(), dims, keep_dims));
}

void RequireOutDtype(const Tensor& out, aclDataType dtype) {
  if (ScalarTypeOf(dtype) != out.dtype()) {
    RefuseArgument(out.name(), NameOf(ScalarTypeOf(dtype)), NameOf(out.dtype()));
  }
}

// The values as they are summed: floats in float32 at least, integers exactly.
at::Tensor Summands(const Tensor& self, const Tensor& out) {
  if (self.is_floating_point() || out.is_floating_point()) {
    return self.Widened();
  }
  return at::Tensor(self).to(c10::ScalarType::Long);
}

// An empty list of dimensions means all of them, as for torch.
at::OptionalIntArrayRef Dims(const std::vector<int64_t>& dims) {
  return dims.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(dims);
}

}  // namespace

CANN_SIM_OPERATOR(aclnnReduceSum, (Tensor, self), (IntArray, dims), (Bool, keepDims), (DataType, dtype), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireReduced(self, dims, keepDims, out);
  RequireOutDtype(out, dtype);
  return [=] { out.Store(at::sum(Summands(self, out), Dims(dims.values()), keepDims)); };
}

CANN_SIM_OPERATOR(aclnnMean, (Tensor, self), (IntArray, dim), (Bool, keepDim), (DataType, dtype), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireSimulated(out, kFloats | kDouble);
  RequireReduced(self, dim, keepDim, out);
  RequireOutDtype(out, dtype);
  return [=] { out.Store(at::mean(self.Widened(), Dims(dim.values()), keepDim)); };
}

CANN_SIM_OPERATOR(aclnnProd, (Tensor, self), (DataType, dtype), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireShape(out, {});
  RequireOutDtype(out, dtype);
  return [=] { out.Store(at::prod(Summands(self, out))); };
}

CANN_SIM_OPERATOR(aclnnProdDim, (Tensor, self), (Int, dim), (Bool, keepDim), (DataType, dtype), (Tensor, out)) {
  RequireSimulated(self, kReals);
  WrapDim(dim, self.rank());
  RequireReduced(self, {dim.value()}, keepDim, out);
  RequireOutDtype(out, dtype);
  return [=] { out.Store(at::prod(Summands(self, out), dim.value(), keepDim)); };
}

CANN_SIM_OPERATOR(aclnnAll, (Tensor, self), (IntArray, dim), (Bool, keepdim), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireReduced(self, dim, keepdim, out);
  return [=] { out.Store(at::all(self, Dims(dim.values()), keepdim)); };
}

CANN_SIM_OPERATOR(aclnnAny, (Tensor, self), (IntArray, dim), (Bool, keepdim), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireReduced(self, dim, keepdim, out);
  return [=] { out.Store(at::any(self, Dims(dim.values()), keepdim)); };
}

CANN_SIM_OPERATOR(aclnnAmax, (Tensor, self), (IntArray, dim), (Bool, keepDim), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireReduced(self, dim, keepDim, out);
  return [=] { out.Store(at::amax(self, dim, keepDim)); };
}

CANN_SIM_OPERATOR(aclnnAmin, (Tensor, self), (IntArray, dim), (Bool, keepDim), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireReduced(self, dim, keepDim, out);
  return [=] { out.Store(at::amin(self, dim, keepDim)); };
}

namespace {

void RequireNotEmpty(const Tensor& self) {
  if (self.numel() == 0) {
    RefuseArgument(self.name(), "at least one value", "shape " + Describe(self.sizes()));
  }
}

// The extreme value along a dimension and the index of its first occurrence.
Plan WithIndices(bool largest, const Tensor& self, int64_t dim, bool keep_dim, const Tensor& out,
                 const Tensor& indices) {
  RequireSimulated(self, kReals);
  WrapDim(dim, self.rank());
  RequireReduced(self, {dim}, keep_dim, out);
  RequireReduced(self, {dim}, keep_dim, indices);
  RequireSimulated(indices, kIndices);
  return [=] {
    const auto [values, positions] = largest ? at::max(self, dim, keep_dim) : at::min(self, dim, keep_dim);
    out.Store(values);
    indices.Store(positions);
  };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnMax, (Tensor, self), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireNotEmpty(self);
  RequireShape(out, {});
  return [=] { out.Store(at::max(self)); };
}

CANN_SIM_OPERATOR(aclnnMin, (Tensor, self), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireNotEmpty(self);
  RequireShape(out, {});
  return [=] { out.Store(at::min(self)); };
}

CANN_SIM_OPERATOR(aclnnMaxDim, (Tensor, self), (Int, dim), (Bool, keepDim), (Tensor, out), (Tensor, indices)) {
  return WithIndices(true, self, dim, keepDim, out, indices);
}

CANN_SIM_OPERATOR(aclnnMinDim, (Tensor, self), (Int, dim), (Bool, keepDim), (Tensor, out), (Tensor, indices)) {
  return WithIndices(false, self, dim, keepDim, out, indices);
}

CANN_SIM_OPERATOR(aclnnArgMax, (Tensor, self), (Int, dim), (Bool, keepDim), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireSimulated(out, kIndices);
  WrapDim(dim, self.rank());
  return [=] { out.Store(at::argmax(self, dim.value(), keepDim)); };
}

CANN_SIM_OPERATOR(aclnnArgMin, (Tensor, self), (Int, dim), (Bool, keepDim), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireSimulated(out, kIndices);
  WrapDim(dim, self.rank());
  return [=] { out.Store(at::argmin(self, dim.value(), keepDim)); };
}

CANN_SIM_OPERATOR(aclnnCumsum, (Tensor, self), (Int, dim), (DataType, dtype), (Tensor, out)) {
  RequireSimulated(self, kReals);
  WrapDim(dim, self.rank());
  RequireShape(out, self.sizes());
  RequireOutDtype(out, dtype);
  return [=] { out.Store(at::cumsum(Summands(self, out), dim)); };
}

CANN_SIM_OPERATOR(aclnnCumprod, (Tensor, self), (Scalar, dim), (DataType, dtype), (Tensor, out)) {
  RequireSimulated(self, kReals);
  const int64_t axis = WrapDim(dim.value().toLong(), self.rank());
  RequireShape(out, self.sizes());
  RequireOutDtype(out, dtype);
  return [=] { out.Store(at::cumprod(Summands(self, out), axis)); };
}

CANN_SIM_OPERATOR(aclnnCummax, (Tensor, self), (Int, dim), (Tensor, values), (Tensor, indices)) {
  RequireSimulated(self, kReals);
  WrapDim(dim, self.rank());
  RequireShape(values, self.sizes());
  RequireShape(indices, self.sizes());
  return [=] {
    const auto [largest, positions] = at::cummax(self, dim);
    values.Store(largest);
    indices.Store(positions);
  };
}

CANN_SIM_OPERATOR(aclnnCummin, (Tensor, self), (Int, dim), (Tensor, values), (Tensor, indices)) {
  RequireSimulated(self, kReals);
  WrapDim(dim, self.rank());
  RequireShape(values, self.sizes());
  RequireShape(indices, self.sizes());
  return [=] {
    const auto [smallest, positions] = at::cummin(self, dim);
    values.Store(smallest);
    indices.Store(positions);
  };
}

CANN_SIM_OPERATOR(aclnnNorm, (Tensor, self), (Scalar, p), (IntArray, dim), (Bool, keepDim), (Tensor, out)) {
  RequireSimulated(self, kFloats | kDouble);
  RequireReduced(self, dim, keepDim, out);
  return [=] { out.Store(at::linalg_vector_norm(self.Widened(), p, Dims(dim.values()), keepDim)); };
}

CANN_SIM_OPERATOR(aclnnLinalgVectorNorm, (Tensor, self), (Scalar, ord), (OptionalIntArray, dims), (Bool, keepDims),
                  (DataType, dtype), (Tensor, out)) {
  RequireSimulated(self, kFloats | kDouble);
  RequireReduced(self, dims.values(), keepDims, out);
  return [=] { out.Store(at::linalg_vector_norm(self.Widened(), ord, Dims(dims.values()), keepDims)); };
}

CANN_SIM_OPERATOR(aclnnLogSumExp, (Tensor, self), (IntArray, dim), (Bool, keepDim), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireReduced(self, dim, keepDim, out);
  return [=] { out.Store(at::logsumexp(self.Widened(), dim, keepDim)); };
}

CANN_SIM_OPERATOR(aclnnAminmax, (Tensor, self), (IntArray, dim), (Bool, keepDim), (Tensor, minOut), (Tensor, maxOut)) {
  RequireSimulated(self, kReals);
  RequireReduced(self, dim, keepDim, minOut);
  RequireReduced(self, dim, keepDim, maxOut);
  return [=] {
    minOut.Store(at::amin(self, dim, keepDim));
    maxOut.Store(at::amax(self, dim, keepDim));
  };
}

CANN_SIM_OPERATOR(aclnnStd, (Tensor, self), (OptionalIntArray, dim), (Int, correction), (Bool, keepDim), (Tensor, out)) {
  RequireSimulated(self, kFloats | kDouble);
  RequireReduced(self, dim.values(), keepDim, out);
  return [=] { out.Store(at::std(self.Widened(), Dims(dim.values()), c10::Scalar(correction.value()), keepDim)); };
}

CANN_SIM_OPERATOR(aclnnVarCorrection, (Tensor, self), (OptionalIntArray, dim), (Int, correction), (Bool, keepDim),
                  (Tensor, out)) {
  RequireSimulated(self, kFloats | kDouble);
  RequireReduced(self, dim.values(), keepDim, out);
  return [=] { out.Store(at::var(self.Widened(), Dims(dim.values()), c10::Scalar(correction.value()), keepDim)); };
}

CANN_SIM_OPERATOR(aclnnVarMean, (Tensor, self), (OptionalIntArray, dim), (Int, correction), (Bool, keepDim),
                  (Tensor, varOut), (Tensor, meanOut)) {
  RequireSimulated(self, kFloats | kDouble);
  RequireReduced(self, dim.values(), keepDim, varOut);
  RequireReduced(self, dim.values(), keepDim, meanOut);
  return [=] {
    const at::Tensor wide = self.Widened();
    varOut.Store(at::var(wide, Dims(dim.values()), c10::Scalar(correction.value()), keepDim));
    meanOut.Store(at::mean(wide, Dims(dim.values()), keepDim));
  };
}

CANN_SIM_OPERATOR(aclnnStdMeanCorrection, (Tensor, self), (OptionalIntArray, dim), (Int, correction), (Bool, keepDim),
                  (Tensor, stdOut), (Tensor, meanOut)) {
  RequireSimulated(self, kFloats | kDouble);
  RequireReduced(self, dim.values(), keepDim, stdOut);
  RequireReduced(self, dim.values(), keepDim, meanOut);
  return [=] {
    const at::Tensor wide = self.Widened();
    stdOut.Store(at::std(wide, Dims(dim.values()), c10::Scalar(correction.value()), keepDim));
    meanOut.Store(at::mean(wide, Dims(dim.values()), keepDim));
  };
}

CANN_SIM_OPERATOR(aclnnAminmaxAll, (Tensor, self), (Tensor, minOut), (Tensor, maxOut)) {
  RequireSimulated(self, kReals);
  RequireNotEmpty(self);
  RequireShape(minOut, {});
  RequireShape(maxOut, {});
  return [=] {
    minOut.Store(at::amin(self));
    maxOut.Store(at::amax(self));
  };
}

CANN_SIM_OPERATOR(aclnnAminmaxDim, (Tensor, self), (Int, dim), (Bool, keepDim), (Tensor, minOut), (Tensor, maxOut)) {
  RequireSimulated(self, kReals);
  WrapDim(dim, self.rank());
  RequireReduced(self, {dim.value()}, keepDim, minOut);
  RequireReduced(self, {dim.value()}, keepDim, maxOut);
  return [=] {
    minOut.Store(at::amin(self, dim.value(), keepDim));
    maxOut.Store(at::amax(self, dim.value(), keepDim));
  };
}

CANN_SIM_OPERATOR(aclnnReduceNansum, (Tensor, self), (IntArray, dim), (Bool, keepDim), (DataType, dtype), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireReduced(self, dim, keepDim, out);
  RequireOutDtype(out, dtype);
  return [=] { out.Store(at::nansum(Summands(self, out), Dims(dim.values()), keepDim)); };
}

namespace {

// The lower of the two middle values where their number is even.
Plan Median(at::Tensor (*function)(const at::Tensor&), const Tensor& self, const Tensor& out) {
  RequireSimulated(self, kFloats | kDouble | kIntegers);
  RequireShape(out, {});
  return [=] { out.Store(function(self)); };
}

using MedianAlong = std::tuple<at::Tensor, at::Tensor> (*)(const at::Tensor&, int64_t, bool);

Plan MedianDim(MedianAlong function, const Tensor& self, int64_t dim, bool keep_dim, const Tensor& values,
               const Tensor& indices) {
  RequireSimulated(self, kFloats | kDouble | kIntegers);
  RequireSimulated(indices, kIndices);
  WrapDim(dim, self.rank());
  RequireReduced(self, {dim}, keep_dim, values);
  RequireReduced(self, {dim}, keep_dim, indices);
  return [=] {
    const auto [medians, positions] = function(self, dim, keep_dim);
    values.Store(medians);
    indices.Store(positions);
  };
}

// Rows of `dim` whose p-norm exceeds `most` are scaled down to it.
Plan Renorm(const Tensor& self, const Scalar& p, int64_t dim, const Scalar& most, const Tensor& out) {
  RequireSimulated(self, kFloats);
  RequireSameDtype(out, self);
  RequireRank(self, 2, kMaxRank);
  RequireShape(out, self.sizes());
  const int64_t kept = WrapDim(dim, self.rank());
  if (p.value().toDouble() == 0) {
    // The norm of power 0 is the number of values that are not 0.
    return [=] {
      const at::Tensor wide = self.Widened();
      const at::Tensor rows = wide.transpose(0, kept).flatten(1);
      std::vector<int64_t> shape(static_cast<size_t>(self.rank()), 1);
      shape[static_cast<size_t>(kept)] = -1;
      const at::Tensor norm = rows.ne(0).sum(1).to(wide.scalar_type()).view(shape);
      const at::Tensor factor = at::full_like(norm, most.value()).div(norm.add(1e-7));
      out.Store(wide.mul(at::where(norm.gt(most.value()), factor, at::ones_like(norm))));
    };
  }
  return [=] { out.Store(at::renorm(self.Widened(), p, dim, most)); };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnMedian, (Tensor, self), (Tensor, out)) { return Median(at::median, self, out); }
CANN_SIM_OPERATOR(aclnnNanMedian, (Tensor, self), (Tensor, out)) { return Median(at::nanmedian, self, out); }
CANN_SIM_OPERATOR(aclnnMedianDim, (Tensor, self), (Int, dim), (Bool, keepDim), (Tensor, valuesOut), (Tensor, indicesOut)) {
  return MedianDim(at::median, self, dim, keepDim, valuesOut, indicesOut);
}
CANN_SIM_OPERATOR(aclnnNanMedianDim, (Tensor, self), (Int, dim), (Bool, keepDim), (Tensor, valuesOut),
                  (Tensor, indicesOut)) {
  return MedianDim(at::nanmedian, self, dim, keepDim, valuesOut, indicesOut);
}
CANN_SIM_OPERATOR(aclnnRenorm, (Tensor, self), (Scalar, p), (Int, dim), (Scalar, maxNorm), (Tensor, out)) {
  return Renorm(self, p, dim, maxNorm, out);
}
CANN_SIM_OPERATOR(aclnnInplaceRenorm, (Tensor, selfRef), (Scalar, p), (Int, dim), (Scalar, maxNorm)) {
  return Renorm(selfRef, p, dim, maxNorm, selfRef);
}

}  // namespace cann_sim::operators
