// Sorting and selection. Ties keep the order of the CPU kernels, which is the same for the same input.

#include <ATen/ops/_unique2.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/kthvalue.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/unique_dim.h>

#include <memory>

#include "../interface/operator.h"

namespace cann_sim::operators {

CANN_SIM_OPERATOR(aclnnSort, (Tensor, self), (Bool, stable), (Int, dim), (Bool, descending), (Tensor, valuesOut),
                  (Tensor, indicesOut)) {
  RequireSimulated(self, kReals);
  WrapDim(dim, self.rank());
  RequireSameDtype(valuesOut, self);
  RequireShape(valuesOut, self.sizes());
  RequireShape(indicesOut, self.sizes());
  RequireSimulated(indicesOut, {c10::ScalarType::Long});
  return [=] {
    const auto [values, indices] = at::sort(self, std::optional<bool>(stable.value()), dim, descending);
    valuesOut.Store(values);
    indicesOut.Store(indices);
  };
}

CANN_SIM_OPERATOR(aclnnTopk, (Tensor, self), (Int, k), (Int, dim), (Bool, largest), (Bool, sorted), (Tensor, valuesOut),
                  (Tensor, indicesOut)) {
  RequireSimulated(self, kFloats | kDouble | kIntegers);
  const int64_t axis = WrapDim(dim, self.rank());
  const int64_t length = self.rank() == 0 ? 1 : self.size(static_cast<int>(axis));
  if (k < 0 || k > length) {
    RefuseArgument(k.name(), "at most the " + std::to_string(length) + " values of the dimension", std::to_string(k));
  }
  RequireSameDtype(valuesOut, self);
  RequireSimulated(indicesOut, {c10::ScalarType::Long});
  if (self.rank() > 0) {
    std::vector<int64_t> expected = self.sizes().vec();
    expected[static_cast<size_t>(axis)] = k;
    RequireShape(valuesOut, expected);
    RequireShape(indicesOut, expected);
  }
  return [=] {
    const auto [values, indices] = at::topk(self, k, axis, largest, sorted);
    valuesOut.Store(values);
    indicesOut.Store(indices);
  };
}

CANN_SIM_OPERATOR(aclnnKthvalue, (Tensor, self), (Int, k), (Int, dim), (Bool, keepdim), (Tensor, valuesOut),
                  (Tensor, indicesOut)) {
  RequireSimulated(self, kFloats | kDouble | kIntegers);
  WrapDim(dim, self.rank());
  RequireShape(valuesOut, ReducedShape(self.sizes(), {dim.value()}, keepdim));
  RequireShape(indicesOut, ReducedShape(self.sizes(), {dim.value()}, keepdim));
  return [=] {
    const auto [values, indices] = at::kthvalue(self, k, dim, keepdim);
    valuesOut.Store(values);
    indicesOut.Store(indices);
  };
}

CANN_SIM_OPERATOR(aclnnSearchSorted, (Tensor, sortedSequence), (Tensor, self), (Bool, outInt32), (Bool, right),
                  (OptionalTensor, sorter), (Tensor, out)) {
  RequireSimulated(sortedSequence, kFloats | kDouble | kIntegers);
  RequireSameDtype(self, sortedSequence);
  RequireShape(out, self.sizes());
  return [=] {
    const at::Tensor order = sorter;
    out.Store(at::searchsorted(sortedSequence, self, outInt32, right, std::nullopt,
                               order.defined() ? std::optional(order) : std::nullopt));
  };
}

CANN_SIM_OPERATOR(aclnnSearchSorteds, (Tensor, sortedSequence), (Scalar, self), (Bool, outInt32), (Bool, right),
                  (OptionalTensor, sorter), (Tensor, out)) {
  RequireSimulated(sortedSequence, kFloats | kDouble | kIntegers);
  return [=] {
    const at::Tensor order = sorter;
    out.Store(at::searchsorted(sortedSequence, self.value(), outInt32, right, std::nullopt,
                               order.defined() ? std::optional(order) : std::nullopt));
  };
}

CANN_SIM_OPERATOR(aclnnBincount, (Tensor, self), (OptionalTensor, weights), (Int, minlength), (Tensor, out)) {
  RequireSimulated(self, kIntegers);
  RequireRank(self, 1, 1);
  return [=] {
    const at::Tensor amounts = weights;
    out.Store(at::bincount(self, amounts.defined() ? std::optional(amounts) : std::nullopt, out.numel()));
  };
}

CANN_SIM_OPERATOR(aclnnIsInTensorScalar, (Tensor, element), (Scalar, testElement), (Bool, assumeUnique), (Bool, invert),
                  (Tensor, out)) {
  RequireSimulated(element, kReals);
  RequireShape(out, element.sizes());
  return [=] { out.Store(invert ? at::ne(element, testElement) : at::eq(element, testElement)); };
}

CANN_SIM_OPERATOR(aclnnIsInScalarTensor, (Scalar, element), (Tensor, testElements), (Bool, assumeUnique), (Bool, invert),
                  (Tensor, out)) {
  RequireSimulated(testElements, kReals);
  RequireShape(out, {});
  return [=] { at::Tensor(out).fill_(at::eq(testElements, element).any().item<bool>() != invert.value()); };
}

// The values that occur, ascending, how often, and where each element's value is among them.
CANN_SIM_OPERATOR(aclnnUnique2, (Tensor, self), (Bool, sorted), (Bool, returnInverse), (Bool, returnCounts),
                  (ResizableTensor, valueOut), (Tensor, inverseOut), (ResizableTensor, countsOut)) {
  RequireSimulated(self, kReals);
  RequireSameDtype(valueOut, self);
  auto count = std::make_shared<int64_t>(0);
  return Plan(
      [=] {
        const auto [values, inverse, counts] = at::_unique2(self, sorted, returnInverse, returnCounts);
        *count = values.numel();
        at::Tensor(valueOut).view({-1}).narrow(0, 0, *count).copy_(values);
        if (returnInverse) {
          inverseOut.Store(inverse);
        }
        if (returnCounts) {
          at::Tensor(countsOut).view({-1}).narrow(0, 0, *count).copy_(counts);
        }
      },
      [=] {
        valueOut.SetViewShape({*count});
        if (returnCounts) {
          countsOut.SetViewShape({*count});
        }
      });
}

CANN_SIM_OPERATOR(aclnnHistc, (Tensor, self), (Int, bins), (Scalar, min), (Scalar, max), (Tensor, out)) {
  RequireSimulated(self, kFloats | kIntegers);
  RequireShape(out, {bins.value()});
  return [=] { out.Store(at::histc(self.Widened(), bins, min, max)); };
}

namespace {

// Values, where each element's value is among them, and how often each occurs. The size of the first result along `axis`
// and that of the counts are set when the launch has finished.
template <class Compute>
Plan UniqueAlong(const Tensor& self, int64_t axis, bool has_axis, bool return_inverse, bool return_counts,
                 const ResizableTensor& value_out, const Tensor& inverse_out, const ResizableTensor& counts_out,
                 Compute compute) {
  RequireSimulated(self, kReals);
  RequireSameDtype(value_out, self);
  auto shape = std::make_shared<std::vector<int64_t>>();
  auto count = std::make_shared<int64_t>(0);
  return Plan(
      [=] {
        const auto [values, inverse, counts] = compute();
        *shape = values.sizes().vec();
        *count = has_axis ? values.size(axis) : values.numel();
        at::Tensor(value_out).view({-1}).narrow(0, 0, values.numel()).copy_(values.reshape({-1}));
        if (return_inverse) {
          inverse_out.Store(inverse);
        }
        if (return_counts) {
          at::Tensor(counts_out).view({-1}).narrow(0, 0, *count).copy_(counts);
        }
      },
      [=] {
        value_out.SetViewShape(*shape);
        if (return_counts) {
          counts_out.SetViewShape({*count});
        }
      });
}

// What torch_npu passes as a dimension for none.
constexpr int64_t kNoDimension = 1000;

}  // namespace

CANN_SIM_OPERATOR(aclnnUniqueConsecutive, (Tensor, self), (Bool, returnInverse), (Bool, returnCounts), (Int, dim),
                  (ResizableTensor, valueOut), (Tensor, inverseOut), (ResizableTensor, countsOut)) {
  const bool has_axis = dim != kNoDimension;
  const int64_t axis = has_axis ? WrapDim(dim, self.rank()) : 0;
  return UniqueAlong(self, axis, has_axis, returnInverse, returnCounts, valueOut, inverseOut, countsOut, [=] {
    return at::unique_consecutive(self, returnInverse, returnCounts,
                                  has_axis ? std::optional<int64_t>(axis) : std::nullopt);
  });
}

CANN_SIM_OPERATOR(aclnnUniqueDim, (Tensor, self), (Bool, sorted), (Bool, returnInverse), (Int, dim),
                  (ResizableTensor, valueOut), (Tensor, inverseOut), (ResizableTensor, countsOut)) {
  const int64_t axis = WrapDim(dim, self.rank());
  return UniqueAlong(self, axis, true, returnInverse, true, valueOut, inverseOut, countsOut,
                     [=] { return at::unique_dim(self, axis, sorted, returnInverse, true); });
}

}  // namespace cann_sim::operators
