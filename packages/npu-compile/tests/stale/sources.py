"""A model and a library that it reads, as texts: a test runs them as another process would."""

from __future__ import annotations

import sys
import types
from typing import Any

LIBRARY = """
import abc
import collections
import dataclasses
import enum
import functools
import typing

import torch
from torch import nn

FACTOR = 3.0
NESTED = {"a": {"b": [1.0, (2.0, 3.0)]}}
NUMBERS = {1, 2}
FROZEN = frozenset({1, 2})
ORDERED = collections.OrderedDict(a=1.0, b=2.0)
DEFAULTS = collections.defaultdict(lambda: 2.0)
DEQUE = collections.deque([1.0, 2.0], maxlen=2)
RANGE = range(2, 4)
COUNTER = collections.Counter(a=1)


def inner(x):
    return x * FACTOR


def middle(x):
    return inner(x) + 1.0


def outer(x):
    return middle(x) - 1.0


def by_name(x):
    return x * 1.5


def by_code(x):
    return x * 1.5


def counted(x):
    return x * len([1.0, 2.0])


def with_default(x, by=0.25):
    return x + by


def with_list(x, by=[0.25, 1.0]):
    return x + by[0]


def with_dict(x, by={"a": 0.25}):
    return x + by["a"]


def with_keyword(x, *, by=0.25):
    return x + by


class Settings:
    def __init__(self):
        self.factor = 2.0


def with_object(x, by=Settings()):
    return x * by.factor


def decorate(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) + 1.0

    return wrapper


@decorate
def decorated(x):
    return x * 2.0


@functools.lru_cache(None)
def remembered(number):
    return number * 2.0


def shifted(x, by):
    return x + by


def scaled(x, by=1.0):
    return x + by


part = functools.partial(shifted, by=0.5)
TABLE = {"f": by_name}


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Kind(enum.Enum):
    ADD = 1
    SUB = 2

    def amount(self):
        return 2.0 if self is Kind.ADD else 3.0


class Flags(enum.Flag):
    A = 1
    B = 2


class Veiled(enum.Enum):
    ADD = 1
    SUB = 2

    def __repr__(self):
        return "veiled"


class Text(str, enum.Enum):
    ADD = "add"
    SUB = "sub"


@dataclasses.dataclass
class Inner:
    eps: float = 0.5


@dataclasses.dataclass
class Data:
    scale: float = dataclasses.field(default=2.0, metadata={"unit": 2.0})
    inner: Inner = dataclasses.field(default_factory=Inner)
    sizes: list = dataclasses.field(default_factory=lambda: [1.0, 2.0])


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    scale: float = 2.0


class Pair(typing.NamedTuple):
    left: float = 2.0
    right: float = 3.0

    @property
    def total(self):
        return self.left + self.right


class Base:
    shift = 1.0
    table = {"a": 1.0}
    items = [1.0]
    activate = functools.partial(scaled, by=0.5)

    def moved(self, x):
        return x + self.shift

    @staticmethod
    def static(x):
        return x * 2.5

    @classmethod
    def of_class(cls, x):
        return x * cls.shift

    def __call__(self, x):
        return x * 3.5

    def __bool__(self):
        return True

    def __eq__(self, other):
        return True

    __hash__ = object.__hash__


class Child(Base):
    pass


class Other(Base):
    shift = 10.0


class Borrowing:
    borrowed = Other().moved


class Sized:
    @property
    def width(self):
        return 2.5

    def __len__(self):
        return 3

    def __contains__(self, item):
        return True

    def __getitem__(self, place):
        return 2.0

    def __iter__(self):
        return iter([1.0, 2.0])


class Answering:
    def __getattr__(self, name):
        if name == "missing":
            return 5.0
        raise AttributeError(name)


class WithSlots:
    __slots__ = ("value",)

    def __init__(self):
        self.value = 2.0


class Interface(abc.ABC):
    pass


class Descriptor:
    def __init__(self, value):
        self.value = value

    def __get__(self, owner, kind=None):
        return self.value


class Described:
    field = Descriptor(2.0)


class Meta(type):
    constant = 2.0

    @property
    def factor(cls):
        return 2.0


class WithMeta(metaclass=Meta):
    pass


class Listed(list):
    pass


class Mapped(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) * 2


class Number(int):
    pass


class Activation(nn.Module):
    def __init__(self, scale=2.0):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale


class Activations(collections.OrderedDict):
    def __getitem__(self, key):
        kind, arguments = super().__getitem__(key)
        return kind(**arguments)


def make_adder(first, second):
    def add(x):
        def deeper(y):
            return y + first + second[0]

        return deeper(x)

    return add
"""

