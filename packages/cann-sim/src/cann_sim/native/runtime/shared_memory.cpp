// Device memory that one process exports by a key and others import.

#include <acl/acl_rt.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "device.h"
#include "error_message.h"
#include "memory.h"
#include "memory_file.h"

namespace {

using cann_sim::Device;
using cann_sim::Fail;
using cann_sim::SharedRange;

constexpr size_t kMostProcesses = 13;

// The memory of a key while it is open, in a slot of the exporter's memory file.
struct Export {
  std::atomic<uint32_t> number;  // of the key; 0 once it is closed
  std::atomic<uint32_t> checks_processes;
  std::atomic<int32_t> processes[kMostProcesses];  // those that may import, 0 where the entry is free
};
static_assert(sizeof(Export) <= cann_sim::kSlotBytes);

struct Key {
  SharedRange range;
  size_t slot;
  uint32_t number;
};

struct Import {
  void* address;
  SharedRange range;
};

struct SharedMemory {
  std::mutex mutex;
  uint32_t next_number = 1;
  std::map<std::string, size_t> exported;  // slots, by key
  std::map<std::string, Import> imported;
};

SharedMemory& TheSharedMemory() {
  static auto* memory = new SharedMemory;
  return *memory;
}

std::string Write(const Key& key) {
  char text[64];
  std::snprintf(text, sizeof text, "cs:%x:%x:%zx:%zx:%zx:%x", static_cast<unsigned>(key.range.process),
                static_cast<unsigned>(key.range.device), key.range.offset, key.range.bytes, key.slot, key.number);
  return text;
}

bool Read(const char* text, Key& key) {
  unsigned process = 0;
  unsigned device = 0;
  const int found = std::sscanf(text, "cs:%x:%x:%zx:%zx:%zx:%x", &process, &device, &key.range.offset, &key.range.bytes,
                                &key.slot, &key.number);
  key.range.process = static_cast<int32_t>(process);
  key.range.device = static_cast<int32_t>(device);
  return found == 6;
}

aclError NotAKey(const char* function) {
  return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(function) + ": expected a key that aclrtIpcMemGetExportKey made");
}

// Whether the key is open and this process may import it; else what is wrong.
std::string CheckExport(const Key& key) {
  const SharedRange range{key.range.process, key.range.device, key.slot, sizeof(Export)};
  void* mapped = cann_sim::MapSharedRange(range);
  if (mapped == nullptr) {
    return "the process " + std::to_string(key.range.process) + " that exported it does not run any more";
  }
  std::string wrong;
  const auto& exported = *static_cast<const Export*>(mapped);
  if (exported.number.load() != key.number) {
    wrong = "the process that exported it closed it";
  } else if (exported.checks_processes.load() != 0 &&
             std::none_of(std::begin(exported.processes), std::end(exported.processes),
                          [](const std::atomic<int32_t>& process) { return process.load() == getpid(); })) {
    wrong = "aclrtIpcMemSetImportPid was not called for process " + std::to_string(getpid());
  }
  cann_sim::UnmapSharedRange(mapped, range);
  return wrong;
}

Export& ExportAt(const Key& key) {
  return *reinterpret_cast<Export*>(cann_sim::MemoryFileOf(*cann_sim::FindDevice(key.range.device)).base() + key.slot);
}

}  // namespace

extern "C" {

aclError aclrtIpcMemGetExportKey(void* address, size_t bytes, char* text, size_t length, uint64_t flags) {
  CANN_SIM_REQUIRE_USABLE("aclrtIpcMemGetExportKey");
  CANN_SIM_REQUIRE_POINTER("aclrtIpcMemGetExportKey", address);
  CANN_SIM_REQUIRE_POINTER("aclrtIpcMemGetExportKey", text);
  const Device* device = cann_sim::OwnerOf(address);
  cann_sim::MemoryFile* file = device == nullptr ? nullptr : &cann_sim::MemoryFileOf(*device);
  if (file == nullptr || cann_sim::AllocatedBytes(address) < bytes) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                "aclrtIpcMemGetExportKey: expected memory of aclrtMalloc of at least " + std::to_string(bytes) + " bytes");
  }
  const std::optional<size_t> slot = file->TakeSlot();
  if (!slot.has_value()) {
    return cann_sim::OutOfMemory("aclrtIpcMemGetExportKey", *device, cann_sim::kSlotBytes);
  }
  SharedMemory& memory = TheSharedMemory();
  const std::lock_guard<std::mutex> lock(memory.mutex);
  const Key key{{getpid(), device->id, static_cast<size_t>(static_cast<char*>(address) - file->base()), bytes},
                *slot,
                memory.next_number++};
  const std::string made = Write(key);
  if (length <= made.size()) {
    file->GiveSlotBack(*slot);
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcMemGetExportKey: expected room for " +
                                                std::to_string(made.size() + 1) + " characters, found " +
                                                std::to_string(length));
  }
  Export& exported = ExportAt(key);
  for (std::atomic<int32_t>& process : exported.processes) {
    process.store(0);
  }
  exported.checks_processes.store((flags & ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION) == 0);
  exported.number.store(key.number);
  memory.exported[made] = *slot;
  std::memset(text, 0, length);
  std::memcpy(text, made.data(), made.size());
  return ACL_SUCCESS;
}

