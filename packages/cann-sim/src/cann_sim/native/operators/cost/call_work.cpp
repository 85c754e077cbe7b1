#include "call_work.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../interface/data_type.h"
#include "../interface/refusal.h"

namespace cann_sim::operators {

namespace {

// A product of other numbers than float16 takes as long as this many of float16.
constexpr double kInt8Share = 0.5;     // documented: the cubes multiply twice as many
constexpr double kFloat32Share = 3.73;  // as soc_constants.h's products, 84.5 against 315.4 in bfloat16

// Of a packed int4 weight an int32 holds as many.
constexpr double kPackedInt4 = 8;

// The names in the text of an operator's arguments, in their order.
const std::vector<std::string>& NamesIn(const char* arguments) {
  static auto* mutex = new std::mutex;
  static auto* known = new std::unordered_map<const char*, std::vector<std::string>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  auto [found, is_new] = known->try_emplace(arguments);
  if (is_new) {
    const std::string_view text = arguments;
    for (size_t comma = text.find(", "); comma != std::string_view::npos;) {
      const size_t end = text.find(')', comma);
      found->second.emplace_back(text.substr(comma + 2, end - comma - 2));
      const size_t next = text.find('(', end);
      comma = next == std::string_view::npos ? next : text.find(", ", next);
    }
  }
  return found->second;
}

bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool HasAnyOf(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return Has(text, part); });
}

double ElementsOf(const aclTensor& tensor) {
  double elements = 1;
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    elements *= static_cast<double>(tensor.sizes[dim]);
  }
  return elements;
}

// A type that torch lacks has a byte.
double ItemBytes(aclDataType type) {
  try {
    return static_cast<double>(c10::elementSize(ScalarTypeOf(type)));
  } catch (const Refusal&) {
    return 1;
  }
}

double BytesOf(const aclTensor& tensor) {
  return ElementsOf(tensor) * (tensor.type == ACL_INT4 ? 0.5 : ItemBytes(tensor.type));
}

// The tensors of an argument; none where it has none.
std::vector<const aclTensor*> TensorsOf(const GivenArgument& argument) {
  std::vector<const aclTensor*> tensors;
  if (argument.object == nullptr) {
    return tensors;
  }
  if (argument.kind == GivenArgument::Kind::kTensor) {
    tensors.push_back(argument.as<aclTensor>());
  } else if (argument.kind == GivenArgument::Kind::kTensorList) {
    for (const aclTensor* tensor : argument.as<aclTensorList>()->tensors) {
      if (tensor != nullptr) {
        tensors.push_back(tensor);
      }
    }
  }
  return tensors;
}

class Call {
 public:
  Call(const char* operator_name, const char* arguments, std::initializer_list<GivenArgument> given)
      : operator_name_(operator_name), names_(NamesIn(arguments)), given_(given) {}

  Work Weigh() const {
    if (Has(operator_name_, "MlaProlog")) {
      return WeighProlog();
    }
    if (HasAnyOf(operator_name_, {"Matmul", "MatMul", "Addmm", "aclnnMm", "Baddbmm", "aclnnMv", "aclnnDot", "FFN"})) {
      return WeighProduct();
    }
    if (HasAnyOf(operator_name_, {"Embedding", "IndexSelect", "Gather", "Scatter", "aclnnIndex", "IndexCopy", "IndexPut",
                                  "aclnnTake"})) {
      return WeighRows();
    }
    return {.bytes = BytesOfAll([](std::string_view name) { return !IsCache(name); })};
  }

 private:
  static bool IsCache(std::string_view name) { return HasAnyOf(name, {"cache", "Cache"}) && !Has(name, "Index"); }

  bool IsReadAndWritten(std::string_view name) const {
    const bool is_written_alone =
        HasAnyOf(operator_name_, {"InplaceCopy", "InplaceFill", "InplaceZero", "InplaceOne", "InplaceNormal",
                                  "InplaceUniform", "InplaceRandom", "InplaceBernoulli"});
    return !is_written_alone && (name.ends_with("Ref") || (name == "self" && Has(operator_name_, "Inplace")));
  }

  template <class Chosen>
  double BytesOfAll(const Chosen& chosen) const {
    double bytes = 0;
    size_t index = 0;
    for (const GivenArgument& argument : given_) {
      const std::string& name = names_[index++];
      if (chosen(name)) {
        for (const aclTensor* tensor : TensorsOf(argument)) {
          bytes += BytesOf(*tensor) * (IsReadAndWritten(name) ? 2 : 1);
        }
      }
    }
    return bytes;
  }