MODEL = """
import copy
import dataclasses
import functools
import math
import operator
import os
import types
from os import getenv

import torch
from torch import nn

import stale_library as lib
from stale_library import by_name

F = nn.functional
TENSOR = torch.tensor(2.0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(8) * 2, requires_grad=False)
        self.second = nn.Parameter(torch.eye(8) * 3, requires_grad=False)
        self.buffered = nn.Buffer(torch.ones(8))
        self.amount = torch.tensor(2.0)
        self.conv = nn.Conv1d(8, 8, 1, bias=False).requires_grad_(False)
        self.linear = nn.Linear(8, 8).requires_grad_(False)
        self.norm = nn.LayerNorm(8).requires_grad_(False)
        self.rms = nn.RMSNorm(8).requires_grad_(False)
        self.gelu, self.tanh, self.silu = nn.GELU(), nn.Tanh(), nn.SiLU()
        self.softmax = nn.Softmax(-1)
        self.drop = nn.Dropout(0.5)
        self.embedding = nn.Embedding(8, 8).requires_grad_(False)
        self.sequence = nn.Sequential(nn.ReLU(), nn.Sigmoid())
        self.layers = nn.ModuleList([nn.Tanh(), nn.GELU()])
        self.named = nn.ModuleDict({"a": nn.Tanh(), "b": nn.GELU()})
        self.listed = nn.ParameterList([nn.Parameter(torch.ones(8), requires_grad=False)])
        self.activation = lib.Activation()
        self.child, self.other, self.sized = lib.Child(), lib.Other(), lib.Sized()
        self.answering, self.borrowing = lib.Answering(), lib.Borrowing()
        self.data, self.slotted, self.pair = lib.Data(), lib.Slotted(), lib.Pair()
        self.slots, self.described = lib.WithSlots(), lib.Described()
        self.bound = self.child.moved
        self.part = functools.partial(lib.scaled, by=0.5)
        self.kind, self.level = lib.Kind.ADD, lib.Level.LOW
        self.flags, self.text = lib.Flags.A, lib.Text.ADD
        self.veiled = (lib.Veiled.ADD,)
        self.add = lib.make_adder(1.0, [2.0])
        self.own_list, self.own_dict = lib.Listed([1.0, 2.0]), lib.Mapped(a=1.0)
        self.number = lib.Number(2)
        self.dtype, self.between, self.part_of = torch.float32, range(2, 4), slice(0, 2)
        self.nothing, self.complex, self.no_number, self.bytes = None, 2j, float("nan"), b"ab"
        self.sizes = torch.Size([2, 3])
        self.activations = lib.Activations(a=(lib.Activation, {"scale": 4.0}))
        self.function = lib.by_name
        self.space = types.SimpleNamespace(a=2.0)
        self.nested = {"a": {"b": [1.0, (2.0, 3.0)]}}
        self.eval()

    def own(self, x):
        return x * 2.0

    def forward(self, x):
        return EXPRESSIONS


def make():
    torch.manual_seed(0)
    return Model()
"""


def loaded(expressions: list[str]) -> Any:
    """Return a new model that returns these, of new modules under the same names."""
    model = MODEL.replace("EXPRESSIONS", f"({', '.join(expressions)},)")
    for name, text in (("stale_library", LIBRARY), ("stale_model", model)):
        # Dynamo keeps the module that it first found under a name.
        module = sys.modules.setdefault(name, types.ModuleType(name))
        vars(module).clear()
        vars(module).update(__name__=name, __file__=f"/nowhere/{name}.py")
        exec(compile(text, f"/nowhere/{name}.py", "exec"), vars(module))
    return sys.modules["stale_model"].make()
