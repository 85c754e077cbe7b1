// Reading and writing by index. An index outside its dimension fails the kernel; the device reports it at the next
// synchronisation as well.

#include <ATen/core/List.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/masked_scatter.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/scatter_reduce.h>
#include <ATen/ops/take.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include "../interface/operator.h"
#include "data_dependent.h"

namespace cann_sim::operators {

namespace {

constexpr DtypeSet kIndexable = kReals | kComplex;

// torch_npu passes an empty tensor of the dtype of `self` for a dimension that is not indexed.
c10::List<std::optional<at::Tensor>> IndexList(const TensorList& indices, c10::ScalarType self_dtype) {
  c10::List<std::optional<at::Tensor>> list;
  for (const OptionalTensor& index : indices) {
    const bool absent = !index || (index->numel() == 0 && (index->dtype() == self_dtype || index->rank() == 1));
    if (absent) {
      list.push_back(std::nullopt);
    } else {
      const at::Tensor tensor = *index;
      list.push_back(index->dtype() == c10::ScalarType::Int ? tensor.to(c10::ScalarType::Long) : tensor);
    }
  }
  return list;
}

void RequireIndices(const Tensor& self, const TensorList& indices) {
  RequireSimulated(self, kIndexable);
  if (indices.size() > static_cast<size_t>(self.rank())) {
    RefuseArgument(indices.name(), "at most " + std::to_string(self.rank()) + " indices", std::to_string(indices.size()));
  }
}

at::Tensor LongIndex(const Tensor& index) { return at::Tensor(index).to(c10::ScalarType::Long); }

}  // namespace

CANN_SIM_OPERATOR(aclnnIndex, (Tensor, self), (TensorList, indices), (Tensor, out)) {
  RequireIndices(self, indices);
  RequireSameDtype(out, self);
  return [=] {
    if (out.numel() != 0) {
      out.Store(at::index(self, IndexList(indices, self.dtype())));
    }
  };
}

CANN_SIM_OPERATOR(aclnnIndexPutImpl, (Tensor, selfRef), (TensorList, indices), (Tensor, values), (Bool, accumulate),
                  (Bool, unsafe)) {
  RequireIndices(selfRef, indices);
  RequireSameDtype(values, selfRef);
  return [=] {
    const auto list = IndexList(indices, selfRef.dtype());
    for (const std::optional<at::Tensor>& index : list) {
      if (index.has_value()) {
        at::index_put_(Out(selfRef), list, values, accumulate);
        return;
      }
    }
  };
}

CANN_SIM_OPERATOR(aclnnIndexSelect, (Tensor, self), (Int, dim), (Tensor, index), (Tensor, out)) {
  RequireSimulated(self, kIndexable);
  RequireSimulated(index, kIndices);
  RequireSameDtype(out, self);
  RequireRank(index, 0, 1);
  const int64_t axis = WrapDim(dim, self.rank());
  if (self.rank() > 0) {
    std::vector<int64_t> expected = self.sizes().vec();
    expected[static_cast<size_t>(axis)] = index.numel();
    RequireShape(out, expected);
  }
  return [=] { out.Store(at::index_select(self, axis, index).view(out.sizes())); };
}

CANN_SIM_OPERATOR(aclnnEmbedding, (Tensor, weight), (Tensor, indices), (Tensor, out)) {
  RequireSimulated(weight, kIndexable);
  RequireSimulated(indices, kIndices);
  RequireRank(weight, 2, 2);
  RequireSameDtype(out, weight);
  std::vector<int64_t> expected = indices.sizes().vec();
  expected.push_back(weight.size(1));
  RequireShape(out, expected);
  return [=] { out.Store(at::index_select(weight, 0, at::Tensor(indices).reshape({-1})).view(out.sizes())); };
}

CANN_SIM_OPERATOR(aclnnGather, (Tensor, self), (Int, dim), (Tensor, index), (Tensor, out)) {
  RequireSimulated(self, kIndexable);
  RequireSimulated(index, kIndices);
  RequireSameDtype(out, self);
  RequireShape(out, index.sizes());
  WrapDim(dim, self.rank());
  return [=] { out.Store(at::gather(self, dim, LongIndex(index))); };
}

namespace {

// Reduction of the scatter operators.
enum class Reduction : int64_t { kNone = 0, kAdd = 1, kMultiply = 2 };

Reduction ReductionOf(const Int& reduction) {
  if (reduction < 0 || reduction > 2) {
    RefuseArgument(reduction.name(), "0 (none), 1 (add) or 2 (multiply)", std::to_string(reduction));
  }
  return static_cast<Reduction>(reduction.value());
}

void RequireScatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& out) {
  RequireSimulated(self, kIndexable);
  RequireSimulated(index, kIndices);
  RequireSameDtype(out, self);
  RequireShape(out, self.sizes());
  WrapDim(dim, self.rank());
}

at::Tensor Scattered(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src,
                     Reduction reduction) {
  switch (reduction) {
    case Reduction::kAdd: return at::scatter_add(self, dim, index, src);
    case Reduction::kMultiply: return at::scatter(self, dim, index, src, "multiply");
    default: return at::scatter(self, dim, index, src);
  }
}

Plan Scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, Reduction reduction,
             const Tensor& out) {
  RequireScatter(self, dim, index, out);
  RequireSameDtype(src, self);
  return [=] { out.Store(Scattered(self, dim, LongIndex(index), src, reduction)); };
}

