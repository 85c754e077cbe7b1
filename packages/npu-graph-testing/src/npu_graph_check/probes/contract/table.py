"""A probe for each test of `npu_graph_testing.DeviceContract`."""

from __future__ import annotations

from npu_graph_check.probe import NPU_AND_CUDA, Probe

# Named here, since the class is imported with torch; a test compares both.
_TESTS = (
    "use_stream_body_runs_on_that_stream_in_order",
    "use_stream_left_by_exception_restores_stream",
    "event_waited_for_on_other_stream_orders_work",
    "wait_stream_orders_work",
    "event_recorded_and_reached_reports_so",
    "capture_runs_nothing",
    "replay_reads_new_inputs_at_same_addresses",
    "replays_of_one_stream_run_in_order",
    "capture_with_forked_stream_replays_both_branches",
    "graphs_sharing_a_pool_hand_on_tensors",
    "weak_reference_shares_memory_and_layout",
    "weak_reference_alone_does_not_keep_memory",
    "external_event_recorded_after_replay_releases_graph",
    "task_update_changes_later_replays_only",
    "replay_first_update_after_uses_new_arguments",
    "is_capturing_inside_capture_only",
    "capture_without_stream_takes_one_of_its_own",
    "capture_left_by_exception_propagates_it_and_restores",
    "pool_whose_last_graph_was_reset_is_captured_into_again",
    "pool_whose_first_capture_failed_is_captured_into_again",
    "capture_inside_capture_refused",
    "synchronize_while_capturing_refused",
    "stream_synchronize_while_capturing_refused",
    "host_read_while_capturing_refused",
    "capture_of_default_stream_refused",
    "second_capture_into_graph_refused",
    "replay_of_empty_or_reset_graph_refused",
    "task_group_outside_capture_refused",
    "end_of_task_update_without_begin_refused",
    "memory_figures_are_consistent",
    "captured_graph_takes_streams_until_it_is_reset",
)

CONTRACT = tuple(
    Probe(
        id=f"contract.{name.replace('_', '-')}",
        title=f"DeviceContract: {name.replace('_', ' ')}",
        run="npu_graph_check.probes.contract.contract_test:run_test",
        argument=f"test_{name}",
        limit_s=120,
        devices=NPU_AND_CUDA,
    )
    for name in _TESTS
)
