"""All probes, by group, in the order in which they run."""

from __future__ import annotations

import dataclasses
import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from npu_graph_check.errors import UnknownProbeError
from npu_graph_check.probe import NPU, NPU_AND_CUDA, Probe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Probes of one subject; their ids begin with its name."""

    name: str
    title: str
    probes: tuple[Probe, ...]


# For each probe a line ``<name> <module>:<function>`` and, where they apply, ``(<argument>)``, the
# limit in seconds (``120s``), ``cuda`` for a probe of GPUs too, and rows of docs/fidelity.md. Then
# the title as an indented line, and the risk as another. Modules lie in the folder of the group.
_ENVIRONMENT = """
versions     device_facts:versions
    The SoC is an Atlas A2 or A3, and CANN and the driver say their versions
cores        device_facts:cores        version-1 version-2 version-3 version-4
    The SoC has the cores and the level 2 cache that are known of it
core-limits  device_facts:core_limits  version-15
    Limits of cores are kept and given back; more than there are is 107000
threads      device_facts:threads      version-9
    A thread that set no device is refused with 107002, a missing device with 107001
doctor       doctor:doctor             360s
    `npu-compile doctor` finds nothing that keeps a model from running
"""
_CAPTURE = """
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
"""
_MEMORY = """
sizes              allocations:sizes              memory-1
    Memory begins at multiples of 512 bytes; more than there is is 207001
physical           allocations:physical           memory-2 memory-3
    Physical memory counts, in pages of 2 MiB; reserved addresses do not
pinned             allocations:pinned             memory-5 memory-6
    Pinned memory begins at a page; what is registered is the device's too
waits-for-nothing  allocations:waits_for_nothing  memory-13
    Freeing, copying and setting memory from the host wait for no stream
refused            copies:refused                 memory-4
    A copy that is too large, or of a kind that does not fit, is 107000
batch              copies:batch                   memory-7
    A batch of copies stops at the first that is refused, and says which
pageable           copies:pageable                memory-8
    An asynchronous copy to pageable memory waits for its stream
"""
_ATTENTION = """
operators every_case:every_case(operators)  240s update-5 update-9 fia-2 fia-5 fia-12 fia-13 \
                                    fia-14 fia-17 fia-26 fia-29 sfa-1 atb-1 atb-4 atb-5 atb-6
    Every kind of attention, updated by `operators`, is bitwise the eager operator
kernels    every_case:every_case(kernels)    240s updater-1 updater-3 updater-4 fia-1 call-1
    Every kind of attention, updated by `kernels`, is bitwise the eager operator
native     every_case:every_case(native)     240s updater-1 updater-3 updater-4
    Every kind of attention, updated by `native`, is bitwise the eager operator
"""
_OPERATORS = """
rounding               arithmetic:rounding                        arithmetic-1
    Sums of halves round ties to even
products               arithmetic:products                        arithmetic-5
    Matrix products of halves accumulate in float32, on every road to a product
scaled-products        arithmetic:scaled_products                 arithmetic-7
    A product and what is added to it are rounded once
sums                   arithmetic:sums                            arithmetic-13
    Sums and means accumulate in float32
ties                   arithmetic:ties                            arithmetic-15
    Of equal values the first is the largest
halves                 quantising:halves                          quantise-1
    int8 takes the nearest, ties to even, limited
not-a-number           quantising:not_a_number                    quantise-2
    NaN becomes 0 in int8
dynamic                quantising:dynamic                         quantise-7
    A row of zeros is quantised with scale 0
numbers                scalars:numbers                            arithmetic-2
    A number is rounded to the tensor's dtype in sums, to float16 alone in products
scaled-sums            scalars:scaled_sums                        arithmetic-3
    A scaled sum of bfloat16 rounds its product, one of float16 and a difference do not
stepwise-products      scalars:stepwise_products                  arithmetic-4
    Scaled products of float16 round every step
mixed-products         scalars:mixed_products                     arithmetic-6
    Batched products take float32 beside a half, and refuse two halves
rms-norm               norms:rms_norm                             arithmetic-8
    RMSNorm is rounded once