Plan ScatterValue(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value, Reduction reduction,
                  const Tensor& out) {
  RequireScatter(self, dim, index, out);
  return [=] {
    const at::Tensor src = at::full(index.sizes(), value, at::TensorOptions().dtype(self.dtype()));
    out.Store(Scattered(self, dim, LongIndex(index), src, reduction));
  };
}

const char* ReduceName(const Int& reduction) {
  static constexpr const char* kNames[] = {"sum", "sum", "prod", "amax", "amin", "mean"};
  if (reduction < 1 || reduction > 5) {
    RefuseArgument(reduction.name(), "1 (sum), 2 (prod), 3 (amax), 4 (amin) or 5 (mean)", std::to_string(reduction));
  }
  return kNames[reduction.value()];
}

Plan ScatterReduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, const Int& reduction,
                   bool include_self, const Tensor& out) {
  RequireScatter(self, dim, index, out);
  RequireSameDtype(src, self);
  const char* name = ReduceName(reduction);
  return [=] { out.Store(at::scatter_reduce(self, dim, LongIndex(index), src, name, include_self)); };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnScatter, (Tensor, self), (Int, dim), (Tensor, index), (Tensor, src), (Int, reduce), (Tensor, out)) {
  return Scatter(self, dim, index, src, ReductionOf(reduce), out);
}
CANN_SIM_OPERATOR(aclnnInplaceScatter, (Tensor, selfRef), (Int, dim), (Tensor, index), (Tensor, src), (Int, reduce)) {
  return Scatter(selfRef, dim, index, src, ReductionOf(reduce), selfRef);
}
CANN_SIM_OPERATOR(aclnnScatterValue, (Tensor, self), (Int, dim), (Tensor, index), (Scalar, value), (Int, reduce),
                  (Tensor, out)) {
  return ScatterValue(self, dim, index, value, ReductionOf(reduce), out);
}
CANN_SIM_OPERATOR(aclnnInplaceScatterValue, (Tensor, selfRef), (Int, dim), (Tensor, index), (Scalar, value),
                  (Int, reduce)) {
  return ScatterValue(selfRef, dim, index, value, ReductionOf(reduce), selfRef);
}
CANN_SIM_OPERATOR(aclnnScatterAdd, (Tensor, self), (Int, dim), (Tensor, index), (Tensor, src), (Tensor, out)) {
  return Scatter(self, dim, index, src, Reduction::kAdd, out);
}
CANN_SIM_OPERATOR(aclnnScatterReduce, (Tensor, self), (Int, dim), (Tensor, index), (Tensor, src), (Int, reduction),
                  (Bool, includeSelf), (Tensor, out)) {
  return ScatterReduce(self, dim, index, src, reduction, includeSelf, out);
}
CANN_SIM_OPERATOR(aclnnInplaceScatterReduce, (Tensor, selfRef), (Int, dim), (Tensor, index), (Tensor, src),
                  (Int, reduction), (Bool, includeSelf)) {
  return ScatterReduce(selfRef, dim, index, src, reduction, includeSelf, selfRef);
}

