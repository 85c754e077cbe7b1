// Reads the arguments of a step from Python and checks them, in one pass and where nothing about them is unusual.
//
// What it does not take, attn_update.UpdatePlan.check reads again, which says what is wrong or makes lists of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attn_update {

// attn_update.LengthRule.
struct LengthRule {
  std::size_t count;
  bool cumulative;
  std::optional<std::int64_t> total;
  std::optional<std::int64_t> maximum;

  bool fits(const std::vector<std::int64_t>& lengths) const {
    if (lengths.size() != count) {
      return false;
    }
    if (lengths.empty()) {
      return true;
    }
    if (cumulative && !std::is_sorted(lengths.begin(), lengths.end())) {
      return false;
    }
    const auto [smallest, largest] = std::minmax_element(lengths.begin(), lengths.end());
    return *smallest >= 0 && (!total || lengths.back() == *total) && (!maximum || *largest <= *maximum);
  }
};

// The values of a list of Python integers; nothing where it is something else, or holds something else.
inline std::optional<std::vector<std::int64_t>> read_integers(const pybind11::handle& value) {
  if (!PyList_CheckExact(value.ptr())) {
    return std::nullopt;
  }
  std::vector<std::int64_t> integers(static_cast<std::size_t>(PyList_GET_SIZE(value.ptr())));
  for (std::size_t index = 0; index < integers.size(); ++index) {
    PyObject* item = PyList_GET_ITEM(value.ptr(), static_cast<Py_ssize_t>(index));
    int overflow = 0;
    if (!PyLong_CheckExact(item)) {
      return std::nullopt;
    }
    integers[index] = PyLong_AsLongLongAndOverflow(item, &overflow);
    if (overflow != 0) {
      return std::nullopt;
    }
  }
  return integers;
}

// attn_update.TensorForm.
struct TensorForm {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype;
  at::Device device;

  bool fits(const at::Tensor& tensor) const {
    return tensor.sizes() == sizes && tensor.scalar_type() == dtype && tensor.device() == device;
  }
};

// attn_update.recording.tensor_memory.is_same_memory of tensors of one form.
inline bool is_same_memory(const at::Tensor& one, const at::Tensor& other) {
  return one.const_data_ptr() == other.const_data_ptr() && one.sizes() == other.sizes() && one.strides() == other.strides();
}

// What the launches of one slot are to take for one argument: lengths, or a tensor.
struct StepArgument {
  std::size_t slot;
  std::string name;
  std::vector<std::int64_t> lengths;
  at::Tensor tensor;
};

class StepArguments {
 public:
  // An argument of a parameter group, and the rule that its lengths have to keep for one slot.
  void add(const std::string& group, const std::string& argument, std::size_t slot, const LengthRule& rule) {
    arguments_of(group, argument).rules.emplace_back(slot, rule);
  }

  // An argument of a parameter group that is a tensor, and the form that it has to have for one slot.
  void add(const std::string& group, const std::string& argument, std::size_t slot, const TensorForm& form) {
    arguments_of(group, argument).forms.emplace_back(slot, form);
  }

  // `groups` are those of attn_update.StepParameters. Nothing where they are not the declared ones, hold anything else
  // than lists of integers and tensors, or what breaks a rule.
  std::optional<std::vector<StepArgument>> read(const pybind11::handle& groups) const {
    if (groups_.empty() || !PyDict_CheckExact(groups.ptr()) || size(groups) != groups_.size()) {
      return std::nullopt;
    }
    std::vector<StepArgument> found;
    for (const auto& group : groups_) {
      PyObject* given = PyDict_GetItem(groups.ptr(), group.key.ptr());
      if (given == nullptr || !PyDict_CheckExact(given) || size(given) != group.arguments.size()) {
        return std::nullopt;
      }
      for (const auto& argument : group.arguments) {
        PyObject* value = PyDict_GetItem(given, argument.key.ptr());
        if (value == nullptr || !argument.read(value, found)) {
          return std::nullopt;
        }
      }
    }
    return found;
  }

 private:
  struct Argument {
    std::string name;
    pybind11::str key;
    std::vector<std::pair<std::size_t, LengthRule>> rules;
    std::vector<std::pair<std::size_t, TensorForm>> forms;

    // Appends what each slot is to take; false where the value is nothing that they take as it is.
    bool read(PyObject* value, std::vector<StepArgument>& found) const {
      if (THPVariable_Check(value)) {
        const at::Tensor& tensor = THPVariable_Unpack(value);
        // Kinds that take a tensor for lengths, or from host memory, make something else of it.
        if (!rules.empty() || tensor.device().is_cpu()) {
          return false;
        }
        for (const auto& [slot, form] : forms) {
          if (!form.fits(tensor)) {
            return false;
          }
          found.push_back(StepArgument{slot, name, {}, tensor});
        }
        return true;
      }
      const auto integers = forms.empty() ? read_integers(value) : std::nullopt;
      if (!integers) {
        return false;
      }
      for (const auto& [slot, rule] : rules) {
        if (!rule.fits(*integers)) {
          return false;
        }
        found.push_back(StepArgument{slot, name, *integers, {}});
      }
      return true;
    }
  };

  struct Group {
    std::string name;
    pybind11::str key;
    std::vector<Argument> arguments;
  };

  static std::size_t size(const pybind11::handle& dict) { return static_cast<std::size_t>(PyDict_GET_SIZE(dict.ptr())); }

  template <typename Named>
  static Named& find_or_add(std::vector<Named>& known, const std::string& name) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const Named& each) { return each.name == name; });
    return found != known.end() ? *found : known.emplace_back(Named{name, pybind11::str(name), {}});
  }

  Argument& arguments_of(const std::string& group, const std::string& argument) {
    return find_or_add(find_or_add(groups_, group).arguments, argument);
  }

  std::vector<Group> groups_;
};

}  // namespace attn_update