add-rms-norm           norms:add_rms_norm                         arithmetic-8 arithmetic-9
    AddRmsNorm rounds the norm before the weight
rounded-sum            norms:rounded_sum                          arithmetic-9
    AddRmsNorm normalises the rounded sum in float16, the float32 one in bfloat16
add-rms-norm-cast      norms:add_rms_norm_cast                    quantise-18
    The float32 result of AddRmsNormCast is the rounded one
quantised-norm         norms:quantised_norm                       quantise-12 quantise-13
    AddRmsNormQuant rounds the norm in float16, not in bfloat16
dynamic-sum            norms:dynamic_sum                          quantise-16
    AddRmsNormDynamicQuant normalises the float32 sum in float16 too
with-beta              norms:with_beta                            quantise-14
    A bias is added to the norm before it is quantised
scale-dtypes           norms:scale_dtypes                         quantise-10 quantise-11
    AddRmsNormQuant takes float32 scales and int32 zero points beside float16
interleaved            activations:interleaved                    rotary-2
    Interleaved rotary embeddings sort neighbours into halves
gelu                   activations:gelu                           arithmetic-12
    GELU is the tanh form, whatever is asked
geglu                  activations:geglu                          quantise-23
    GeGLU rounds the product once, and its activation once
rotary                 activations:rotary                         arithmetic-10
    Rotary embeddings are rounded once
accumulation           training:accumulation                      arithmetic-16
    Losses, pools and convolutions accumulate in float32
layer-norms            training:layer_norms                       arithmetic-16
    Norms and softmax of halves are rounded once
dropout-masks          training:dropout_masks                     arithmetic-17
    A dropout mask has a bit for each value, the lowest first
pooling-gradient       training:pooling_gradient                  arithmetic-18
    The gradient of a maximum finds its place again
lstm-cell              training:lstm_cell                         arithmetic-20
    The gates of a fused LSTM cell are input, forget, candidate and output
matrix-vector          training:matrix_vector                     arithmetic-23 arithmetic-24
    addmv scales the vector by beta and the product by alpha
uniform                sampling:uniform                           random-3
    Uniform values are multiples of 2^-24, and never the upper end
without-replacement    sampling:without_replacement               random-4
    Draws without replacement follow the weights that are left
top-k-top-p            sampling:top_k_top_p                       random-5
    Of equal logits the first is kept; a token is kept below p
statuses               calls:statuses                             call-1 call-2 call-11 call-14
    A null pointer is 161001; a repeatable executor is launched twice
refused-dtypes         calls:refused_dtypes                       call-2 call-3
    Dtypes that documents leave out are refused
other-products         calls:other_products                       call-8 call-19
    An operator of other products is refused with 561112
scalars-and-strides    calls:scalars_and_strides                  call-4 call-5
    Operators take scalars, and tensors that are not contiguous
shapes-of-results      calls:shapes_of_results                    call-17
    Results of a shape that only the kernel knows come behind what is queued
no-keys                fused.masked_rows:no_keys                  fia-9 fia-3
    A sequence without keys gives zeros
causal-with-one-query  fused.masked_rows:causal_with_one_query    fia-6 fia-8
    With one query a sequence the causal mask changes nothing
rows-past-lengths      fused.infer_attention:rows_past_lengths    fia-10 fia-11
    Rows of fused attention past the lengths are zeros
compressed-mask        fused.infer_attention:compressed_mask      fia-7
    A compressed mask that is 0 hides nothing
shared-prefix          fused.infer_attention:shared_prefix        fia-21
    A shared prefix counts as keys, also for the causal mask
padding-on-the-left    fused.infer_attention:padding_on_the_left  fia-22
    Padded rows and keys end before the end of their layout
position-shift         fused.infer_attention:position_shift       fia-20
    A position shift is added to the scaled scores
quantised-output       fused.infer_attention:quantised_output     fia-24
    An output in int8 is scaled, moved and rounded
one-length             fused.infer_attention:one_length           fia-4
    One length stands for all sequences
