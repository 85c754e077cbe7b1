// Device and pinned memory, copies, address ranges with physical memory mapped into them.

#include <cstring>

#include "scenario.h"

namespace scenario {

void Copies() {
  constexpr size_t kBytes = 4096;
  Together(3, [](int index) {
    const aclrtStream stream = NewStream();
    auto* device = DeviceMemory<char>(kBytes);
    auto* other = DeviceMemory<char>(kBytes);
    void* pinned = nullptr;
    CHECK_OK(aclrtMallocHost(&pinned, kBytes));
    std::vector<char> pageable(kBytes);
    for (int turn = 0; turn < 40; ++turn) {
      const char byte = static_cast<char>(index * 40 + turn + 1);
      CHECK_OK(aclrtMemsetAsync(device, kBytes, byte, kBytes, stream));
      CHECK_OK(aclrtMemcpyAsync(other, kBytes, device, kBytes, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
      CHECK_OK(aclrtMemcpyAsync(pinned, kBytes, other, kBytes, ACL_MEMCPY_DEVICE_TO_HOST, stream));
      CHECK_OK(aclrtMemcpyAsync(pageable.data(), kBytes, other, kBytes, ACL_MEMCPY_DEVICE_TO_HOST, stream));
      CHECK_OK(aclrtSynchronizeStream(stream));
      CHECK(static_cast<char*>(pinned)[kBytes - 1] == byte && pageable[kBytes - 1] == byte);
      CHECK_OK(aclrtMemcpy(device, kBytes, pageable.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE));
    }
    CHECK_OK(aclrtFreeHost(pinned));
    CHECK_OK(aclrtFree(device));
    CHECK_OK(aclrtFree(other));
    CHECK_OK(aclrtDestroyStream(stream));
  });
}

void Memory() {
  Together(4, [](int) {
    for (int turn = 0; turn < 100; ++turn) {
      auto* address = DeviceMemory<char>(1000);
      aclrtPtrAttributes attributes{};
      CHECK_OK(aclrtPointerGetAttributes(address + 999, &attributes));
      CHECK(attributes.location.type == ACL_MEM_LOCATION_TYPE_DEVICE);
      size_t free_bytes = 0;
      size_t total_bytes = 0;
      CHECK_OK(aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, &total_bytes));
      CHECK(free_bytes < total_bytes);
      CHECK_OK(aclrtFree(address));
      std::vector<char> host(1000);
      void* registered = nullptr;
      CHECK_OK(aclrtHostRegister(host.data(), host.size(), ACL_HOST_REGISTER_MAPPED, &registered));
      CHECK_OK(aclrtHostUnregister(host.data()));
    }
  });
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  CHECK_OK(aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, &total_bytes));
  CHECK(free_bytes == total_bytes);
  void* address = nullptr;
  CHECK(aclrtMalloc(&address, total_bytes + 1, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_MEMORY_ALLOCATION);
}

void VirtualMemory() {
  constexpr size_t kPage = 2 << 20;
  Together(2, [](int) {
    const aclrtStream stream = NewStream();
    aclrtPhysicalMemProp properties{};
    properties.location = {0, ACL_MEM_LOCATION_TYPE_DEVICE};
    for (int turn = 0; turn < 10; ++turn) {
      void* range = nullptr;
      CHECK_OK(aclrtReserveMemAddress(&range, 4 * kPage, 0, nullptr, 0));
      auto* bytes = static_cast<char*>(range);
      aclrtDrvMemHandle handles[2] = {};
      for (int part = 0; part < 2; ++part) {
        CHECK_OK(aclrtMallocPhysical(&handles[part], kPage, &properties, 0));
        CHECK_OK(aclrtMapMem(bytes + part * kPage, kPage, 0, handles[part], 0));
      }
      CHECK_OK(aclrtMemsetAsync(bytes, kPage, turn, kPage, stream));
      Launch(stream, "across", [bytes] { bytes[2 * kPage - 1] = bytes[kPage - 1]; });
      CHECK_OK(aclrtSynchronizeStream(stream));
      CHECK(bytes[2 * kPage - 1] == turn);
      for (int part = 0; part < 2; ++part) {
        CHECK_OK(aclrtUnmapMem(bytes + part * kPage));
        CHECK_OK(aclrtFreePhysical(handles[part]));
      }
      CHECK_OK(aclrtReleaseMemAddress(range));
    }
    CHECK_OK(aclrtDestroyStream(stream));
  });
}

}  // namespace scenario
