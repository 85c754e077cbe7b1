// What the scenarios of the driver share: checks that end the process, kernels, streams, and host threads.
#pragma once

#include <acl/acl_rt.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launch.h"

extern "C" const char* aclGetRecentErrMsg();

namespace scenario {

[[noreturn]] inline void End(const char* file, int line, const std::string& what) {
  const char* message = aclGetRecentErrMsg();
  std::fprintf(stderr, "%s:%d: %s; %s\n", file, line, what.c_str(), message == nullptr ? "" : message);
  std::_Exit(3);
}

#define CHECK(CONDITION)                                                \
  do {                                                                  \
    if (!(CONDITION)) {                                                 \
      ::scenario::End(__FILE__, __LINE__, "expected " #CONDITION);      \
    }                                                                   \
  } while (false)

#define CHECK_CODE(CALL, EXPECTED)                                                                         \
  do {                                                                                                     \
    if (const aclError code = (CALL); code != (EXPECTED)) {                                                \
      ::scenario::End(__FILE__, __LINE__, #CALL ": expected " #EXPECTED ", found " + std::to_string(code)); \
    }                                                                                                      \
  } while (false)

#define CHECK_OK(CALL) CHECK_CODE(CALL, ACL_SUCCESS)

inline void Launch(aclrtStream stream, const char* name, std::function<void()> run) {
  CHECK_OK(cann_sim::LaunchKernel(stream, {name, std::move(run)}));
}

inline aclrtStream NewStream() {
  aclrtStream stream = nullptr;
  CHECK_OK(aclrtCreateStreamWithConfig(&stream, 0, 0));
  return stream;
}

inline std::vector<aclrtStream> NewStreams(int count) {
  std::vector<aclrtStream> streams;
  for (int index = 0; index < count; ++index) {
    streams.push_back(NewStream());
  }
  return streams;
}

inline void Destroy(const std::vector<aclrtStream>& streams) {
  for (aclrtStream stream : streams) {
    CHECK_OK(aclrtDestroyStream(stream));
  }
}

inline aclrtEvent NewEvent() {
  aclrtEvent event = nullptr;
  CHECK_OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
  return event;
}

template <class T>
T* DeviceMemory(size_t count) {
  void* address = nullptr;
  CHECK_OK(aclrtMalloc(&address, count * sizeof(T), ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK_OK(aclrtMemset(address, count * sizeof(T), 0, count * sizeof(T)));
  return static_cast<T*>(address);
}

// Runs `work(0)` to `work(count - 1)` on host threads of their own, each with device 0 set, and waits for them.
inline void Together(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int index = 0; index < count; ++index) {
    threads.emplace_back([&work, index] {
      CHECK_OK(aclrtSetDevice(0));
      work(index);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// The scenarios, each in the file of its subject. `planted` ones have a fault that a sanitizer must find.
void Streams();
void Copies();
void Memory();
void VirtualMemory();
void Events();
void ExternalValues();
void ExternalEvents();
void HostFunctions();
void Counters();
void Captures();
void Replays();
void Destruction();
void TaskUpdates();
void FuzzedSchedules();
void Faults();
void Stop();
void Collectives();
void Deadlock();
void SlowWorkers();
void Exit();
void PlantedRace();
void PlantedOverflow();
void PlantedUseAfterFree();

}  // namespace scenario