older-attention        fused.infer_attention:older_names          fia-25
    PromptFlashAttention and IncreFlashAttention are fused attention
latent-statistics      fused.infer_attention:latent_statistics    fia-16
    Log-sum-exps are given for latent keys too
quantised-latent-keys fused.latent:quantised_keys  kvquant-1 kvquant-2 kvquant-3 kvquant-4
    A row of 656 bytes holds a latent key, its rotary part and its scales
prolog                 fused.prolog:plain                         prolog-1 prolog-7
    MlaProlog stores keys at their slots and leaves a negative one out
prolog-by-tile         fused.prolog:by_tile                       prolog-4 prolog-5
    A clipped scale of a tile cuts what is then too large
image-formats          fused.caches:image_formats                 nz-2
    Formats of images and volumes are cast to and from
normalised-rows        fused.caches:normalised_rows               cache-3 cache-2
    Latent rows are normalised, rotated and stored
quantised-blocks       fused.quantised:blocks                     quantise-33
    Each 128 values of a row have a scale
sparse-attention       fused.latent:sparse_attention              sfa-1 sfa-2 sfa-3 sfa-4 sfa-5
    Sparse attention sees what is selected; a query without a key gives zeros
indexer                fused.latent:indexer                       indexer-2 indexer-3
    Of equal scores the indexer takes the lower key; rows past the totals are -1
indexer-of-few-keys    fused.latent:few_keys                      indexer-1 indexer-2
    Behind the last key the indexer gives -1
delta-rule             fused.latent:delta_rule                    delta-1 delta-3
    The gated delta rule stores a state behind each token; other states are refused
expert-ties            fused.experts:gating_ties                  moe-1 moe-3
    Of equal experts the first is chosen; a finished row has none
expert-weights         fused.experts:gating_weights               moe-2
    Weights of experts add up to one as sigmoids, or where that is asked for
expert-rows            fused.experts:routing                      moe-4 moe-5
    Rows are sorted stably by expert, and zeros where a capacity leaves room
expert-sums            fused.experts:finalizing                   moe-7 moe-8
    Rows of experts are added in float32, rounded once
grouped-products       fused.experts:grouped_products             moe-10
    Grouped products multiply each group with its own matrix
cache-slots            fused.caches:scatter                       cache-1 cache-2
    Rows go to their slots of both kinds of caches; a negative slot is left out
cache-pages            fused.caches:gather                        cache-5
    A page that is not in the cache is read as zeros
nz-format              fused.caches:nz_format                     nz-1 nz-3
    A tensor in the NZ format has the values of the plain one
plain-format           fused.caches:plain_format                  call-16
    Where internal formats are not allowed, a cast to NZ is a plain copy
flash-statistics       fused.flash:statistics                     flash-1 flash-2
    FlashAttentionScore gives its statistics eight times in float32
flash-hidden-rows      fused.flash:hidden_rows                    flash-9 flash-8
    A row whose keys are all hidden gives zeros
torch-attention        fused.flash:torch_function                 flash-10
    torch's own attention is right
joined-rings           fused.flash:joined_rings                   flash-6
    Attention over two parts of the keys joins to that over all
atb-paged-attention    fused.atb:paged_attention                  atb-2 atb-8
    A sequence without keys gives zeros in ATB's paged attention
atb-quantising         fused.atb:quantising                       atb-12
    ATB's quantisation rounds before it adds the offset
atb-norm               fused.atb:quantised_norm                   atb-12
    ATB's quantised norm divides by the scale
int4                   fused.quantised:int4                       quantise-6
    The first int4 is in the lowest bits
scale-of-quantising    fused.quantised:divides_and_multiplies     quantise-3
    Quantize divides by its scale, AscendQuantV3 multiplies
smoothed-groups        fused.quantised:smoothed_groups            quantise-8
    Rows behind the last group are not smoothed
only-by-token          fused.quantised:only_by_token              quantise-9
    Dynamic quantisation goes by token only
quantised-swiglu       fused.quantised:swiglu                     quantise-24 quantise-25
    The two quantised SwiGLU give scales that are reciprocals
