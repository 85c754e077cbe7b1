// Streams, events in both forms, external events in both forms, functions of the host, counters.

#include <pthread.h>

#include <atomic>

#include "scenario.h"

extern "C" size_t cann_sim_counters(char* buffer, size_t size);

namespace scenario {

void Streams() {
  constexpr int kThreads = 4;
  constexpr int kKernels = 400;
  const aclrtStream shared = NewStream();
  int in_shared = 0;
  Together(kThreads, [&](int) {
    const aclrtStream own = NewStream();
    int in_own = 0;
    for (int number = 0; number < kKernels; ++number) {
      Launch(own, "own", [&in_own] { ++in_own; });
      Launch(shared, "shared", [&in_shared] { ++in_shared; });
      if (number % 50 == 0) {
        aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
        CHECK_OK(aclrtStreamQuery(own, &status));
      }
      if (number % 100 == 0) {
        CHECK_OK(aclrtSynchronizeStream(own));
        CHECK(in_own == number + 1);
      }
    }
    CHECK_OK(aclrtSynchronizeDevice());
    CHECK(in_own == kKernels);
    CHECK_OK(aclrtDestroyStream(own));
  });
  CHECK_OK(aclrtSynchronizeStream(shared));
  CHECK(in_shared == kThreads * kKernels);
  CHECK_OK(aclrtDestroyStream(shared));
}

// Each stream writes what the stream before it has written; only the events order them.
void Events() {
  constexpr int kStreams = 4;
  constexpr int kTurns = 60;
  Together(2, [](int) {
    const std::vector<aclrtStream> streams = NewStreams(kStreams);
    std::vector<aclrtEvent> events;
    for (int index = 0; index < kStreams; ++index) {
      events.push_back(NewEvent());
    }
    int value = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      for (int index = 0; index < kStreams; ++index) {
        CHECK_OK(aclrtStreamWaitEvent(streams[index], events[(index + kStreams - 1) % kStreams]));
        Launch(streams[index], "add", [&value] { ++value; });
        CHECK_OK(aclrtRecordEvent(events[index], streams[index]));
      }
      if (turn % 20 == 0) {
        aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
        CHECK_OK(aclrtQueryEventStatus(events[0], &status));
        CHECK_OK(aclrtSynchronizeEvent(events[kStreams - 1]));
        CHECK(value == (turn + 1) * kStreams);
        float milliseconds = -1;
        CHECK_OK(aclrtEventElapsedTime(&milliseconds, events[0], events[1]));
        CHECK(milliseconds >= 0);
      }
    }
    // Destroyed while tasks refer to them.
    for (aclrtEvent event : events) {
      CHECK_OK(aclrtDestroyEvent(event));
    }
    CHECK_OK(aclrtSynchronizeDevice());
    CHECK(value == kTurns * kStreams);
    Destroy(streams);
  });
}

void ExternalValues() {
  auto* word = DeviceMemory<uint64_t>(1);
  const std::vector<aclrtStream> streams = NewStreams(2);
  int value = 0;
  for (int turn = 1; turn <= 100; ++turn) {
    CHECK_OK(aclrtValueWait(word, 1, ACL_STREAM_WAIT_VALUE_EQ, streams[0]));
    CHECK_OK(aclrtValueWrite(word, 0, 0, streams[0]));
    Launch(streams[0], "check", [&value, turn] { CHECK(value == turn); });
    Launch(streams[1], "add", [&value] { ++value; });
    CHECK_OK(aclrtValueWrite(word, 1, 0, streams[1]));
    CHECK_OK(aclrtSynchronizeStream(streams[0]));
  }
  // A kernel's write ends the wait too.
  CHECK_OK(aclrtValueWait(word, 7, ACL_STREAM_WAIT_VALUE_GEQ, streams[0]));
  Launch(streams[1], "write", [word] { __atomic_store_n(word, 9, __ATOMIC_SEQ_CST); });
  CHECK_OK(aclrtSynchronizeStream(streams[0]));
  Destroy(streams);
  CHECK_OK(aclrtFree(word));
}

void ExternalEvents() {
  aclrtEvent event = nullptr;
  CHECK_OK(aclrtCreateEventWithFlag(&event, ACL_EVENT_EXTERNAL));
  const std::vector<aclrtStream> streams = NewStreams(2);
  int value = 0;
  for (int turn = 1; turn <= 100; ++turn) {
    CHECK_OK(aclrtStreamWaitEvent(streams[0], event));
    CHECK_OK(aclrtResetEvent(event, streams[0]));
    Launch(streams[0], "check", [&value, turn] { CHECK(value == turn); });
    Launch(streams[1], "add", [&value] { ++value; });
    CHECK_OK(aclrtRecordEvent(event, streams[1]));
    CHECK_OK(aclrtSynchronizeStream(streams[0]));
  }
  Destroy(streams);
  CHECK_OK(aclrtDestroyEvent(event));
}

void HostFunctions() {
  const aclrtStream stream = NewStream();
  int value = 0;
  for (int number = 0; number < 50; ++number) {
    Launch(stream, "add", [&value] { ++value; });
    CHECK_OK(aclrtLaunchHostFunc(stream, [](void* argument) { ++*static_cast<int*>(argument); }, &value));
  }
  CHECK_OK(aclrtSynchronizeStream(stream));
  CHECK(value == 100);
  std::atomic<uint64_t> subscriber{0};
  std::atomic<bool> leave{false};
  std::thread reports([&] {
    subscriber = static_cast<uint64_t>(pthread_self());
    while (!leave) {
      aclrtProcessReport(20);
    }
  });
  while (subscriber == 0) {
    std::this_thread::yield();
  }
  CHECK_OK(aclrtSubscribeReport(subscriber, stream));
  for (int number = 0; number < 50; ++number) {
    CHECK_OK(aclrtLaunchCallback([](void* argument) { ++*static_cast<int*>(argument); }, &value, ACL_CALLBACK_BLOCK, stream));
    Launch(stream, "add", [&value] { ++value; });
  }
  CHECK_OK(aclrtSynchronizeStream(stream));
  CHECK(value == 200);
  CHECK_OK(aclrtUnSubscribeReport(subscriber, stream));
  leave = true;
  reports.join();
  CHECK_OK(aclrtDestroyStream(stream));
}

void Counters() {
  std::atomic<bool> leave{false};
  std::thread reader([&] {
    std::string text(4096, '\0');
    while (!leave) {
      CHECK(cann_sim_counters(text.data(), text.size()) <= text.size());
    }
  });
  Together(3, [](int index) {
    const aclrtStream stream = NewStream();
    constexpr const char* kNames[] = {"operator0", "operator1", "operator2"};
    for (int number = 0; number < 200; ++number) {
      Launch(stream, kNames[index], [] {});
    }
    CHECK_OK(aclrtDestroyStream(stream));
  });
  leave = true;
  reader.join();
}

}  // namespace scenario
