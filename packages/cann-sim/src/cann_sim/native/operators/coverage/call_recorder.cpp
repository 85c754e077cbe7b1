#include "call_recorder.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

#include "../../runtime/json_text.h"
#include "../../runtime/launch.h"
#include "../interface/accepted_call.h"

namespace cann_sim::operators {

std::atomic<bool> records_calls{false};

namespace {

// A run that goes through very many dtypes must not fill the memory.
constexpr size_t kMostCallsOfOperator = 64;

struct Calls {
  std::mutex mutex;
  std::map<std::string, std::map<std::string, std::string>> by_operator;  // operator -> dtypes -> arguments as JSON
};

Calls& TheCalls() {
  static auto* calls = new Calls;
  return *calls;
}

template <class Items, class Write>
void WriteList(std::ostream& json, const Items& items, Write write) {
  json << '[';
  const char* separator = "";
  for (const auto& item : items) {
    json << separator;
    write(item);
    separator = ",";
  }
  json << ']';
}

void WriteSizes(std::ostream& json, const char* name, const Dimensions& sizes) {
  json << ",\"" << name << "\":[";
  for (int dim = 0; dim < sizes.count(); ++dim) {
    json << (dim == 0 ? "" : ",") << sizes[dim];
  }
  json << ']';
}

void WriteTensor(std::ostream& json, std::string& dtypes, const aclTensor* tensor) {
  dtypes += (tensor == nullptr ? "-" : std::to_string(static_cast<int>(tensor->type))) + " ";
  if (tensor == nullptr) {
    json << "null";
    return;
  }
  json << "{\"type\":" << static_cast<int>(tensor->type) << ",\"format\":" << static_cast<int>(tensor->format)
       << ",\"offset\":" << tensor->offset;
  WriteSizes(json, "sizes", tensor->sizes);
  WriteSizes(json, "strides", tensor->strides);
  WriteSizes(json, "storage", tensor->storage_sizes);
  json << '}';
}

// JSON has neither infinity nor NaN; what tests replay depends on neither.
double Written(double value) { return value != value ? 0 : std::clamp(value, -1e300, 1e300); }

void WriteScalar(std::ostream& json, const aclScalar* scalar) {
  if (scalar == nullptr) {
    json << "null";
  } else if (scalar->value.isComplex()) {
    json << scalar->value.toComplexDouble().real();
  } else {
    json << Written(scalar->value.toDouble());
  }
}

void WriteArgument(std::ostream& json, std::string& dtypes, const GivenArgument& argument) {
  using Kind = GivenArgument::Kind;
  if (argument.kind == Kind::kInteger) {
    json << argument.integer;
  } else if (argument.kind == Kind::kReal) {
    json << Written(argument.real);
  } else if (argument.kind == Kind::kTensor) {
    WriteTensor(json, dtypes, argument.as<aclTensor>());
  } else if (argument.object == nullptr) {
    json << "null";
  } else if (argument.kind == Kind::kTensorList) {
    WriteList(json, argument.as<aclTensorList>()->tensors,
              [&](const aclTensor* tensor) { WriteTensor(json, dtypes, tensor); });
  } else if (argument.kind == Kind::kScalar) {
    WriteScalar(json, argument.as<aclScalar>());
  } else if (argument.kind == Kind::kScalarList) {
    WriteList(json, argument.as<aclScalarList>()->scalars, [&](const aclScalar* scalar) { WriteScalar(json, scalar); });
  } else if (argument.kind == Kind::kIntArray) {
    WriteList(json, argument.as<aclIntArray>()->values, [&](int64_t value) { json << value; });
  } else if (argument.kind == Kind::kBoolArray) {
    WriteList(json, argument.as<aclBoolArray>()->values, [&](bool value) { json << static_cast<int>(value); });
  } else {
    json << Quoted(argument.as<char>());
  }
}

}  // namespace

void RecordCall(const char* operator_name, std::initializer_list<GivenArgument> given) {
  std::ostringstream json;
  json.precision(17);
  std::string dtypes;
  WriteList(json, given, [&](const GivenArgument& argument) { WriteArgument(json, dtypes, argument); });
  Calls& calls = TheCalls();
  const std::lock_guard<std::mutex> lock(calls.mutex);
  auto& kept = calls.by_operator[operator_name];
  if (kept.size() < kMostCallsOfOperator || kept.count(dtypes) != 0) {
    kept[dtypes] = json.str();
  }
}

}  // namespace cann_sim::operators

// From now on, or no longer, accepted calls are kept.
extern "C" CANN_SIM_EXPORT void cann_sim_record_calls(int records) {
  cann_sim::operators::records_calls = records != 0;
  cann_sim::operators::sees_calls = records != 0 || cann_sim::KernelsAreTimed();
}

// Writes {"operator": [[argument, ...], ...], ...} as JSON into `buffer`, cut at `size`, and returns its whole length.
extern "C" CANN_SIM_EXPORT size_t cann_sim_recorded_calls(char* buffer, size_t size) {
  using cann_sim::operators::TheCalls;
  auto& calls = TheCalls();
  const std::lock_guard<std::mutex> lock(calls.mutex);
  std::string json = "{";
  for (const auto& [name, kept] : calls.by_operator) {
    json += (json.size() == 1 ? "" : ",") + cann_sim::Quoted(name) + ":[";
    for (auto call = kept.begin(); call != kept.end(); ++call) {
      json += (call == kept.begin() ? "" : ",") + call->second;
    }
    json += "]";
  }
  json += "}";
  std::memcpy(buffer, json.data(), std::min(size, json.size()));
  return json.size();
}
