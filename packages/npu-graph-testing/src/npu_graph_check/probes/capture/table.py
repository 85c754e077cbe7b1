"""The probes of streams, events, captures, replays, external events, task groups and updates."""

from __future__ import annotations

from npu_graph_check.probes.probe_table import probes_of

CAPTURE = probes_of(
    "capture",
    """
default-stream             illegal_calls:default_stream             capture-1
    Capturing the default stream is 107000, capturing a captured stream 107027
synchronising              illegal_calls:synchronising              capture-2
    Waiting for, querying or destroying a captured stream is 107027; it goes on
event-questions            events_in_captures:event_questions       capture-3
    Host waits and queries of an event recorded in a capture are 107028
blocking-copies            events_in_captures:blocking_copies       capture-4
    Blocking copies are 107030 by the mode of the capture, and the thread
pageable-copy              events_in_captures:pageable_copy         capture-5
    An asynchronous copy of pageable memory is 107000 in a capture, 107041 beside it
default-stream-joins       events_in_captures:default_stream_joins  capture-6
    The default stream cannot join a capture: 107031, and the capture is invalid
joins-by-event             events_in_captures:joins_by_event        capture-6
    A stream joins a capture by waiting for an event recorded in it
other-capture              events_in_captures:other_capture         capture-7
    An event of another capture is 107032, and both captures become invalid
outside-event              events_in_captures:outside_event         capture-8
    Waiting in a capture for an event recorded outside is 107024
old-event                  events_in_captures:old_event             capture-9
    An event of the older kind is 207000 in a capture
unjoined                   events_in_captures:unjoined              capture-10
    A capture whose side stream does not come back ends with 107025
wrong-end                  events_in_captures:wrong_end             capture-11
    A capture that ends on another stream is 107036, on another thread 107038
over-at-its-end            events_in_captures:over_at_its_end       capture-13
    The capture is over when its end returns, with or without an error
pinned-copy-behind-a-wait  with_torch:pinned_copy_behind_a_wait     capture-12
    A copy to pinned memory behind a wait is captured, without torch_npu's task queue
dead-task-queue            with_torch:dead_task_queue               version-19
    What is refused in torch_npu's task queue is reported once; later work is dropped
streams-taken              events_in_captures:streams_taken         capture-14 stream-3
    A captured graph takes a stream, and another for each 2,016 of its tasks
memory-of-arguments        replays:memory_of_arguments              capture-15
    A captured kernel holds 6,208 bytes of the device until its graph is destroyed
replay-in-order            replays:in_order                         replay-1
    A replay is work of its stream like any other
replay-on-two-streams      replays:two_streams                      replay-2
    Two replays of one graph on two streams run one after the other
replay-refused             replays:refused                          replay-5
    Replaying a graph that is captured is 107026, an unknown one 107000
destroyed-while-running    replays:destroyed_while_running          replay-4
    A graph that is destroyed while it runs ends its replay
replayed-copy              replays:host_memory                      replay-6
    A copy in a graph reads host memory at every replay
replayed-random-numbers    with_torch:random_numbers                replay-3 random-2
    Replays draw what eager calls from the same seed would have drawn
conditions                 conditions:branches                      replay-7
    An if, a switch and a while run the child graph of the value they find
conditions-without-child   conditions:nothing_to_run                replay-10
    A conditional task whose value has no child graph runs nothing
child-graphs               conditions:children                      replay-8
    A child graph that is not captured is 107046, one used on its own 207000
graph-as-json              replays:written_as_json                  replay-11
    The JSON of a graph has every task, by stream
streams-run-beside         waits:streams_beside_each_other          stream-1
    Streams run in order, and beside each other
unrecorded-event           waits:unrecorded_event                   stream-10
    A wait refers to the latest record before it; before the first it does nothing
flag-event                 waits:flag_event                         stream-11
    An event of the older kind is a flag: a reset clears it, a wait does not
event-times                waits:event_times                        stream-14
    Elapsed times are 107006 before the event has happened, 107007 in the wrong order
limited-synchronisation    waits:limited_synchronisation            stream-15
    A synchronisation whose limit is reached is 507046
external-word              waits:word_of_an_external_event          external-1 updater-5
    An external event is a word: the graph waits until it is 1 and writes 0
external-event-object      waits:external_event_object              external-3
    An event of the external kind keeps a replay waiting until it is recorded
event-between-processes    waits:event_between_processes            stream-12
    An event that processes share has no time and no place in a capture: 207000
destroyed-stream           waits:destroyed_stream                   stream-4
    A destroyed stream is refused with 107003
    uses a stream that is destroyed, which may crash the driver's part of the process
two-records-are-one        waits:two_records_are_one                external-2
    Two records before one wait are one
word-of-a-graph            waits:word_that_a_graph_writes           external-5
    A graph writes a word that another graph waits for, while the first goes on
wait-sees-a-copy           waits:wait_sees_a_copy                   external-4
    A wait for a value sees what a copy writes
update-takes-effect        updates:takes_effect                     update-5
    An update takes effect in the order of its stream, for later replays
update-behind-replay       updates:behind_a_replay                  update-5 update-6
    An update that comes behind the replay, before the word is written, is in time
update-only-kernels        updates:only_kernels                     update-1 update-2
    Groups and updates take kernels and event records only: 507009; replays 107027
unpaired-groups            updates:unpaired_groups                  update-3
    Task groups that are not opened and closed in pairs are 107033, outside 107029
interrupted-group          updates:interrupted_group                update-4
    A task on another captured stream interrupts an open group: 107034
unpaired-updates           updates:unpaired_updates                 update-11
    Updates that are not begun and ended in pairs are 107033, in a capture 107027
other-kernels              updates:other_kernels                    update-10
    An update with another kernel, one more or one less is 507000
update-frees-arguments     updates:frees_arguments                  update-7
    An update frees the arguments of the kernel that it replaces
update-nothing-orders      updates:nothing_orders                   update-8 update-6
    An update that nothing orders fails over the simulator; a device goes on
update-of-destroyed-graph  updates:destroyed_graph                  update-12
    An update of a group whose graph is destroyed is refused with 107000
    uses a group that is destroyed, which may crash the driver's part of the process
""",
)