quantised-groups       fused.quantised:grouped                    quantise-28
    Rows are quantised with the scales of their groups
kronecker              fused.quantised:kronecker                  quantise-29
    A clipped scale cuts the values that are larger
shortened-scales       fused.quantised:shortened_scales           quantise-22 quantise-20
    Scales of 19 bits are cut, or rounded with halves up
quantised-products     fused.quantised:products                   quantise-19
    Products of int8 are exact, scaled and rounded once
weights-of-int8        fused.quantised:weights_of_int8            quantise-27
    Matrices of int8 are dequantised beside float16 rows
outside-index          calls:outside_index                        call-15 stream-5
    A kernel that reads outside its tensor fails with 507015
    a kernel that fails stops the device for the other streams of its process
"""
_RUNTIME = """
full               captured_step:full               120s cuda
    A step captured whole is bitwise eager, also captured anew after a release
breakable          captured_step:breakable          120s cuda
    A step captured in segments, with a function eager between them, is bitwise eager
forecast           captured_step:forecast           120s capture-14
    The planner's forecast of streams and bytes after two captures is what is used
forecast-of-bytes  captured_step:forecast_of_bytes  120s cuda
    The planner's forecast of memory after two captures of five is what is used
sleep-and-wake     sleep_and_wake:sleep_and_wake    120s cuda
    Released graphs give their memory and streams back, and are captured anew
"""
_DECODE = """
full                       small_decoder:decode(full)                       240s
    A decoder with paged attention in mode `full` is bitwise its eager run
piecewise                  small_decoder:decode(piecewise)                  240s
    A decoder with paged attention in mode `piecewise` is bitwise its eager run
full-decode-and-piecewise  small_decoder:decode(full_decode_and_piecewise)  240s
    A decoder with paged attention in mode `full_decode_and_piecewise` is bitwise its eager run
breakable                  small_decoder:decode(breakable)                  240s
    A decoder with paged attention in mode `breakable` is bitwise its eager run
measured                   small_decoder:decode(measured)                   240s
    A decoder with paged attention in mode `measured` is bitwise its eager run
plain-piecewise            plain_decoder:decode(piecewise)                  240s cuda
    A decoder in plain torch in mode `piecewise`, without updates, is bitwise eager
plain-breakable            plain_decoder:decode(breakable)                  240s cuda
    A decoder in plain torch in mode `breakable`, without updates, is bitwise eager
"""
_TIMES = """
replay   host_times:replay          cuda
    A replay takes the host less time than its launches one by one
update   update_times:update        180s
    A replay with its update takes the host less than with `NPUGraph.update`
stall    update_times:stall         180s
    How much do updates add to a step on the device, by layer?
kernels  kernel_times:kernel_times  180s
    How long do kernels of a decode step take on the device?
"""
_QUESTIONS = """
queue-depth        graph_costs:queue_depth              120s
    How many tasks does a stream hold at most?
graph-costs        graph_costs:graph_costs              120s capture-14
    How many streams and bytes does a captured graph take, by its kernels?
kernels-by-length  attention_calls:kernels_by_length    120s
    Do the kernels of a call of fused attention change with the lengths?
unmasked-decode    attention_calls:unmasked_decode      120s fia-6
    Is fused attention in decode equal and faster without a mask and with sparse mode 0?
repeated-executor  repeated_executor:repeated_executor  120s call-11
    Does an executor of fused attention run again, also with other tensor addresses?