  std::vector<const aclTensor*> Find(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      for (size_t index = 0; index < given_.size(); ++index) {
        if (names_[index] == name) {
          return TensorsOf(given_.begin()[index]);
        }
      }
    }
    return {};
  }

  // The table that rows are taken from or put into is touched where they are.
  Work WeighRows() const {
    constexpr std::array<std::string_view, 5> kTables = {"self", "selfRef", "weight", "varRef", "data"};
    return {.bytes = 2 * BytesOfAll([&](std::string_view name) {
              return !IsCache(name) && std::find(kTables.begin(), kTables.end(), name) == kTables.end();
            })};
  }

  static double ShareOf(const aclTensor& left, const aclTensor& right) {
    if (left.type == ACL_FLOAT) {
      return kFloat32Share;
    }
    const bool is_int8 = left.type == ACL_INT8 || left.type == ACL_INT4;
    return is_int8 && right.type != ACL_FLOAT16 && right.type != ACL_BF16 ? kInt8Share : 1;
  }

  Work WeighProduct() const {
    const auto left = Find({"mat1", "batch1", "x1", "x", "self"});
    std::vector<const aclTensor*> right = Find({"mat2", "batch2", "x2", "weight", "vec", "tensor"});
    const auto first = Find({"weight1"});
    right.insert(right.end(), first.begin(), first.end());
    const auto second = Find({"weight2"});
    right.insert(right.end(), second.begin(), second.end());
    if (left.empty() || right.empty()) {
      return {.bytes = BytesOfAll([](std::string_view) { return true; })};
    }
    double left_elements = 0;
    for (const aclTensor* tensor : left) {
      left_elements += ElementsOf(*tensor);
    }
    double weights = 0;
    double weight_elements = 0;
    for (const aclTensor* tensor : right) {
      const bool is_packed = tensor->type == ACL_INT32;
      weights += BytesOf(*tensor);
      weight_elements += ElementsOf(*tensor) * (is_packed ? kPackedInt4 : 1);
    }
    // What is summed over: the last dimension of the left-hand side, or the one before it if it is transposed.
    const bool turned = IsSet({"transposeX1", "transposeX"}) && left[0]->rank() >= 2;
    const double inner = std::max<double>(1, left[0]->sizes[left[0]->rank() - (turned ? 2 : 1)]);
    const double rows = left_elements / inner;
    const double matrices = MatricesOf(right);
    const bool has_experts = HasAnyOf(operator_name_, {"Grouped", "FFN"});
    const bool is_batch = !has_experts && matrices > 1;
    // In a batch each matrix has its own rows, of which the left-hand side has as many as there are matrices.
    const double own_rows = has_experts || is_batch ? rows / matrices : rows;
    const double products = is_batch && left[0]->rank() == 2 ? rows * weight_elements : own_rows * weight_elements;
    const double used = has_experts ? std::min(1.0, rows / matrices) : 1.0;
    const double others = BytesOfAll([](std::string_view) { return true; }) - weights;
    const bool is_weight = !HasAnyOf(operator_name_, {"BatchMatMul", "Baddbmm"}) ||
                           HasAnyOf(operator_name_, {"WeightNz", "WeightQuant", "TransposeBatchMatMul"});
    return {.bytes = others + (is_weight ? 0 : weights),
            .streamed_bytes = is_weight ? used * weights : 0,
            .cube_operations = 2 * products * ShareOf(*left[0], *right[0])};
  }

  // How many matrices the right-hand side is: the experts of a list or of its first dimension, or a batch.
  double MatricesOf(const std::vector<const aclTensor*>& right) const {
    double matrices = 0;
    for (const aclTensor* tensor : right) {
      double own = 1;
      for (int dim = 0; tensor->rank() > 2 && dim < tensor->rank() - 2; ++dim) {
        own *= static_cast<double>(tensor->sizes[dim]);
      }
      if (tensor->format == ACL_FORMAT_FRACTAL_NZ && tensor->rank() > 3) {  // [experts, blocks, blocks, 16, 16]
        own = tensor->rank() == 5 ? static_cast<double>(tensor->sizes[0]) : 1;
      }
      matrices += own;
    }
    // Each expert of FFN has two.
    return std::max(1.0, Has(operator_name_, "FFN") ? matrices / 2 : matrices);
  }

  // Products of each token with all weights.
  Work WeighProlog() const {
    const auto tokens = Find({"tokenX"});
    double weights = 0;
    double elements = 0;
    for (size_t index = 0; index < given_.size(); ++index) {
      if (Has(names_[index], "weight")) {
        for (const aclTensor* tensor : TensorsOf(given_.begin()[index])) {
          weights += BytesOf(*tensor);
          elements += ElementsOf(*tensor);
        }
      }
    }
    const bool known = !tokens.empty() && tokens[0]->rank() > 0;
    const double rows = known ? ElementsOf(*tokens[0]) / std::max<double>(1, tokens[0]->sizes[tokens[0]->rank() - 1]) : 0;
    return {.bytes = BytesOfAll([](std::string_view name) { return !IsCache(name) && !Has(name, "weight"); }),
            .streamed_bytes = weights,
            .cube_operations = 2 * rows * elements * (known && tokens[0]->type == ACL_INT8 ? kInt8Share : 1)};
  }

  bool IsSet(std::initializer_list<std::string_view> names) const {
    for (size_t index = 0; index < given_.size(); ++index) {
      const bool is_named = std::find(names.begin(), names.end(), std::string_view(names_[index])) != names.end();
      if (is_named && given_.begin()[index].kind == GivenArgument::Kind::kInteger) {
        return given_.begin()[index].integer != 0;
      }
    }
    return false;
  }

  const std::string_view operator_name_;
  const std::vector<std::string>& names_;
  const std::initializer_list<GivenArgument> given_;
};

}  // namespace

Work WorkOfCall(const char* operator_name, const char* arguments, std::initializer_list<GivenArgument> given) {
  return Call(operator_name, arguments, given).Weigh();
}

}  // namespace cann_sim::operators
