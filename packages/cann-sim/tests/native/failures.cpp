// Injected faults, kernels that throw, deadlocks and what is none, the end of the process; and faults planted for the sanitizers to find.

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>

#include "scenario.h"

extern "C" size_t cann_sim_set_faults(const char* text, char* message, size_t size);

namespace scenario {

void Faults() {
  char message[256];
  Together(3, [](int) {
    const aclrtStream stream = NewStream();
    for (int turn = 0; turn < 20; ++turn) {
      Launch(stream, "throws", [] { throw std::runtime_error("on purpose"); });
      CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
      CHECK_OK(aclrtSynchronizeStream(stream));
    }
    CHECK_OK(aclrtDestroyStream(stream));
  });
  CHECK(cann_sim_set_faults("allocation:2,stream:1,run(add):2", message, sizeof(message)) == 0);
  void* address = nullptr;
  aclrtStream stream = nullptr;
  CHECK_CODE(aclrtCreateStreamWithConfig(&stream, 0, 0), ACL_ERROR_RT_NO_STREAM_RESOURCE);
  CHECK_OK(aclrtMalloc(&address, 8, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK_OK(aclrtFree(address));
  CHECK_CODE(aclrtMalloc(&address, 8, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_RT_MEMORY_ALLOCATION);
  stream = NewStream();
  Launch(stream, "add", [] {});
  Launch(stream, "add", [] {});
  CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
  CHECK(cann_sim_set_faults("", message, sizeof(message)) == 0);
  CHECK_OK(aclrtDestroyStream(stream));
}

// A kernel fails while streams of other threads work and wait; all of them get the error, and the device is restarted.
void Stop() {
  auto* word = DeviceMemory<uint64_t>(1);
  const std::vector<aclrtStream> streams = NewStreams(4);
  CHECK_OK(aclrtSetStreamFailureMode(streams[0], ACL_STOP_ON_FAILURE));
  const aclrtEvent event = NewEvent();
  for (int turn = 0; turn < 20; ++turn) {
    Together(4, [&](int index) {
      if (index == 0) {
        Launch(streams[0], "throws", [] { throw std::runtime_error("on purpose"); });
      } else if (index == 1) {
        CHECK_OK(aclrtValueWait(word, 1, ACL_STREAM_WAIT_VALUE_EQ, streams[1]));
      } else {
        for (int kernel = 0; kernel < 10; ++kernel) {
          Launch(streams[index], "adds", [] {});
        }
      }
      if (index < 2) {
        CHECK_CODE(aclrtSynchronizeStream(streams[index]), ACL_ERROR_RT_AICORE_EXCEPTION);
      }
    });
    Together(4, [&](int index) {
      CHECK_CODE(aclrtSynchronizeStream(streams[index]), ACL_ERROR_RT_AICORE_EXCEPTION);
      CHECK_CODE(aclrtSynchronizeEvent(event), ACL_ERROR_RT_AICORE_EXCEPTION);
    });
    CHECK_OK(aclrtDeviceTaskAbort(0, 0));
    for (const aclrtStream stream : streams) {
      Launch(stream, "adds", [] {});
    }
    CHECK_OK(aclrtSynchronizeDevice());
  }
  CHECK_OK(aclrtDestroyEvent(event));
  Destroy(streams);
  CHECK_OK(aclrtFree(word));
}

void Deadlock() {
  auto* word = DeviceMemory<uint64_t>(1);
  const std::vector<aclrtStream> streams = NewStreams(2);
  const aclrtEvent event = NewEvent();
  CHECK_OK(aclrtValueWait(word, 1, ACL_STREAM_WAIT_VALUE_EQ, streams[0]));
  CHECK_OK(aclrtRecordEvent(event, streams[0]));
  CHECK_OK(aclrtStreamWaitEvent(streams[1], event));
  Together(2, [&](int index) { CHECK_CODE(aclrtSynchronizeStream(streams[index]), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT); });
  CHECK_CODE(aclrtSynchronizeEvent(event), ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);
  const aclrtStream other = NewStream();
  CHECK_OK(aclrtValueWrite(word, 1, 0, other));
  CHECK_OK(aclrtSynchronizeDevice());
  CHECK_OK(aclrtDestroyEvent(event));
  CHECK_OK(aclrtDestroyStream(other));
  Destroy(streams);
  CHECK_OK(aclrtFree(word));
}

// Slower than the deadlock time, and yet none: nothing that can continue is blocked.
void SlowWorkers() {
  auto* words = DeviceMemory<uint64_t>(2);
  const std::vector<aclrtStream> streams = NewStreams(2);
  // While it is freed, the worker runs no task and waits for none, as one that the operating system holds back.
  std::shared_ptr<void> freed_slowly(nullptr, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(1500)); });
  CHECK_OK(aclrtValueWait(&words[0], 1, ACL_STREAM_WAIT_VALUE_EQ, streams[0]));
  Launch(streams[1], "own", [freed_slowly = std::move(freed_slowly)] {});
  CHECK_OK(aclrtValueWrite(&words[0], 1, 0, streams[1]));
  CHECK_OK(aclrtSynchronizeStream(streams[0]));
  // Memory that nothing of this device writes, as another process may: a wait for it has ended without notification.
  CHECK_OK(aclrtValueWait(&words[1], 1, ACL_STREAM_WAIT_VALUE_EQ, streams[0]));
  CHECK_CODE(aclrtSynchronizeStreamWithTimeout(streams[0], 50), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  __atomic_store_n(&words[1], 1, __ATOMIC_SEQ_CST);
  CHECK_OK(aclrtSynchronizeStream(streams[0]));
  Destroy(streams);
  CHECK_OK(aclrtFree(words));
}

// Work that is queued, running and waiting when main returns.
void Exit() {
  auto* word = DeviceMemory<uint64_t>(1);
  const std::vector<aclrtStream> streams = NewStreams(3);
  CHECK_OK(aclrtValueWait(word, 1, ACL_STREAM_WAIT_VALUE_EQ, streams[0]));
  for (int number = 0; number < 50; ++number) {
    Launch(streams[0], "never", [] { CHECK(false); });
    Launch(streams[1], "queued", [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  }
  Launch(streams[2], "done", [] {});
}

void PlantedRace() {
  const std::vector<aclrtStream> streams = NewStreams(2);
  volatile int value = 0;
  std::atomic<int> arrived{0};
  for (aclrtStream stream : streams) {
    Launch(stream, "add", [&] {
      // Side by side, without an order that a sanitizer could take for one.
      for (int round = 1; round <= 100; ++round) {
        arrived.fetch_add(1, std::memory_order_relaxed);
        while (arrived.load(std::memory_order_relaxed) < 2 * round) {
          std::this_thread::yield();
        }
        value = value + 1;
      }
    });
  }
  CHECK_OK(aclrtSynchronizeDevice());
}

// In memory of the host: a sanitizer does not know the bounds of what is mapped for the device.
void PlantedOverflow() {
  const aclrtStream stream = NewStream();
  const std::unique_ptr<char[]> bytes(new char[512]);
  Launch(stream, "write", [bytes = bytes.get()] { bytes[512] = 1; });
  CHECK_OK(aclrtSynchronizeStream(stream));
}

void PlantedUseAfterFree() {
  const aclrtStream stream = NewStream();
  char* bytes = new char[512];
  delete[] bytes;
  Launch(stream, "write", [bytes] { bytes[0] = 1; });
  CHECK_OK(aclrtSynchronizeStream(stream));
}

}  // namespace scenario
