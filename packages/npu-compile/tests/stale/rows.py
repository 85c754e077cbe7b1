"""The table: what a model reads, and how it changes after its compilation was cached."""

from __future__ import annotations

import builtins
import collections
import copy
import dataclasses
import enum
import functools
import math
import operator
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

F = torch.nn.functional


class World(NamedTuple):
    """The state that a row may change; ``patch`` restores what is not recreated for each row."""

    model: Any
    lib: Any
    module: Any
    patch: pytest.MonkeyPatch

    def put(self, owner: object, name: str, value: object) -> None:
        self.patch.setattr(owner, name, value, raising=False)


class Row(NamedTuple):
    expression: str
    change: Callable[[World], object]


def twice(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) * 2.0

    return wrapper


def like(function: Any, other: Any) -> Any:
    """Return another function that passes for the first."""
    return functools.wraps(function)(other)


def without_gradients(function: Any) -> Any:
    """Return a wrapper of ours in one of torch's."""

    def ours(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) * 2.0

    return torch.no_grad()(ours)


def scaled_tensors(function: Any) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return found * 2.0 if isinstance(found, torch.Tensor) else found

    return functools.wraps(function)(wrapper)


def scaled_by(self: object, by: float, x: torch.Tensor, *_: object) -> torch.Tensor:
    return x * by


