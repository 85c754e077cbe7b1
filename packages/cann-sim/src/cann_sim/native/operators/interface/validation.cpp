#include "validation.h"

#include <algorithm>

#include "data_type.h"

namespace cann_sim::operators {

namespace {

bool BroadcastInto(std::vector<int64_t>& shape, c10::IntArrayRef sizes) {
  if (sizes.size() > shape.size()) {
    shape.insert(shape.begin(), sizes.size() - shape.size(), 1);
  }
  const size_t lead = shape.size() - sizes.size();
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    int64_t& current = shape[lead + dim];
    if (current == sizes[dim] || sizes[dim] == 1) {
      continue;
    }
    if (current != 1) {
      return false;
    }
    current = sizes[dim];
  }
  return true;
}

}  // namespace

std::string DtypeSet::Describe() const {
  std::string names;
  for (int index = 0; index < 64; ++index) {
    if ((bits_ >> index) & 1) {
      names += (names.empty() ? "" : ", ") + std::string(NameOf(static_cast<c10::ScalarType>(index)));
    }
  }
  return names;
}

void RefuseArgument(const char* name, const std::string& expected, const std::string& found) {
  throw Refusal(std::string("argument '") + name + "': expected " + expected + ", found " + found);
}

void RequireDtype(const Tensor& tensor, DtypeSet allowed) {
  if (!allowed.contains(tensor.dtype())) {
    RefuseArgument(tensor.name(), "one of the dtypes " + allowed.Describe(), NameOf(tensor.dtype()));
  }
}

void RequireSimulated(const Tensor& tensor, DtypeSet simulated) {
  if (!simulated.contains(tensor.dtype())) {
    throw Refusal(std::string("argument '") + tensor.name() + "': the dtype " + NameOf(tensor.dtype()) +
                  " is not simulated; simulated are " + simulated.Describe());
  }
}

void RequireSameDtype(const Tensor& tensor, const Tensor& reference) {
  if (tensor.dtype() != reference.dtype()) {
    RefuseArgument(tensor.name(), std::string(NameOf(reference.dtype())) + " as '" + reference.name() + "'",
                   NameOf(tensor.dtype()));
  }
}

void RequireRank(const Tensor& tensor, int least, int most) {
  if (tensor.rank() < least || tensor.rank() > most) {
    RefuseArgument(tensor.name(),
                   least == most ? std::to_string(least) + " dimensions"
                                 : std::to_string(least) + " to " + std::to_string(most) + " dimensions",
                   "shape " + Describe(tensor.sizes()));
  }
}

void RequireShape(const Tensor& tensor, c10::IntArrayRef expected) {
  if (tensor.sizes() != expected) {
    RefuseArgument(tensor.name(), "shape " + Describe(expected), Describe(tensor.sizes()));
  }
}

void RequireContiguous(const Tensor& tensor) {
  if (!tensor.is_contiguous()) {
    RefuseArgument(tensor.name(), "a contiguous tensor of shape " + Describe(tensor.sizes()),
                   "strides " + Describe(tensor.strides()));
  }
}

void RequireBroadcast(const Tensor& out, std::initializer_list<const Tensor*> inputs) {
  std::vector<int64_t> shape;
  for (const Tensor* input : inputs) {
    if (!BroadcastInto(shape, input->sizes())) {
      RefuseArgument(input->name(), "a shape that broadcasts with " + Describe(shape), Describe(input->sizes()));
    }
  }
  RequireShape(out, shape);
}

void RefuseIfPresent(const OptionalTensor& tensor, const char* feature) {
  if (tensor) {
    throw Refusal(std::string("argument '") + tensor.name() + "': " + feature + " is not simulated");
  }
}

int64_t WrapDim(int64_t dim, int rank, const char* name) {
  const int64_t range = std::max(rank, 1);
  if (dim < -range || dim >= range) {
    RefuseArgument(name, "a dimension in [" + std::to_string(-range) + ", " + std::to_string(range) + ")",
                   std::to_string(dim));
  }
  return dim < 0 ? dim + range : dim;
}

std::string Describe(c10::IntArrayRef sizes) {
  std::string text = "[";
  for (size_t index = 0; index < sizes.size(); ++index) {
    text += (index == 0 ? "" : ", ") + std::to_string(sizes[index]);
  }
  return text + "]";
}

std::vector<int64_t> ReducedShape(c10::IntArrayRef sizes, c10::IntArrayRef dims, bool keep_dims) {
  std::vector<bool> reduced(sizes.size(), dims.empty());
  for (int64_t dim : dims) {
    if (!sizes.empty()) {
      reduced[static_cast<size_t>(WrapDim(dim, static_cast<int>(sizes.size())))] = true;
    }
  }
  std::vector<int64_t> shape;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (!reduced[dim]) {
      shape.push_back(sizes[dim]);
    } else if (keep_dims) {
      shape.push_back(1);
    }
  }
  return shape;
}

}  // namespace cann_sim::operators