CANN_SIM_OPERATOR(aclnnIndexAdd, (Tensor, self), (Int, dim), (Tensor, index), (Tensor, source), (Scalar, alpha),
                  (Tensor, out)) {
  RequireScatter(self, dim, index, out);
  RequireSameDtype(source, self);
  return [=] { out.Store(at::index_add(self, dim, index, source, alpha)); };
}
CANN_SIM_OPERATOR(aclnnIndexCopy, (Tensor, self), (Int, dim), (Tensor, index), (Tensor, source), (Tensor, out)) {
  RequireScatter(self, dim, index, out);
  RequireSameDtype(source, self);
  return [=] { out.Store(at::index_copy(self, dim, LongIndex(index), source)); };
}
CANN_SIM_OPERATOR(aclnnInplaceIndexCopy, (Tensor, selfRef), (Int, dim), (Tensor, index), (Tensor, source)) {
  RequireScatter(selfRef, dim, index, selfRef);
  RequireSameDtype(source, selfRef);
  return [=] { at::Tensor(selfRef).index_copy_(dim, LongIndex(index), source); };
}
CANN_SIM_OPERATOR(aclnnIndexFillTensor, (Tensor, self), (Int, dim), (IntArray, index), (Scalar, value), (Tensor, out)) {
  RequireSimulated(self, kIndexable);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::index_fill(self, dim, at::tensor(index.values(), at::kLong), value)); };
}
CANN_SIM_OPERATOR(aclnnInplaceIndexFillTensor, (Tensor, selfRef), (Int, dim), (IntArray, index), (Scalar, value)) {
  RequireSimulated(selfRef, kIndexable);
  return [=] { at::Tensor(selfRef).index_fill_(dim, at::tensor(index.values(), at::kLong), value); };
}
CANN_SIM_OPERATOR(aclnnIndexFill, (Tensor, self), (Int, dim), (Tensor, index), (Scalar, value), (Tensor, out)) {
  RequireScatter(self, dim, index, out);
  return [=] { out.Store(at::index_fill(self, dim, LongIndex(index), value)); };
}
CANN_SIM_OPERATOR(aclnnInplaceIndexFill, (Tensor, selfRef), (Int, dim), (Tensor, index), (Scalar, value)) {
  RequireScatter(selfRef, dim, index, selfRef);
  return [=] { at::Tensor(selfRef).index_fill_(dim, LongIndex(index), value); };
}
// out[..., j] = on where self[...] == j, otherwise off; the new dimension is at `axis`.
CANN_SIM_OPERATOR(aclnnOneHot, (Tensor, self), (Int, numClasses), (Tensor, onValue), (Tensor, offValue), (Int, axis),
                  (Tensor, out)) {
  RequireSimulated(self, kIndices);
  RequireSameDtype(onValue, out);
  RequireSameDtype(offValue, out);
  const int64_t dim = WrapDim(axis, out.rank(), axis.name());
  std::vector<int64_t> expected = self.sizes().vec();
  expected.insert(expected.begin() + dim, numClasses.value());
  RequireShape(out, expected);
  return [=] {
    std::vector<int64_t> shape(static_cast<size_t>(out.rank()), 1);
    shape[static_cast<size_t>(dim)] = numClasses;
    const at::Tensor classes = at::arange(numClasses.value(), at::kLong).view(shape);
    out.Store(at::where(at::eq(at::Tensor(self).unsqueeze(dim), classes), at::Tensor(onValue), at::Tensor(offValue)));
  };
}

CANN_SIM_OPERATOR(aclnnTake, (Tensor, self), (Tensor, index), (Tensor, out)) {
  RequireSimulated(self, kIndexable);
  RequireSimulated(index, kIndices);
  RequireShape(out, index.sizes());
  return [=] { out.Store(at::take(self, LongIndex(index))); };
}

CANN_SIM_OPERATOR(aclnnInplaceMaskedFillScalar, (Tensor, selfRef), (Tensor, mask), (Scalar, value)) {
  RequireSimulated(selfRef, kIndexable);
  RequireSimulated(mask, kBool);
  RequireBroadcast(selfRef, {&selfRef, &mask});
  return [=] { at::Tensor(selfRef).masked_fill_(mask, value); };
}
CANN_SIM_OPERATOR(aclnnInplaceMaskedFillTensor, (Tensor, selfRef), (Tensor, mask), (Tensor, value)) {
  RequireSimulated(selfRef, kIndexable);
  RequireSimulated(mask, kBool);
  RequireBroadcast(selfRef, {&selfRef, &mask});
  if (value.numel() != 1) {
    RefuseArgument(value.name(), "one value", "shape " + Describe(value.sizes()));
  }
  return [=] { at::Tensor(selfRef).masked_fill_(mask, at::Tensor(value).item()); };
}
CANN_SIM_OPERATOR(aclnnInplaceMaskedScatter, (Tensor, selfRef), (Tensor, mask), (Tensor, source)) {
  RequireSimulated(selfRef, kIndexable);
  RequireSimulated(mask, kBool);
  RequireSameDtype(source, selfRef);
  return [=] { at::Tensor(selfRef).masked_scatter_(mask, source); };
}

CANN_SIM_OPERATOR(aclnnNonzero, (Tensor, self), (ResizableTensor, out)) {
  RequireSimulated(self, kIndexable);
  RequireSimulated(out, {c10::ScalarType::Long});
  return DataDependent(out, [=] { return at::nonzero(self); });
}
CANN_SIM_OPERATOR(aclnnNonzeroV2, (Tensor, self), (ResizableTensor, out)) {
  RequireSimulated(self, kIndexable);
  RequireSimulated(out, {c10::ScalarType::Long});
  return DataDependent(out, [=] { return at::nonzero(self).t(); });
}
CANN_SIM_OPERATOR(aclnnMaskedSelect, (Tensor, self), (Tensor, mask), (ResizableTensor, out)) {
  RequireSimulated(self, kIndexable);
  RequireSimulated(mask, kBool);
  RequireSameDtype(out, self);
  return DataDependent(out, [=] { return at::masked_select(self, mask); });
}

}  // namespace cann_sim::operators