aclError aclrtIpcMemSetImportPid(const char* text, int32_t* processes, size_t count) {
  CANN_SIM_REQUIRE_POINTER("aclrtIpcMemSetImportPid", text);
  CANN_SIM_REQUIRE_POINTER("aclrtIpcMemSetImportPid", processes);
  SharedMemory& memory = TheSharedMemory();
  const std::lock_guard<std::mutex> lock(memory.mutex);
  Key key{};
  if (!Read(text, key) || memory.exported.count(Write(key)) == 0) {
    return NotAKey("aclrtIpcMemSetImportPid");
  }
  for (size_t index = 0; index < count; ++index) {
    auto& known = ExportAt(key).processes;
    auto* const free = std::find_if(std::begin(known), std::end(known), [](const auto& entry) { return entry.load() == 0; });
    if (free == std::end(known)) {
      return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcMemSetImportPid: more than " + std::to_string(kMostProcesses) +
                                                  " processes for one key are not simulated");
    }
    free->store(processes[index]);
  }
  return ACL_SUCCESS;
}

aclError aclrtIpcMemImportByKey(void** address, const char* text, uint64_t /*flags*/) {
  CANN_SIM_REQUIRE_USABLE("aclrtIpcMemImportByKey");
  CANN_SIM_REQUIRE_POINTER("aclrtIpcMemImportByKey", address);
  CANN_SIM_REQUIRE_POINTER("aclrtIpcMemImportByKey", text);
  Key key{};
  if (!Read(text, key)) {
    return NotAKey("aclrtIpcMemImportByKey");
  }
  Device* device = cann_sim::FindDevice(key.range.device);
  device = device == nullptr ? cann_sim::CurrentDevice() : device;
  if (device == nullptr) {
    return Fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtIpcMemImportByKey: no device is set on this thread");
  }
  if (const std::string wrong = CheckExport(key); !wrong.empty()) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcMemImportByKey: the key cannot be imported: " + wrong);
  }
  *address = cann_sim::MapSharedRange(key.range);
  if (*address == nullptr) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcMemImportByKey: the memory of process " +
                                                std::to_string(key.range.process) + " cannot be mapped");
  }
  cann_sim::NoteMemory(*address, key.range.bytes, cann_sim::MemoryPlace::kDevice, device);
  SharedMemory& memory = TheSharedMemory();
  const std::lock_guard<std::mutex> lock(memory.mutex);
  memory.imported[Write(key)] = {*address, key.range};
  return ACL_SUCCESS;
}

// In the process that imported, the memory goes away; in the one that exported, the key cannot be imported any more.
aclError aclrtIpcMemClose(const char* text) {
  CANN_SIM_REQUIRE_POINTER("aclrtIpcMemClose", text);
  Key key{};
  if (!Read(text, key)) {
    return NotAKey("aclrtIpcMemClose");
  }
  SharedMemory& memory = TheSharedMemory();
  const std::lock_guard<std::mutex> lock(memory.mutex);
  const std::string name = Write(key);
  if (const auto found = memory.imported.find(name); found != memory.imported.end()) {
    cann_sim::ForgetMemory(found->second.address);
    cann_sim::UnmapSharedRange(found->second.address, found->second.range);
    memory.imported.erase(found);
    return ACL_SUCCESS;
  }
  if (memory.exported.erase(name) == 0) {
    return NotAKey("aclrtIpcMemClose");
  }
  ExportAt(key).number.store(0);
  cann_sim::MemoryFileOf(*cann_sim::FindDevice(key.range.device)).GiveSlotBack(key.slot);
  return ACL_SUCCESS;
}

}  // extern "C"
