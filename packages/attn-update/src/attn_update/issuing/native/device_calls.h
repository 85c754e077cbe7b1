// The calls of CANN's runtime around a launch, at the addresses that the device returned.
#pragma once

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <cstdint>

namespace attn_update {

template <typename T>
T as_pointer(std::uint64_t address) {
  return reinterpret_cast<T>(static_cast<std::uintptr_t>(address));
}

inline std::uint64_t address_of(const pybind11::dict& calls, const char* name) {
  return calls.contains(name) ? calls[name].cast<std::uint64_t>() : 0;
}

// A function that cannot be done without.
template <typename F>
F find_call(const pybind11::dict& calls, const char* name) {
  const auto address = address_of(calls, name);
  TORCH_CHECK_VALUE(address != 0, "the device did not tell ", name);
  return as_pointer<F>(address);
}

// The C interface of CANN 8 (acl/acl_rt.h); 0 is success.
struct DeviceCalls {
  using BeginUpdate = int (*)(void* stream, void* group);
  using EndUpdate = int (*)(void* stream);
  using WriteValue = int (*)(void* word, std::uint64_t value, std::uint32_t flag, void* stream);
  using CreateEvent = int (*)(void** event, std::uint32_t flag);
  using RecordEvent = int (*)(void* event, void* stream);
  using WaitEvent = int (*)(void* stream, void* event);
  using DestroyEvent = int (*)(void* event);

  explicit DeviceCalls(const pybind11::dict& calls)
      : begin(find_call<BeginUpdate>(calls, "aclmdlRICaptureTaskUpdateBegin")),
        end(find_call<EndUpdate>(calls, "aclmdlRICaptureTaskUpdateEnd")),
        create_event(find_call<CreateEvent>(calls, "aclrtCreateEventExWithFlag")),
        record_event(find_call<RecordEvent>(calls, "aclrtRecordEvent")),
        wait_event(find_call<WaitEvent>(calls, "aclrtStreamWaitEvent")),
        destroy_event(find_call<DestroyEvent>(calls, "aclrtDestroyEvent")),
        write(as_pointer<WriteValue>(address_of(calls, "aclrtValueWrite"))) {}

  // An external event is a word where the device can wait for a value, else an event of its own.
  int set_external(void* event, void* stream) const {
    return write != nullptr ? write(event, 1, 0, stream) : record_event(event, stream);
  }

  BeginUpdate begin;
  EndUpdate end;
  CreateEvent create_event;
  RecordEvent record_event;
  WaitEvent wait_event;
  DestroyEvent destroy_event;
  WriteValue write;
};

}  // namespace attn_update
