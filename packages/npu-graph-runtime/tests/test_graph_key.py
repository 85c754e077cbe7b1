from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_graph_runtime import GraphKey, largest_first
from npu_graph_runtime.errors import GraphKeyError

KEYS = st.builds(
    GraphKey,
    num_tokens=st.integers(4, 9),
    num_sequences=st.none() | st.integers(1, 4),
    uniform=st.booleans(),
    num_active_loras=st.integers(0, 2),
    extra=st.just(()) | st.tuples(st.sampled_from(["draft", "target"])),
)


@given(KEYS, KEYS)
def test_graph_key_equal_fields_equal_key_and_hash(first: GraphKey, second: GraphKey) -> None:
    same = repr(first) == repr(second)
    assert (first == second) is same
    assert (len({first, second}) == 1) is same


def test_graph_key_differing_in_loras_only_differs() -> None:
    assert GraphKey(num_tokens=8) != GraphKey(num_tokens=8, num_active_loras=1)


def test_graph_key_hash_computed_once() -> None:
    calls: list[int] = []

    class Counted:
        def __hash__(self) -> int:
            calls.append(1)
            return 7

    key = GraphKey(num_tokens=1, extra=(Counted(),))
    assert {key: 1}[key] == 1
    assert hash(key) == hash(key)
    assert len(calls) == 1


EXTRAS = ((), ("prefill",), (("layers", 3), "draft"), (frozenset({"a", "b"}),), (1, True, None))


@pytest.mark.parametrize("seed", ["0", "1", "123"])
def test_graph_key_pickled_in_another_process_finds_equal_keys(seed: str) -> None:
    program = f"""
import pickle, sys
from npu_graph_runtime import GraphKey
keys = [GraphKey(num_tokens=4, num_sequences=2, uniform=True, extra=e) for e in {EXTRAS!r}]
sys.stdout.buffer.write(pickle.dumps([pickle.dumps(keys, protocol) for protocol in range(2, 6)]))
"""
    # Texts hash by a seed of each process.
    environment = os.environ | {"PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", program]
    sent = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
    own = {
        GraphKey(num_tokens=4, num_sequences=2, uniform=True, extra=extra): extra
        for extra in EXTRAS
    }

    for keys in pickle.loads(sent):
        assert [own[key] for key in pickle.loads(keys)] == list(EXTRAS)


def test_graph_key_copied_is_equal_and_checked() -> None:
    key = GraphKey(num_tokens=8, num_active_loras=2, extra=("draft", (1, True)))
    for made in (copy.copy(key), copy.deepcopy(key), pickle.loads(pickle.dumps(key))):
        assert (made, hash(made), repr(made)) == (key, hash(key), repr(key))
        assert made != GraphKey(num_tokens=8, num_active_loras=2, extra=("draft", (1, 1)))


def test_graph_key_str_names_what_is_set() -> None:
    key = GraphKey(
        num_tokens=8, num_sequences=4, uniform=True, num_active_loras=2, extra=("draft",)
    )
    assert str(key) == "(num_tokens=8, num_sequences=4, uniform, num_active_loras=2, 'draft')"
    assert str(GraphKey(num_tokens=1)) == "(num_tokens=1)"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_tokens": 0}, "num_tokens is 0"),
        ({"num_tokens": 2, "num_sequences": 3}, "expected 1 to 2"),
        ({"num_tokens": 2, "num_sequences": 0}, "num_sequences is 0"),
        ({"num_tokens": 2, "num_active_loras": -1}, "num_active_loras is -1"),
        ({"num_tokens": 2, "extra": ([],)}, "hashable"),
        ({"num_tokens": True}, "num_tokens is True of type bool, expected int"),
        ({"num_tokens": 2.0}, "num_tokens is 2.0 of type float"),
        ({"num_tokens": 2, "num_sequences": True}, "num_sequences is True"),
        ({"num_tokens": 2, "num_active_loras": False}, "num_active_loras is False"),
        ({"num_tokens": 2, "uniform": 1}, "uniform is 1 of type int, expected bool"),
        ({"num_tokens": 2, "extra": "draft"}, "extra is 'draft' of type str, expected tuple"),
    ],
)
def test_graph_key_impossible_raises(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphKeyError, match=message):
        GraphKey(**kwargs)


@pytest.mark.parametrize("other", [(True,), (1.0,), ((1,),)])
def test_graph_key_of_equal_values_of_other_types_is_another_key(other: tuple[Any, ...]) -> None:
    assert GraphKey(num_tokens=1, extra=(1,)) != GraphKey(num_tokens=1, extra=other)
    nested = GraphKey(num_tokens=1, extra=((1, "a"),)), GraphKey(num_tokens=1, extra=((True, "a"),))
    assert len(set(nested)) == 2


def test_largest_first_orders_by_tokens_sequences_and_loras() -> None:
    small = GraphKey(num_tokens=2)
    large = GraphKey(num_tokens=8)
    few = GraphKey(num_tokens=8, num_sequences=2)
    loras = GraphKey(num_tokens=8, num_active_loras=3)
    assert largest_first([few, small, loras, large]) == [loras, large, few, small]