"""

# Forms of these are imported with torch; a test compares both.
_RULES = """
fuse_add_rms_norm fuse_add_rms_norm_cast fuse_add_rms_norm_view_cast fuse_add_rms_norm_quant
fuse_add_rms_norm_two_quants fuse_add_rms_norm_dynamic_quant fuse_rms_norm_quant fuse_clipped_swiglu
fuse_swiglu fuse_geglu fuse_swiglu_quant fuse_swiglu_dynamic_quant fuse_batch_matmul_transpose
fuse_multiply_add fuse_split_qkv_rms_norm_rope fuse_split_qkv_rms_norm_mrope
"""
_PROBE = re.compile(r"(?P<name>\S+) +(?P<run>[^\s(]+)(?:\((?P<argument>\S+)\))?(?P<words>.*)")


def _group(name: str, title: str, table: str) -> Group:
    return Group(name=name, title=title, probes=tuple(_probes(name, table)))


def _probes(group: str, table: str) -> Iterator[Probe]:
    for entry in re.split(r"\n(?=\S)", table.strip()):
        line, title, *risk = (part.strip() for part in entry.splitlines())
        found = _PROBE.fullmatch(line)
        assert found is not None, line  # noqa: S101
        words = found["words"].split()
        limits = [float(word[:-1]) for word in words if re.fullmatch(r"\d+s", word)]
        yield Probe(
            id=f"{group}.{found['name']}",
            title=title,
            run=f"npu_graph_check.probes.{group}.{found['run']}",
            argument=found["argument"] or "",
            rows=tuple(word for word in words if "-" in word),
            limit_s=limits[0] if limits else 60.0,
            devices=NPU_AND_CUDA if "cuda" in words else NPU,
            risk="".join(risk),
        )


def _contract() -> str:
    """Return the table of the tests of `DeviceContract`, which is imported with torch."""
    path = Path(__file__).parents[2] / "npu_graph_testing" / "device_contract.py"
    names = re.findall(r"^    def test_(\w+)", path.read_text("utf-8"), re.MULTILINE)
    return "\n".join(
        f"{name.replace('_', '-')} contract_test:run_test(test_{name}) 120s cuda\n"
        f"    DeviceContract: {name.replace('_', ' ')}"
        for name in names
    )


def _fusions() -> str:
    """Return the table of the rules of the default pipeline that make a fused operator."""
    return "\n".join(
        f"{rule.removeprefix('fuse_').replace('_', '-')} fused_graph:fused_graph({rule}) 120s\n"
        f"    `{rule}` gives what it replaces, within roundings of the dtype"
        for rule in _RULES.split()
    )


GROUPS = (
    _group("environment", "Versions, device and settings", _ENVIRONMENT),
    _group(
        "capture",
        "Streams, events, capture, replay, external events, task groups and updates",
        _CAPTURE,
    ),
    _group("memory", "Memory of the device and the host, and copies", _MEMORY),
    _group("contract", "What npu-graph-runtime asks of a device", _contract()),
    _group("attention", "Attention kinds, captured and updated under changing lengths", _ATTENTION),
    _group(
        "operators", "Rounding, ties, masked rows, NaN and refused dtypes of operators", _OPERATORS
    ),
    _group("fusions", "Fused operators against what they replace", _fusions()),
    _group(
        "runtime", "Pieces, segments, whole steps, sleep and wake, and what captures cost", _RUNTIME
    ),
    _group("decode", "A small decoder in every mode, bitwise against eager", _DECODE),
    _group("times", "Times of steps, updates, replays and kernels", _TIMES),
    _group("questions", "Open questions that only a device answers", _QUESTIONS),
)


def all_probes() -> tuple[Probe, ...]:
    """Return every probe, in the order in which they run."""
    return tuple(probe for group in GROUPS for probe in group.probes)


def find_probe(name: str) -> Probe:
    """Return a probe by its id.

    Raises:
        UnknownProbeError: there is none.
    """
    return chosen_probes([name])[0]


def chosen_probes(names: Sequence[str]) -> tuple[Probe, ...]:
    """Return the probes that names choose, in the order of the table; all where there are none.

    Args:
        names: ids of probes, and names of groups.

    Raises:
        UnknownProbeError: a name that is neither.
    """
    probes = all_probes()
    known = {probe.id for probe in probes} | {group.name for group in GROUPS}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            groups = ", ".join(group.name for group in GROUPS)
            raise UnknownProbeError(
                f"choosing probes: expected a group ({groups}) or a probe of `npu-graph-check "
                f"list`, found {name!r}{meant}"
            )
    wanted = set(names)
    return tuple(
        probe for probe in probes if not wanted or probe.id in wanted or probe.group in wanted
    )
