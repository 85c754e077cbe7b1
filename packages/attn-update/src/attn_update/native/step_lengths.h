// Reads the lengths of a step from Python and checks them, in one pass and where nothing about them is unusual.
//
// What it does not take, attn_update.UpdatePlan.check reads again, which says what is wrong or makes lists of it.
#pragma once

#include <pybind11/pybind11.h>

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

class StepLengths {
 public:
  // The lengths that the launches of one slot are to take for one argument.
  struct Lengths {
    std::size_t slot;
    std::string argument;
    std::vector<std::int64_t> values;
  };

  // An argument of a parameter group, and the rule that it has to keep for one slot.
  void add(const std::string& group, const std::string& argument, std::size_t slot, const LengthRule& rule) {
    arguments_of(group, argument).rules.emplace_back(slot, rule);
  }

  // `groups` are those of attn_update.StepParameters. Nothing where they are not the declared ones, hold anything else
  // than lists of integers, or lengths that break a rule.
  std::optional<std::vector<Lengths>> read(const pybind11::handle& groups) const {
    if (groups_.empty() || !PyDict_CheckExact(groups.ptr()) || size(groups) != groups_.size()) {
      return std::nullopt;
    }
    std::vector<Lengths> lengths;
    for (const auto& group : groups_) {
      PyObject* given = PyDict_GetItem(groups.ptr(), group.key.ptr());
      if (given == nullptr || !PyDict_CheckExact(given) || size(given) != group.arguments.size()) {
        return std::nullopt;
      }
      for (const auto& argument : group.arguments) {
        PyObject* value = PyDict_GetItem(given, argument.key.ptr());
        const auto integers = value == nullptr ? std::nullopt : read_integers(value);
        if (!integers) {
          return std::nullopt;
        }
        for (const auto& [slot, rule] : argument.rules) {
          if (!rule.fits(*integers)) {
            return std::nullopt;
          }
          lengths.push_back(Lengths{slot, argument.name, *integers});
        }
      }
    }
    return lengths;
  }

 private:
  struct Argument {
    std::string name;
    pybind11::str key;
    std::vector<std::pair<std::size_t, LengthRule>> rules;
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