def softmax_doubled(x: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return x * 2


def silu_doubled(x: Any, inplace: bool = False) -> Any:
    return x * 2


def wrap(owner: Any, name: str) -> Callable[[World], object]:
    return lambda w: w.put(owner, name, twice(vars(owner)[name]))


def wrap_of_library(name: str) -> Callable[[World], object]:
    return lambda w: setattr(w.lib, name, twice(getattr(w.lib, name)))


def pass_for(owner: Any, name: str, other: Any) -> Callable[[World], object]:
    return lambda w: w.put(owner, name, like(getattr(owner, name), other))


def recode(function: Callable[[World], Any], other: Any) -> Callable[[World], object]:
    return lambda w: w.patch.setattr(function(w), "__code__", other.__code__)


def set_of_library(name: str, value: Any) -> Callable[[World], object]:
    return lambda w: setattr(w.lib, name, value)


def set_of_model(name: str, value: Any) -> Callable[[World], object]:
    return lambda w: setattr(w.model, name, value)


def other_offset(weight: nn.Parameter) -> None:
    held = torch.zeros(9, 8)
    held[1:] = weight.data
    weight.data = held[1:]


METHODS_OF_TORCH = {
    "method replaced by functools.wraps": Row("self.conv(x.t())", wrap(nn.Conv1d, "_conv_forward")),
    "method wrapped by no_grad": Row(
        "self.conv(x.t())",
        lambda w: w.put(nn.Conv1d, "_conv_forward", without_gradients(nn.Conv1d._conv_forward)),
    ),
    "method replaced by a partial": Row(
        "self.conv(x.t())",
        lambda w: w.put(nn.Conv1d, "_conv_forward", functools.partialmethod(scaled_by, 3.0)),
    ),
    "code of a method": Row(
        "self.conv(x.t())",
        recode(lambda _: nn.Conv1d._conv_forward, lambda self, x, weight, bias: x * 2.0),
    ),
    "method replaced by another of torch": Row(
        "x * (2.0 if 'a' in list(self.named.keys()) else 3.0)",
        lambda w: w.put(nn.ModuleDict, "keys", nn.ModuleDict.values),
    ),
    "method replaced by one of another class": Row(
        "x * (2.0 if 'a' in [name for name in self.named] else 3.0)",
        lambda w: w.put(nn.ModuleDict, "__iter__", nn.ModuleList.__iter__),
    ),
    "forward": Row("self.linear(x)", wrap(nn.Linear, "forward")),
    "forward wrapped by no_grad": Row(
        "self.linear(x)",
        lambda w: w.put(nn.Linear, "forward", without_gradients(nn.Linear.forward)),
    ),
    "call of every layer": Row(
        "self.tanh(x)",
        lambda w: w.put(nn.Module, "_call_impl", scaled_tensors(nn.Module._call_impl)),
    ),
    "special method of every layer": Row(
        "self.tanh(x)",
        lambda w: w.put(nn.Module, "__call__", scaled_tensors(nn.Module.__call__)),
    ),
    "attribute of every layer": Row(
        "x * self.weight[0, 0]",
        lambda w: w.put(nn.Module, "__getattr__", scaled_tensors(nn.Module.__getattr__)),
    ),
    "item of a list of layers": Row(
        "self.layers[1](x)",
        pass_for(nn.ModuleList, "__getitem__", lambda self, place: self._modules["0"]),
    ),
    "iteration of a list of layers": Row(
        "[layer(x) for layer in self.layers][0]",
        pass_for(nn.ModuleList, "__iter__", lambda self: reversed(self._modules.values())),
    ),
    "length of a list of layers": Row(
        "x * len(self.layers)", pass_for(nn.ModuleList, "__len__", lambda _: 7)
    ),
    "items of a dict of layers": Row(
        "[layer(x) for _, layer in self.named.items()][0]",
        pass_for(nn.ModuleDict, "items", lambda self: reversed(self._modules.items())),
    ),
    "item of a dict of layers": Row(
        "self.named['a'](x)",
        pass_for(nn.ModuleDict, "__getitem__", lambda self, key: self._modules["b"]),
    ),
    "item of a list of parameters": Row(
        "x * self.listed[0]", pass_for(nn.ParameterList, "__getitem__", lambda self, place: 5.0)
    ),
    "layers of a sequence": Row("self.sequence(x)", wrap(nn.Sequential, "forward")),
    "iteration of a sequence": Row(
        "self.sequence(x)",
        pass_for(nn.Sequential, "__iter__", lambda self: iter([self._modules["0"]])),
    ),
    "parameters of a layer": Row(
        "x * sum(1 for _ in self.linear.parameters())",
        pass_for(nn.Module, "parameters", lambda self: [1]),
    ),
    "layers of a layer": Row(
        "x * sum(1 for _ in self.sequence.children())",
        pass_for(nn.Module, "children", lambda self: [1]),
    ),
    "hook of every layer": Row(
        "self.tanh(x)",
        lambda w: w.patch.setitem(
            torch.nn.modules.module._global_forward_pre_hooks, 0, lambda _, args: (args[0] * 2.0,)
        ),
    ),
}

FUNCTIONS_OF_TORCH = {
    "function": Row("F.linear(x, self.weight)", wrap(F, "linear")),
    "function behind a layer": Row("self.linear(x)", wrap(F, "linear")),
    "gelu behind a layer": Row("self.gelu(x)", wrap(F, "gelu")),
    "norm behind a layer": Row("self.norm(x)", wrap(F, "layer_norm")),
    "rms_norm behind a layer": Row("self.rms(x)", wrap(F, "rms_norm")),
    "softmax behind a layer": Row("self.softmax(x)", wrap(F, "softmax")),
    "embedding behind a layer": Row("self.embedding(torch.arange(3))", wrap(F, "embedding")),
    "dropout behind a layer": Row("self.drop(x)", wrap(F, "dropout")),
    "attention": Row(
        "F.scaled_dot_product_attention(x[None], x[None], x[None])",
        wrap(F, "scaled_dot_product_attention"),
    ),
    "function behind a function": Row("F.layer_norm(x, (8,))", wrap(torch, "layer_norm")),
    "built-in function behind a layer": Row("self.tanh(x)", wrap(torch, "tanh")),
    "built-in function": Row("torch.tanh(x)", wrap(torch, "tanh")),
    "einsum": Row("torch.einsum('ij,jk->ik', x, self.weight)", wrap(torch, "einsum")),
    "default": Row(
        "F.softmax(x, -1)",
        lambda w: w.patch.setattr(F.softmax, "__defaults__", (None, 3, torch.float64)),
    ),
    "default of a norm": Row(
        "F.layer_norm(x, (8,))",
        lambda w: w.patch.setattr(F.layer_norm, "__defaults__", (None, None, 1.0)),
    ),
    "code": Row(
        "F.softmax(x, -1)",
        recode(lambda _: F.softmax, softmax_doubled),
    ),
    "code behind a layer": Row("self.silu(x)", recode(lambda _: F.silu, silu_doubled)),
    "module behind a layer": Row(
        "self.silu(x)",
        lambda w: w.put(
            torch.nn.modules.activation,
            "F",
            types.SimpleNamespace(**{**vars(F), "silu": lambda x, inplace: x * 2.0}),
        ),
    ),
    "method of tensors": Row(
        "x.relu()", lambda w: w.put(torch.Tensor, "relu", twice(torch.Tensor.relu))
    ),
    "method of tensors in Python": Row("x.norm()", wrap(torch.Tensor, "norm")),
    "operator of tensors": Row(
        "x + 1.0", lambda w: w.put(torch.Tensor, "__add__", twice(torch.Tensor.__add__))
    ),
    "operator of tensors in Python": Row("1.0 - x", wrap(torch.Tensor, "__rsub__")),
    "method of parameters": Row(
        "self.weight.relu()", lambda w: w.put(nn.Parameter, "relu", twice(torch.Tensor.relu))
    ),
    "absent name": Row(
        "x * getattr(torch, 'scale_of_tests', 3.0)",
        lambda w: w.put(torch, "scale_of_tests", 5.0),
    ),
}

PYTHONS_OWN = {
    "function of math": Row("x * math.sqrt(4.0)", lambda w: w.put(math, "sqrt", lambda _: 7.0)),
    "constant of math": Row("x * math.pi", lambda w: w.put(math, "pi", 7.0)),
    "operator": Row("operator.add(x, 1.0)", lambda w: w.put(operator, "add", lambda a, b: a - b)),
    "built-in": Row("x * sum([1.0, 2.0])", lambda w: w.put(builtins, "sum", lambda _: 7.0)),
    "built-in hidden by the model's module": Row(
        "x * len([1.0, 2.0])", lambda w: setattr(w.module, "len", lambda _: 7.0)
    ),
    "built-in hidden by a library": Row(
        "lib.counted(x)", lambda w: setattr(w.lib, "len", lambda _: 7.0)
    ),
    "reduce": Row(
        "x * functools.reduce(operator.mul, [2.0, 3.0])",
        lambda w: w.put(functools, "reduce", lambda *_: 7.0),
    ),
}

FUNCTIONS_OF_A_LIBRARY = {
    "function": Row("lib.outer(x)", wrap_of_library("outer")),
    "function behind one": Row("lib.outer(x)", wrap_of_library("middle")),
    "function behind two": Row("lib.outer(x)", wrap_of_library("inner")),
    "constant behind two": Row("lib.outer(x)", set_of_library("FACTOR", 9.0)),
    "type of a constant": Row("lib.outer(x)", set_of_library("FACTOR", True)),
    "function imported by name": Row(
        "by_name(x)", lambda w: setattr(w.module, "by_name", twice(w.lib.by_name))
    ),
    "code": Row("lib.by_code(x)", recode(lambda w: w.lib.by_code, lambda x: x * 7.5)),
    "default": Row(
        "lib.with_default(x)", lambda w: setattr(w.lib.with_default, "__defaults__", (0.75,))
    ),
    "element of a default": Row(
        "lib.with_list(x)", lambda w: operator.setitem(w.lib.with_list.__defaults__[0], 0, 9.0)
    ),
    "value of a default": Row(
        "lib.with_dict(x)", lambda w: operator.setitem(w.lib.with_dict.__defaults__[0], "a", 9.0)
    ),
    "attribute of a default": Row(
        "lib.with_object(x)",
        lambda w: setattr(w.lib.with_object.__defaults__[0], "factor", 9.0),
    ),
    "class of a default": Row(
        "lib.with_object(x)", lambda w: setattr(w.lib.Settings, "factor", _read_only(9.0))
    ),
    "default of a keyword": Row(
        "lib.with_keyword(x)",
        lambda w: operator.setitem(w.lib.with_keyword.__kwdefaults__, "by", 9.0),
    ),
    "what a decorator wraps": Row(
        "lib.decorated(x)",
        lambda w: setattr(w.lib.decorated.__closure__[0], "cell_contents", lambda x: x * 9),
    ),
    "what a decorator wraps, wrapped again": Row("lib.decorated(x)", wrap_of_library("decorated")),
    "remembered function": Row(
        "x * lib.remembered(2.0)",
        set_of_library("remembered", functools.lru_cache(None)(lambda number: number * 3.0)),
    ),
    "code of a remembered function": Row(
        "x * lib.remembered(2.0)",
        recode(lambda w: w.lib.remembered.__wrapped__, lambda number: 9.0),
    ),
    "partial": Row(
        "lib.part(x)", lambda w: setattr(w.lib, "part", functools.partial(w.lib.shifted, by=0.75))
    ),
    "keyword of a partial": Row(
        "lib.part(x)", lambda w: operator.setitem(w.lib.part.keywords, "by", 0.75)
    ),
    "partial of an instance": Row(
        "self.part(x)",
        lambda w: setattr(w.model, "part", functools.partial(w.lib.scaled, by=0.75)),
    ),
    "code of a partial's function": Row(
        "self.part(x)", recode(lambda w: w.lib.scaled, lambda x, by=1.0: x - by)
    ),
    "absent attribute of a function": Row(
        "x * getattr(lib.by_name, 'scale', 3.0)",
        lambda w: setattr(w.lib.by_name, "scale", 9.0),
    ),
    "absent name of a module": Row(
        "x * (2.0 if hasattr(lib, 'EXTRA') else 3.0)", set_of_library("EXTRA", 1)
    ),
    "function of an instance": Row("self.function(x)", set_of_model("function", lambda x: x * 9)),
    "function in a dict": Row(
        "lib.TABLE['f'](x)", lambda w: operator.setitem(w.lib.TABLE, "f", lambda x: x * 9)
    ),
    "closure": Row(
        "self.add(x)", lambda w: setattr(w.model.add.__closure__[0], "cell_contents", 9.0)
    ),
    "list in a closure": Row(
        "self.add(x)",
        lambda w: operator.setitem(w.model.add.__closure__[1].cell_contents, 0, 9.0),
    ),
}


def _read_only(value: object) -> property:
    """Return a property that takes precedence over instance attributes."""
    return property(lambda _: value)


CONTAINERS = {
    "nested in a global": Row(
        "x * lib.NESTED['a']['b'][1][0]",
        lambda w: operator.setitem(w.lib.NESTED["a"]["b"], 1, (9.0, 3.0)),
    ),
    "nested in an attribute": Row(
        "x * self.nested['a']['b'][1][0]",
        lambda w: operator.setitem(w.model.nested["a"]["b"], 1, (9.0, 3.0)),
    ),
    "length of a dict": Row(
        "x * len(self.nested['a'])", lambda w: operator.setitem(w.model.nested["a"], "c", 1)
    ),
    "order of a dict": Row(
        "x * [value for value in lib.ORDERED.values()][0]",
        set_of_library("ORDERED", collections.OrderedDict(b=2.0, a=1.0)),
    ),
    "order in place": Row(
        "x * [value for value in lib.ORDERED.values()][0]",
        lambda w: w.lib.ORDERED.move_to_end("a"),
    ),
    "default of a dict": Row(
        "x * lib.DEFAULTS['q']",
        set_of_library("DEFAULTS", collections.defaultdict(lambda: 5.0)),
    ),
    "length of a set": Row("x * len(lib.NUMBERS)", lambda w: w.lib.NUMBERS.add(5)),
    "dict of one's own": Row(
        "x * self.own_dict['a']", lambda w: operator.setitem(w.model.own_dict, "a", 9.0)
    ),
    "method of a dict of one's own": Row(
        "x * self.own_dict['a']",
        lambda w: setattr(w.lib.Mapped, "__getitem__", lambda self, key: 9.0),
    ),
    "class in a table": Row(
        "self.activations['a'](x)",
        lambda w: operator.setitem(w.model.activations, "a", (w.lib.Activation, {"scale": 9.0})),
    ),
    "attribute of a layer": Row(
        "self.activation(x)", lambda w: setattr(w.model.activation, "scale", 9.0)
    ),
    "attribute of a namespace": Row("x * self.space.a", lambda w: setattr(w.model.space, "a", 9.0)),
    "dtype": Row("x.to(self.dtype)", set_of_model("dtype", torch.float64)),
    "slice": Row("x[self.part_of]", set_of_model("part_of", slice(0, 3))),
    "nothing": Row("x * (2.0 if self.nothing is None else 3.0)", set_of_model("nothing", 0)),
    "complex number": Row("x * self.complex", set_of_model("complex", 3j)),
    "no number": Row(
        "torch.full_like(x, self.no_number).nan_to_num(1.0)", set_of_model("no_number", 5.0)
    ),
    "bytes": Row("x * len(self.bytes)", set_of_model("bytes", b"abc")),
    "size": Row("x * self.sizes[0]", set_of_model("sizes", torch.Size([5, 3]))),
}

CLASSES = {
    "member of an enumeration": Row(
        "x * self.kind.amount()", lambda w: setattr(w.model, "kind", w.lib.Kind.SUB)
    ),
    "method of an enumeration": Row(
        "x * self.kind.amount()", lambda w: setattr(w.lib.Kind, "amount", lambda _: 9.0)
    ),
    "value of a member": Row(
        "x * self.kind.value", lambda w: setattr(w.lib.Kind.ADD, "_value_", 9)
    ),
    "member that shows itself like another": Row(
        "x * (2.0 if self.veiled[0] is lib.Veiled.ADD else 3.0)",
        lambda w: setattr(w.model, "veiled", (w.lib.Veiled.SUB,)),
    ),
    "number that is a member": Row(
        "x * self.level", lambda w: setattr(w.model, "level", w.lib.Level.HIGH)
    ),
    "other enumeration of this name": Row(
        "x * lib.Level.LOW", set_of_library("Level", enum.IntEnum("Level", {"LOW": 3}))
    ),
    "text that is a member": Row(
        "x * (2.0 if self.text == 'add' else 3.0)",
        lambda w: setattr(w.model, "text", w.lib.Text.SUB),
    ),
    "field of a dataclass": Row(
        "x * self.data.scale", lambda w: setattr(w.model.data, "scale", 9.0)
    ),
    "nested dataclass": Row(
        "x * self.data.inner.eps", lambda w: setattr(w.model.data.inner, "eps", 9.0)
    ),
    "list of a dataclass": Row(
        "x * self.data.sizes[1]", lambda w: operator.setitem(w.model.data.sizes, 1, 9.0)
    ),
    "dataclass with slots": Row(
        "x * self.slotted.scale",
        lambda w: object.__setattr__(w.model.slotted, "scale", 9.0),
    ),
    "slot": Row("x * self.slots.value", lambda w: setattr(w.model.slots, "value", 9.0)),
    "constant of a base class": Row(
        "self.child.moved(x)", lambda w: setattr(w.lib.Base, "shift", 9.0)
    ),
    "constant hidden by a class": Row(
        "self.child.moved(x)", lambda w: setattr(w.lib.Child, "shift", 9.0)
    ),
    "constant hidden by an instance": Row(
        "self.child.moved(x)", lambda w: setattr(w.model.child, "shift", 9.0)
    ),
    "dict of a class": Row(
        "x * self.child.table['a']", lambda w: operator.setitem(w.lib.Base.table, "a", 9.0)
    ),
    "list of a class": Row(
        "x * self.child.items[0]", lambda w: operator.setitem(w.lib.Base.items, 0, 9.0)
    ),
    "length of a class's list": Row(
        "x * len(self.child.items)", lambda w: w.lib.Base.items.append(0)
    ),
    "constant by its class": Row("x * lib.Base.shift", lambda w: setattr(w.lib.Base, "shift", 9.0)),
    "dict by its class": Row(
        "x * lib.Base.table['a']", lambda w: operator.setitem(w.lib.Base.table, "a", 9.0)
    ),
    "method": Row(
        "self.child.moved(x)", lambda w: setattr(w.lib.Base, "moved", twice(w.lib.Base.moved))
    ),
    "method of an instance": Row(
        "self.child.moved(x)", lambda w: setattr(w.model.child, "moved", lambda x: x * 9)
    ),
    "method bound to another": Row(
        "self.child.moved(x)", lambda w: setattr(w.model.child, "moved", w.model.other.moved)
    ),
    "kept method": Row("self.bound(x)", lambda w: setattr(w.model, "bound", w.model.other.moved)),
    "instance of a kept method": Row(
        "self.bound(x)", lambda w: setattr(w.model.bound.__self__, "shift", 9.0)
    ),
    "instance of a class's method": Row(
        "self.borrowing.borrowed(x)",
        lambda w: setattr(w.lib.Borrowing, "borrowed", w.lib.Child().moved),
    ),
    "method of the model": Row(
        "self.own(x)", lambda w: setattr(type(w.model), "own", twice(type(w.model).own))
    ),
    "code of a method": Row(
        "self.other.moved(x)", recode(lambda w: w.lib.Base.moved, lambda self, x: x * 9)
    ),
    "constant of a metaclass": Row(
        "x * lib.WithMeta.constant", lambda w: setattr(w.lib.Meta, "constant", 9.0)
    ),
    "registered class": Row(
        "x * (2.0 if isinstance(self.slots, lib.Interface) else 3.0)",
        lambda w: w.lib.Interface.register(w.lib.WithSlots),
    ),
    "static method": Row(
        "self.child.static(x)",
        lambda w: setattr(w.lib.Base, "static", staticmethod(lambda x: x * 9)),
    ),
    "code of a static method": Row(
        "self.child.static(x)", recode(lambda w: w.lib.Base.static, lambda x: x * 9)
    ),
    "class method": Row(
        "self.child.of_class(x)",
        lambda w: setattr(w.lib.Base, "of_class", classmethod(lambda _, x: x * 9)),
    ),
    "what a class method reads": Row(
        "self.child.of_class(x)", lambda w: setattr(w.lib.Child, "shift", 9.0)
    ),
    "partial of a class": Row(
        "self.child.activate(x)",
        lambda w: setattr(w.lib.Base, "activate", functools.partial(w.lib.scaled, by=0.75)),
    ),
    "call of an object": Row(
        "self.child(x)", lambda w: setattr(w.lib.Base, "__call__", twice(w.lib.Base.__call__))
    ),
    "truth": Row(
        "x * (2.0 if self.child else 3.0)",
        lambda w: setattr(w.lib.Base, "__bool__", lambda _: False),
    ),
    "equality": Row(
        "x * (2.0 if self.child == 1 else 3.0)",
        lambda w: setattr(w.lib.Base, "__eq__", lambda _, other: False),
    ),
    "class of an instance": Row(
        "self.child.moved(x)", lambda w: setattr(w.model.child, "__class__", w.lib.Other)
    ),
    "bases of a class": Row(
        "self.child.moved(x)", lambda w: setattr(w.lib.Child, "__bases__", (w.lib.Other,))
    ),
    "every attribute": Row(
        "x * self.child.shift",
        lambda w: setattr(
            w.lib.Child,
            "__getattribute__",
            lambda self, name: 9.0 if name == "shift" else object.__getattribute__(self, name),
        ),
    ),
    "descriptor": Row(
        "x * self.described.field",
        lambda w: setattr(vars(w.lib.Described)["field"], "value", 9.0),
    ),
    "method of a descriptor": Row(
        "x * self.described.field",
        lambda w: setattr(w.lib.Descriptor, "__get__", lambda *_: 9.0),
    ),
    "descriptor that is a constant now": Row(
        "x * self.described.field", lambda w: setattr(w.lib.Described, "field", 9.0)
    ),
}

TENSORS = {
    "tensor": Row(
        "x * self.amount", set_of_model("amount", torch.tensor([9.0], dtype=torch.float64))
    ),
    "value of a tensor": Row("x * self.amount", lambda w: w.model.amount.fill_(9.0)),
    "value of a global tensor": Row("x * TENSOR", lambda w: w.module.TENSOR.fill_(9.0)),
    "other global tensor": Row(
        "x * TENSOR", lambda w: setattr(w.module, "TENSOR", torch.tensor(9.0))
    ),
    "gradient": Row(
        "x * (2.0 if self.weight.requires_grad else 3.0)",
        lambda w: w.model.weight.requires_grad_(True),
    ),
    "one weight twice": Row(
        "x * (2.0 if self.weight is self.second else 3.0)",
        lambda w: setattr(w.model, "second", w.model.weight),
    ),
    "strides": Row(
        "x * self.weight.stride()[0]",
        lambda w: setattr(w.model.weight, "data", torch.ones(8, 16)[:, ::2]),
    ),
    "number of parameters": Row(
        "x * len(self.linear._parameters)",
        lambda w: w.model.linear.register_parameter(
            "extra", nn.Parameter(torch.ones(1), requires_grad=False)
        ),
    ),
    "number of buffers": Row(
        "x * len(list(self.linear.buffers()))",
        lambda w: w.model.linear.register_buffer("extra", torch.ones(1)),
    ),
    "training": Row("x * (2.0 if self.training else 3.0)", lambda w: w.model.train()),
}

STATE = {
    "key of the environment": Row(
        "x * (2.0 if os.environ.get('STALE_KEY') else 3.0)",
        lambda w: w.patch.setenv("STALE_KEY", "1"),
    ),
    "value in the environment": Row(
        "x * float(os.environ['STALE_NUMBER'])",
        lambda w: w.patch.setenv("STALE_NUMBER", "5"),
    ),
    "autocast's cache": Row(
        "x * (2.0 if torch.is_autocast_cache_enabled() else 3.0)",
        lambda _: torch.set_autocast_cache_enabled(False),
    ),
    "TF32": Row(
        "x * (2.0 if torch._C._get_cublas_allow_tf32() else 3.0)",
        lambda _: torch._C._set_cublas_allow_tf32(True),
    ),
    "default dtype": Row(
        "x * (2.0 if torch.get_default_dtype() is torch.float32 else 3.0)",
        lambda _: torch.set_default_dtype(torch.float64),
    ),
    "whether there is a device": Row(
        "x * (2.0 if torch.cuda.is_available() else 3.0)",
        lambda w: w.put(torch.cuda, "is_available", lambda: True),
    ),
}

# What Dynamo has few guards on.
WITHOUT_GUARDS: dict[str, dict[str, Row]] = {
    "methods of torch": METHODS_OF_TORCH,
    "Python's own": PYTHONS_OWN,
    "state": STATE,
}
GUARDED: dict[str, dict[str, Row]] = {
    "functions of torch": FUNCTIONS_OF_TORCH,
    "functions of a library": FUNCTIONS_OF_A_LIBRARY,
    "containers": CONTAINERS,
    "classes": CLASSES,
    "tensors": TENSORS,
}

# What Dynamo of one release or another does not trace, or the cache does not keep.
NOT_ALWAYS_KEPT: dict[str, Row] = {
    "absent attribute of a class of torch": Row(
        "x * getattr(self.conv, 'scale', 3.0)", lambda w: w.put(nn.Conv1d, "scale", 5.0)
    ),
    "absent property of a class of torch": Row(
        "x * getattr(self.conv, 'scale', 3.0)",
        lambda w: w.put(nn.Conv1d, "scale", property(lambda _: 5.0)),
    ),
    "absent attribute of a weight": Row(
        "x * getattr(self.weight, 'scale', 3.0)", lambda w: setattr(w.model.weight, "scale", 9.0)
    ),
    "environment by getenv": Row(
        "x * (2.0 if getenv('STALE_KEY') else 3.0)", lambda w: w.patch.setenv("STALE_KEY", "1")
    ),
    "environment by os.getenv": Row(
        "x * (2.0 if os.getenv('STALE_KEY') else 3.0)", lambda w: w.patch.setenv("STALE_KEY", "1")
    ),
    "environment by membership": Row(
        "x * (2.0 if 'STALE_KEY' in os.environ else 3.0)",
        lambda w: w.patch.setenv("STALE_KEY", "1"),
    ),
    "address of a weight": Row(
        "x + float(id(self.weight) % 97)",
        lambda w: setattr(w.model, "weight", nn.Parameter(torch.eye(8), requires_grad=False)),
    ),
    "address of a layer": Row(
        "x + float(id(self.linear) % 97)",
        lambda w: setattr(w.model, "linear", copy.deepcopy(w.model.linear)),
    ),
    "offset of a weight": Row(
        "x + self.weight.storage_offset()", lambda w: other_offset(w.model.weight)
    ),
    "storage of a weight": Row(
        "x + self.weight.untyped_storage().nbytes()", lambda w: other_offset(w.model.weight)
    ),
    "writes of a weight": Row("x * self.weight._version", lambda w: w.model.weight.add_(0)),
    "hooks of a weight": Row(
        "x * (2.0 if self.weight._backward_hooks is None else 3.0)",
        lambda w: (
            w.model.weight.requires_grad_(True),
            w.model.weight.register_hook(lambda grad: grad),
        ),
    ),
    "gradient of a weight": Row(
        "x * (2.0 if self.weight.grad is None else 3.0)",
        lambda w: setattr(w.model.weight, "grad", torch.ones(8, 8)),
    ),
    "kept buffers": Row(
        "x * (2.0 if 'buffered' in self._non_persistent_buffers_set else 3.0)",
        lambda w: w.model._non_persistent_buffers_set.add("buffered"),
    ),
    "number from a tensor": Row("x * self.amount.item()", lambda w: w.model.amount.fill_(9.0)),
    "copy": Row(
        "x * copy.copy(self.data).scale",
        lambda w: w.put(copy, "copy", lambda _: types.SimpleNamespace(scale=9.0)),
    ),
    "fields replaced": Row(
        "x * dataclasses.replace(self.data, scale=3.0).scale",
        lambda w: w.put(dataclasses, "replace", lambda *_, **__: types.SimpleNamespace(scale=9.0)),
    ),
    "metadata of a field": Row(
        "x * dataclasses.fields(self.data)[0].metadata['unit']",
        lambda w: setattr(
            w.lib.Data.__dataclass_fields__["scale"],
            "metadata",
            types.MappingProxyType({"unit": 9}),
        ),
    ),
    "dataclass made inside": Row(
        "x * lib.Inner().eps", lambda w: setattr(w.lib.Inner.__init__, "__defaults__", (9.0,))
    ),
    "default factory": Row(
        "x * lib.Data().inner.eps", lambda w: setattr(w.lib.Inner.__init__, "__defaults__", (9.0,))
    ),
    "named tuple": Row("x * self.pair.left", lambda w: setattr(w.model, "pair", w.lib.Pair(9.0))),
    "property of a named tuple": Row(
        "x * self.pair.total", lambda w: setattr(w.lib.Pair, "total", _read_only(9.0))
    ),
    "flag": Row(
        "x * (2.0 if self.flags & lib.Flags.B else 3.0)",
        lambda w: setattr(w.model, "flags", w.lib.Flags.A | w.lib.Flags.B),
    ),
    "property": Row(
        "x * self.sized.width", lambda w: setattr(w.lib.Sized, "width", _read_only(9.0))
    ),
    "code of a property": Row(
        "x * self.sized.width", recode(lambda w: w.lib.Sized.width.fget, lambda self: 9.0)
    ),
    "length": Row("x * len(self.sized)", lambda w: setattr(w.lib.Sized, "__len__", lambda _: 9)),
    "membership": Row(
        "x * (2.0 if 1 in self.sized else 3.0)",
        lambda w: setattr(w.lib.Sized, "__contains__", lambda *_: False),
    ),
    "item": Row("x * self.sized[0]", lambda w: setattr(w.lib.Sized, "__getitem__", lambda *_: 9.0)),
    "iteration": Row(
        "x * [value for value in self.sized][0]",
        lambda w: setattr(w.lib.Sized, "__iter__", lambda _: iter([9.0])),
    ),
    "answered attribute": Row(
        "x * self.answering.missing",
        lambda w: setattr(w.lib.Answering, "__getattr__", lambda *_: 9.0),
    ),
    "answered attribute that is there now": Row(
        "x * self.answering.missing", lambda w: setattr(w.model.answering, "missing", 9.0)
    ),
    "property of a class": Row(
        "x * lib.WithMeta.factor", lambda w: setattr(w.lib.Meta, "factor", _read_only(9.0))
    ),
    "instance of": Row(
        "x * (2.0 if isinstance(self.child, lib.Base) else 3.0)",
        lambda w: setattr(w.lib.Child, "__bases__", (w.lib.Settings,)),
    ),
    "list of one's own": Row(
        "x * self.own_list[0]", lambda w: operator.setitem(w.model.own_list, 0, 9.0)
    ),
    "method of a list of one's own": Row(
        "x * self.own_list[0]",
        lambda w: setattr(w.lib.Listed, "__getitem__", lambda *_: 9.0),
    ),
    "number of one's own": Row(
        "x * self.number", lambda w: setattr(w.model, "number", w.lib.Number(5))
    ),
    "element of a set": Row(
        "x * (2.0 if 1 in lib.NUMBERS else 3.0)", lambda w: w.lib.NUMBERS.discard(1)
    ),
    "element of a frozen set": Row(
        "x * (2.0 if 1 in lib.FROZEN else 3.0)", set_of_library("FROZEN", frozenset({2}))
    ),
    "deque": Row("x * lib.DEQUE[0]", lambda w: w.lib.DEQUE.append(4.0)),
    "counter": Row("x * lib.COUNTER['a']", lambda w: w.lib.COUNTER.update("aa")),
    "range": Row("x * sum(self.between)", set_of_model("between", range(2, 5))),
    "range of a module": Row("x * sum(lib.RANGE)", set_of_library("RANGE", range(2, 5))),
    "rounding": Row("x * math.floor(2.5)", lambda w: w.put(math, "floor", lambda _: 7)),
    "precision of products": Row(
        "x * (2.0 if torch.get_float32_matmul_precision() == 'highest' else 3.0)",
        lambda _: torch.set_float32_matmul_precision("high"),
    ),
}
