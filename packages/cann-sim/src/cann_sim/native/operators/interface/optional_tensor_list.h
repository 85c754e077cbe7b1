// A list of tensors that may be absent: a null pointer, no elements, or only elements that torch_npu left undefined.
#pragma once

#include <algorithm>
#include <string>

#include "argument.h"
#include "refusal.h"

namespace cann_sim::operators {

class OptionalTensorList {
 public:
  using Abi = const aclTensorList*;

  OptionalTensorList(const aclTensorList* list, const char* name) : name_(name) {
    if (list == nullptr) {
      return;
    }
    for (const aclTensor* tensor : list->tensors) {
      if (tensor != nullptr) {
        tensors_.emplace_back(tensor, name);
      }
    }
    if (!tensors_.empty() && tensors_.size() != list->tensors.size()) {
      throw Refusal(std::string("argument '") + name + "': expected every element of the list, found " +
                    std::to_string(tensors_.size()) + " of " + std::to_string(list->tensors.size()));
    }
    if (std::all_of(tensors_.begin(), tensors_.end(), [](const Tensor& tensor) { return tensor.is_placeholder(); })) {
      tensors_.clear();
    }
  }

  explicit operator bool() const { return !tensors_.empty(); }
  const char* name() const { return name_; }
  size_t size() const { return tensors_.size(); }
  const Tensor& operator[](size_t index) const { return tensors_[index]; }
  auto begin() const { return tensors_.begin(); }
  auto end() const { return tensors_.end(); }

 private:
  const char* name_;
  std::vector<Tensor> tensors_;
};

}  // namespace cann_sim::operators
